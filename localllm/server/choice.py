"""One answer of a chat as it grows: text, thinking and tool calls, as deltas and as a message."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from localllm.text.parts import Parts, Piece


@dataclass
class Choice:
    """Index, and what has come so far. `id` makes the ids of its tool calls."""

    index: int
    id: str
    splitter: Parts
    tokenizer: Any
    most_calls: int | None = None
    closed: bool = False  # one call too many has begun: nothing is added any more
    text: list[str] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    logprobs: list[dict[str, Any]] = field(default_factory=list)
    reasoning_tokens: int = 0

    def __post_init__(self) -> None:
        self._reasons = False  # the last that came was reasoning

    def push(self, *deltas: Any) -> list[dict[str, Any]]:
        """What a streaming client is sent for them: the `delta`s of chunks."""
        return self._add_all(joined([p for delta in deltas for p in self._split(delta)]))

    def flush(self, reason: str) -> list[dict[str, Any]]:
        """What the splitter still held back at the end, which came for this reason."""
        return self._add_all(self.splitter.flush(cut=reason == "length"))

    def take_logprobs(self) -> dict[str, Any] | None:
        """Those since the last time, as a chunk has them."""
        taken, self.logprobs = self.logprobs, []
        return {"content": taken, "refusal": None} if taken else None

    def message(self) -> dict[str, Any]:
        """The whole of it, for a client that did not stream."""
        said: dict[str, Any] = {"role": "assistant", "content": "".join(self.text)}
        if self.thinking:
            thoughts = "".join(self.thinking)
            said |= {"reasoning_content": thoughts, "reasoning": thoughts}
        if self.calls:
            said["tool_calls"] = self.calls
            said["content"] = said["content"] or None
        return said

    def finish(self, reason: str) -> str:
        ended = "stop" if self.closed else reason  # closed: we ended it, however it went on
        return "tool_calls" if self.calls and ended == "stop" else ended

    def _split(self, delta: Any) -> list[Piece]:
        self.logprobs += token_logprobs(delta.logprobs, self.tokenizer)
        pieces = self.splitter.push(delta.text)
        if pieces:
            self._reasons = pieces[-1].kind == "thinking"
        self.reasoning_tokens += len(delta.ids) * self._reasons
        return pieces

    def _add_all(self, pieces: Iterable[Piece]) -> list[dict[str, Any]]:
        deltas = []
        for piece in pieces:
            self.closed |= piece.kind == "call" and len(self.calls) == self.most_calls
            if not self.closed:
                deltas.append(self._add(piece))
        return deltas

    def _add(self, piece: Piece) -> dict[str, Any]:
        if piece.kind == "call":
            return self._call(piece.text)
        if piece.kind == "arguments":
            call = self.calls[-1]
            call["function"]["arguments"] += piece.text
            part = {"index": len(self.calls) - 1, "function": {"arguments": piece.text}}
            return {"tool_calls": [part]}
        if piece.kind == "thinking":
            self.thinking.append(piece.text)
            return {"reasoning_content": piece.text, "reasoning": piece.text}
        self.text.append(piece.text)
        return {"content": piece.text}

    def _call(self, name: str) -> dict[str, Any]:
        count = len(self.calls)
        call = {"id": f"call_{self.id}_{self.index}_{count}", "type": "function"}
        function = {"name": name, "arguments": ""}
        self.calls.append(call | {"function": dict(function)})
        return {"tool_calls": [{"index": count} | call | {"function": function}]}


def joined(pieces: Iterable[Piece]) -> list[Piece]:
    """Neighbours of one kind as one piece, but for calls."""
    found: list[Piece] = []
    for piece in pieces:
        if found and found[-1].kind == piece.kind != "call":
            found[-1] = Piece(piece.kind, found[-1].text + piece.text)
        else:
            found.append(piece)
    return found


def token_logprobs(logprobs: Sequence[Any] | None, tokenizer: Any) -> list[dict[str, Any]]:
    """The chat API's shape of what the engine says of each token."""
    return [
        _token(one.id, one.logprob, tokenizer)
        | {"top_logprobs": [_token(id, value, tokenizer) for id, value in one.top]}
        for one in logprobs or ()
    ]


def _token(id: int, logprob: float, tokenizer: Any) -> dict[str, Any]:
    data = tokenizer.token_bytes(id)
    logprob = max(float(logprob), -9999.0)  # JSON has no -inf; OpenAI's own floor
    token = data.decode("utf-8", "replace")
    return {"id": id, "token": token, "logprob": logprob, "bytes": list(data)}
