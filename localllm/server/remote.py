"""A running server with the face of an LLM, for `run` and `chat`: no weights, no kernels."""

import http.client
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any
from urllib.parse import quote

from localllm import errors
from localllm.reply import TIMINGS, Delta, Deltas
from localllm.request import Logprob
from localllm.sampling import Sampling
from localllm.server.note import Note, call, find_servers, refusal, status

LINE = 2**22  # bytes of one event
WAIT = 600.0  # seconds of silence; the server sends a comment every 15
RUN_KEYS = ("load_ms", *TIMINGS)


def find(name: str) -> "RemoteLLM | None":
    """The model of that name, when a server of the user's own has it in memory."""
    for note in find_servers():
        try:
            models = status(note)["models"]
        except errors.LocalLLMError:
            continue  # it ended meanwhile
        if any(model["name"] == name and model["state"] == "ready" for model in models):
            return RemoteLLM(note, name)
    return None


class RemoteLLM:
    """One model of a server that has proven itself (see `note`). Any thread may use it.

    server: the server's address. Raises NotFound where the server has no such model.
    """

    def __init__(self, note: Note, name: str):
        self.note, self.name, self.server = note, name, note.url
        self._about = self._call("GET", f"/props?model={quote(name)}", None)
        self._texts: dict[int, str] = {}  # of tokens that answers told with their probabilities

    @property
    def context(self) -> int:
        """Tokens that a prompt and its answer may have together."""
        return int(self._about["default_generation_settings"]["n_ctx"])

    @property
    def template(self) -> str | None:
        """The chat template's text; None for a base model."""
        return self._about["chat_template"] or None

    @property
    def system(self) -> str | None:
        """The model's own system message, if it has one."""
        return self._about["system_message"] or None

    @property
    def defaults(self) -> Sampling:
        """What the model recommends; biases of single tokens stay the server's."""
        told = self._about["default_generation_settings"]["params"]
        names = {f.name for f in fields(Sampling)} - {"logit_bias"}
        return Sampling().changed({name: told[name] for name in names & told.keys()})

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        template_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> "RemoteReply":
        """As LLM.chat."""
        body = {"messages": [dict(message) for message in messages]} | _body(options)
        if tools:
            body["tools"] = [dict(tool) for tool in tools]
        if template_options:
            body["chat_template_kwargs"] = dict(template_options)
        if options.get("max_tokens") is not None:
            body["max_tokens"] = options["max_tokens"]
        if options.get("logprobs") is not None:
            body |= {"logprobs": True, "top_logprobs": options["logprobs"]}
        body["stream_options"] = {"include_usage": True}
        return self._reply("/v1/chat/completions", body)

    def generate(self, prompt: str | Sequence[int], **options: Any) -> "RemoteReply":
        """As LLM.generate."""
        given = prompt if isinstance(prompt, str) else [int(id) for id in prompt]
        limit = options.get("max_tokens")
        body = {"prompt": given, "n_predict": -1 if limit is None else limit} | _body(options)
        if options.get("logprobs") is not None:
            body["n_probs"] = options["logprobs"]
        return self._reply("/completion", body)

    def tokenize(self, text: str, special: bool = True, bos: bool = False) -> list[int]:
        """As LLM.tokenize."""
        body = {"model": self.name, "content": text, "parse_special": special, "add_special": bos}
        return list(self._call("POST", "/tokenize", body)["tokens"])

    def detokenize(self, ids: Sequence[int], special: bool = False) -> str:
        """As LLM.detokenize; asks nobody for a single token that an answer told."""
        if len(ids) == 1 and ids[0] in self._texts:
            return self._texts[ids[0]]
        tokens = [int(id) for id in ids]
        body = {"model": self.name, "tokens": tokens, "special": special}
        return str(self._call("POST", "/detokenize", body)["content"])

    def close(self) -> None:
        """The model stays with its server."""

    def __enter__(self) -> "RemoteLLM":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _reply(self, path: str, body: dict[str, Any]) -> "RemoteReply":
        body |= {"model": self.name, "stream": True, "return_progress": True}
        return RemoteReply(self.note, path, body, self._texts)

    def _call(self, method: str, path: str, body: Any) -> Any:
        return call(self.note, method, path, body, timeout=WAIT)


def _body(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of LLM.submit that HTTP knows under the same name; `cache` has another one."""
    body = {
        name: value
        for name, value in options.items()
        if value is not None and name not in ("max_tokens", "logprobs", "cache", "stop", "client")
    }
    if "logit_bias" in body:
        body["logit_bias"] = [
            [id, False if bias == float("-inf") else bias]
            for id, bias in body["logit_bias"].items()
        ]
    if not options.get("cache", True):
        body["cache_prompt"] = False
    stop = options.get("stop") or ()
    return body | ({"stop": [stop] if isinstance(stop, str) else list(stop)} if stop else {})


class RemoteReply(Deltas):
    """As localllm.reply.Reply: iterate once for Deltas, cancel from any thread.

    texts: gets the text of every token that came with its probability.
    """

    def __init__(self, note: Note, path: str, body: dict[str, Any], texts: dict[int, str]):
        self._connection = http.client.HTTPConnection(note.host, note.port, timeout=WAIT)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {note.token()}"}
        try:
            self._connection.request("POST", path, json.dumps(body), headers)
            self._response = self._connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise errors.Unavailable(f"No server answers at {note.url}.", str(error)) from None
        self._known, self._thinks = texts, False
        if self._response.status != 200:
            raise self._refusal()
        self._cancelled = threading.Event()
        self._usage: dict[str, int] = {}
        self._timings: dict[str, float] = {}
        self._reason, self._stop = "cancelled", None
        super().__init__(self._read())

    def cancel(self) -> None:
        """Close the connection: the server notices."""
        self._cancelled.set()
        sock = self._connection.sock
        if sock is not None:
            try:
                sock.shutdown(2)
            except OSError:
                pass  # it is closed already

    @property
    def usage(self) -> dict[str, int]:
        self._finish()
        return dict(self._usage)

    @property
    def timings(self) -> dict[str, float]:
        self._finish()
        return dict(self._timings)

    @property
    def finish_reason(self) -> str:
        self._finish()
        return self._reason

    @property
    def stop(self) -> str | None:
        self._finish()
        return self._stop

    def _read(self) -> Iterator[Delta]:
        try:
            for event in self._events():
                yield from self._delta(event)
        except (OSError, ValueError, http.client.HTTPException) as error:
            if not self._cancelled.is_set():
                raise errors.Unavailable("The server broke off the answer.", str(error)) from None
        finally:
            self._connection.close()

    def _events(self) -> Iterator[dict[str, Any]]:
        while line := self._response.readline(LINE):
            if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
                yield json.loads(line[6:])

    def _delta(self, event: dict[str, Any]) -> Iterator[Delta]:
        """One event of either route."""
        if "error" in event:
            raise errors.Unavailable(str(event["error"].get("message", "The server failed.")))
        self._note_end(event)
        if progress := event.get("prompt_progress"):
            yield Delta(progress=(progress["processed"], progress["total"]))
        if "content" in event:
            logprobs = self._logprobs(event.get("completion_probabilities"))
            if event["content"] or event.get("tokens"):
                yield Delta(event["content"], tuple(event.get("tokens", ())), logprobs)
            return
        for choice in event.get("choices", ()):
            self._reason = choice["finish_reason"] or self._reason
            logprobs = self._logprobs((choice.get("logprobs") or {}).get("content"))
            ids = tuple(one.id for one in logprobs or ())
            if (text := self._said(choice["delta"])) or ids:
                yield Delta(text, ids, logprobs)

    def _said(self, delta: Mapping[str, Any]) -> str:
        """The text of a chat's delta: the server tells reasoning apart, an LLM marks it."""
        thought, text = delta.get("reasoning_content") or "", delta.get("content") or ""
        if thought and not self._thinks:
            thought = f"<think>\n{thought}"
        elif text and self._thinks:
            text = f"\n</think>\n\n{text}"
        self._thinks = bool(thought) or (self._thinks and not text)
        return thought + text

    def _logprobs(self, told: Sequence[Mapping[str, Any]] | None) -> list[Logprob] | None:
        """The engine's own shape of them; what each token reads is kept."""
        for one in told or ():
            for token in (one, *one["top_logprobs"]):
                self._known[token["id"]] = token["token"]
        return [
            Logprob(one["id"], one["logprob"], tuple((t["id"], t["logprob"]) for t in tops))
            for one in told or ()
            for tops in [one["top_logprobs"]]
        ] or None

    def _note_end(self, event: dict[str, Any]) -> None:
        if "timings" in event:
            timings = event["timings"]
            self._timings = {key: timings[key] for key in RUN_KEYS if key in timings}
            self._usage = {
                "prompt_tokens": timings["prompt_n"] + timings["cache_n"],
                "cached_tokens": timings["cache_n"],
                "completion_tokens": timings["predicted_n"],
            }
        if event.get("stop") is True:
            self._stop = event["stopping_word"] or None
            words = {"limit": "length", "none": "cancelled"}
            self._reason = words.get(event["stop_type"], "stop")

    def _refusal(self) -> errors.LocalLLMError:
        try:
            return refusal(self._response.status, self._response.read(LINE))
        finally:
            self._connection.close()
