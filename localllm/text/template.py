"""Messages to the prompt that a model was trained on, through the Jinja template in its file."""

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

from jinja2 import Template
from jinja2.exceptions import TemplateSyntaxError

from localllm.errors import BadFile, BadRequest, LocalLLMError
from localllm.text.budget import Budget, TooMuch
from localllm.text.sandbox import Sandbox
from localllm.text.tokenizer import Part, Tokenizer

MAX_SOURCE = 1 << 16  # letters; the longest in use have about 30,000
_GUARD = "\ufdd0"  # a noncharacter: put inside special tokens' texts in messages, taken out again
_ROLE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
_DATE = re.compile(r"(?:[^%]|%[-#]?[a-zA-Z%]){0,100}", re.DOTALL)
_KEY = "tokenizer.chat_template"


class ChatTemplate:
    """A model's chat template. Rendering is bounded in time, memory and output."""

    def __init__(self, source: str, tokenizer: Tokenizer, tools_source: str | None = None):
        self.source, self._tokenizer = source, tokenizer
        self._code = _compile(source)
        self._tools_code = self._code if tools_source is None else _compile(tools_source)
        self._sources = source if tools_source is None else source + tools_source
        self._marks = {
            "bos_token": "" if tokenizer.bos is None else tokenizer.token_text(tokenizer.bos),
            "eos_token": "" if tokenizer.eos is None else tokenizer.token_text(tokenizer.eos),
        }

    @classmethod
    def from_metadata(
        cls, metadata: Mapping[str, Any], tokenizer: Tokenizer
    ) -> "ChatTemplate | None":
        """None for a base model, which has no template. BadFile where it cannot be read."""
        source, tools = metadata.get(_KEY), metadata.get(_KEY + ".tool_use")
        if source is None:
            return None
        if not isinstance(source, str) or not isinstance(tools, str | None):
            raise BadFile("The file's chat template is not a text.")
        return cls(source, tokenizer, tools)

    @cached_property
    def supports_tools(self) -> bool:
        """Whether the template writes the tools of a request into the prompt."""
        return re.search(r"\btools\b", self._sources) is not None

    @cached_property
    def supports_system(self) -> bool:
        """Whether a system message gets into the prompt, found by trying."""
        probe = "localllm-probe"
        try:
            parts = self._render([_message("system", probe), _message("user", "hi")], None, {})
        except LocalLLMError:
            return False
        return any(probe in part.text for part in parts)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **extra: Any,
    ) -> list[Part]:
        """The prompt, with what must not become special tokens in parts of its own.

        Content may be text or a list of text parts; tool calls' arguments text or an object. Where
        a template knows no system message, the first user message takes it in. Raises BadRequest
        for messages that the template refuses, BadFile for a template that fails or does not end.
        """
        plain = [self._flat(message) for message in messages]
        if any(each["role"] == "system" for each in plain) and not self.supports_system:
            plain = _system_to_user(plain)
        options = {"add_generation_prompt": add_generation_prompt, **extra}
        try:
            return self._render([_with_objects(each) for each in plain], tools, options)
        except BadRequest:
            if not any(each.get("tool_calls") for each in plain):
                raise
            return self._render(plain, tools, options)  # a template that adds arguments as text

    def _flat(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The message with its content as one text, without what is empty anyway."""
        flat = {key: value for key, value in message.items() if value is not None and value != []}
        role, content = flat.get("role"), flat.get("content", "")
        if not isinstance(role, str) or not _ROLE.fullmatch(role) or self._ends_turns(role):
            raise BadRequest("Every message needs a role: system, user, assistant or tool.")
        if isinstance(content, list | tuple):
            content = "".join(map(_text_of, content))
        if not isinstance(content, str):
            raise BadRequest("A message's content must be text, or a list of text parts.")
        return flat | {"content": content}

    def _ends_turns(self, role: str) -> bool:
        """Whether a template that writes the role between <| and |> would write an end token."""
        special, ends = self._tokenizer.special_tokens, self._tokenizer.end_ids
        return any(special.get(text) in ends for text in (f"<|{role}|>", f"<{role}>", role))

    def _render(
        self, messages: list[dict[str, Any]], tools: Any, options: dict[str, Any]
    ) -> list[Part]:
        try:
            given = self._guarded({"messages": messages, "tools": tools or None})
            letters = len(json.dumps(given, ensure_ascii=False, default=str))
        except RecursionError as error:
            raise BadRequest("The messages are nested too deeply.") from error
        values = {"documents": None, **self._marks, **self._guarded(options), **given}
        sandbox = Sandbox(Budget(letters))
        functions = {"raise_exception": partial(_refuse, sandbox), "strftime_now": _now}
        code = self._tools_code if tools else self._code
        template = Template.from_code(sandbox, code, {**sandbox.globals, **functions})
        return list(_parts("".join(_bounded(sandbox, template, values))))

    def _guarded(self, value: Any) -> Any:
        """The same with a guard inside every special token's text: no text can pose as one."""
        if isinstance(value, str):
            return self._guard(value)
        if isinstance(value, Mapping):
            kind = type(value) if isinstance(value, _Arguments) else dict
            return kind({self._guarded(key): self._guarded(each) for key, each in value.items()})
        if isinstance(value, list | tuple):
            return [self._guarded(each) for each in value]
        return value

    def _guard(self, text: str) -> str:
        text = text.replace(_GUARD, "\ufffd")
        cuts = [0, *(start + 1 for start in self._tokenizer.guarded_starts(text)), len(text)]
        return _GUARD.join(text[a:b] for a, b in pairwise(cuts))


class _Arguments(dict[str, Any]):
    """A tool call's arguments: an object that is JSON where a template writes it as text."""

    def __str__(self) -> str:
        return json.dumps(self, ensure_ascii=False)

    __repr__ = __str__


class _Refused(Exception):
    """What raise_exception() in a template raises."""


def _compile(source: str) -> Any:
    if len(source) > MAX_SOURCE:
        raise BadFile(
            f"The file's chat template has {len(source)} letters, more than {MAX_SOURCE}."
        )
    try:
        return Sandbox(Budget()).compile(source)
    except TemplateSyntaxError as error:
        raise BadFile(
            f"The file's chat template has an error in line {error.lineno}: {error}"
        ) from error
    except RecursionError as error:
        raise BadFile("The file's chat template is nested too deeply.") from error
    except Exception as error:
        raise BadFile(f"The file's chat template cannot be read: {error}") from error


def _bounded(sandbox: Sandbox, template: Template, values: dict[str, Any]) -> Iterator[str]:
    try:
        for piece in template.root_render_func(template.new_context(values)):
            sandbox.budget.take(len(piece))
            yield piece
    except _Refused as error:
        raise BadRequest(f"The model's chat template refuses this: {error}") from error
    except (TooMuch, RecursionError, MemoryError) as error:
        reason = str(error) if isinstance(error, TooMuch) else "nests too deeply"
        raise BadFile(
            f"The model's chat template was stopped: it {reason}.",
            hint="A damaged or hostile file. Get the model from its publisher.",
        ) from error
    except Exception as error:
        raise BadRequest(
            f"The model's chat template cannot write these messages: {error}",
            hint="It may know no such role, order or kind of message.",
        ) from error


def _parts(text: str) -> Iterator[Part]:
    """A guard and the letter before it come from a message; the rest may be the template's."""
    pieces = text.split(_GUARD)
    for piece in pieces[:-1]:
        if piece[:-1]:
            yield Part(piece[:-1], True)
        yield Part(piece[-1:], False)
    if pieces[-1]:
        yield Part(pieces[-1], True)


def _text_of(part: Any) -> str:
    text = part.get("text") if isinstance(part, Mapping) else part
    if not isinstance(text, str):
        raise BadRequest("This model reads text only: no images, sounds or files in a message.")
    return text


def _message(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def _system_to_user(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    system = "\n\n".join(each["content"] for each in messages if each["role"] == "system")
    rest = [each for each in messages if each["role"] != "system"]
    first = next((i for i, each in enumerate(rest) if each["role"] == "user"), None)
    if first is None:
        return [_message("user", system), *rest]
    merged = rest[first] | {"content": f"{system}\n\n{rest[first]['content']}"}
    return [*rest[:first], merged, *rest[first + 1 :]]


def _with_objects(message: dict[str, Any]) -> dict[str, Any]:
    """Tool calls with their arguments as objects, which is what most templates write as JSON."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    return message | {"tool_calls": [_with_object(call) for call in calls]}


def _with_object(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return call
    arguments = function.get("arguments")
    try:
        parsed = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        return call
    if not isinstance(parsed, Mapping):
        return call
    return {**call, "function": {**function, "arguments": _Arguments(parsed)}}


def _refuse(sandbox: Sandbox, message: Any = "") -> None:
    raise _Refused(sandbox.show(message)[:1000])


def _now(form: str) -> str:
    """The local time, as transformers' strftime_now writes it."""
    if not isinstance(form, str) or not _DATE.fullmatch(form):
        raise ValueError("strftime_now takes a short date format")
    return time.strftime(form)
