"""Turns what went wrong into an HTTP status and the error body that OpenAI's clients expect."""

import json
from typing import Any

from starlette.responses import Response

from localllm import errors
from localllm.server.schema import WrongField

KINDS = {  # the error class, its status, and the `type` llama-server and OpenAI give it
    errors.PromptTooLong: (400, "exceed_context_size_error", "context_length_exceeded"),
    errors.TooLarge: (400, "invalid_request_error", "too_large"),
    errors.BadRequest: (400, "invalid_request_error", None),
    errors.NotFound: (404, "not_found_error", "model_not_found"),
    errors.Unsupported: (501, "not_supported_error", "not_supported"),
    errors.Busy: (429, "rate_limit_error", "too_busy"),
    errors.Unavailable: (503, "unavailable_error", "unavailable"),
    errors.Cancelled: (503, "unavailable_error", "cancelled"),
}
TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error"}
RETRY_AFTER = "5"  # seconds, for 429 and 503


class Refused(errors.LocalLLMError):
    """A request that HTTP's own rules turn down: its status, and a code for programs."""

    def __init__(self, status: int, message: str, code: str, hint: str = ""):
        super().__init__(message, hint)
        self.status, self.code = status, code


def describe(error: BaseException) -> tuple[int, dict[str, Any]]:
    """The status and the body for an error; what is not meant for users stays inside."""
    if isinstance(error, Refused):
        kind = TYPES.get(error.status, "invalid_request_error")
        return error.status, _body(error.status, _text(error), kind, error.code)
    for known, (status, kind, code) in KINDS.items():
        if isinstance(error, known) and isinstance(error, errors.LocalLLMError):
            body = _body(status, _text(error), kind, code)
            if isinstance(error, WrongField):
                body["error"]["param"] = error.param
            if isinstance(error, errors.PromptTooLong):
                body["error"] |= {"n_prompt_tokens": error.prompt_tokens, "n_ctx": error.context}
            return status, body
    message = "Something went wrong inside the server; its log says what."
    return 500, _body(500, message, "server_error", "internal_error")


def response(error: BaseException) -> Response:
    """The whole answer to a request that failed before its first byte."""
    status, body = describe(error)
    headers = {"Retry-After": RETRY_AFTER} if status in (429, 503) else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
    return Response(content, status, headers, media_type="application/json")


def event(error: BaseException) -> bytes:
    """The same as one event, for a stream that has begun."""
    body = json.dumps(describe(error)[1], ensure_ascii=False)
    return f"data: {body}\n\n".encode("utf-8", "replace")


def _text(error: errors.LocalLLMError) -> str:
    return f"{error.message} {error.hint}".strip()


def _body(status: int, message: str, kind: str, code: str | None) -> dict[str, Any]:
    """OpenAI's `code` is a word and llama-server's a number: the word, and `status` beside it."""
    error = {"message": message, "type": kind, "code": code, "param": None, "status": status}
    return {"error": error}
