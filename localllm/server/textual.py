"""One answer of /v1/completions as it grows: text, and the older shape of log-probabilities."""

from typing import Any

from localllm.server.echo import Echo

FLOOR = -9999.0  # JSON has no -inf


class Textual:
    """Text and probabilities since the last `take`; starts with what is echoed."""

    def __init__(self, index: int, tokenizer: Any, logprobs: bool, echo: Echo):
        self.index, self._tokenizer = index, tokenizer
        self._logprobs = _Logprobs(tokenizer) if logprobs else None
        self._text = [echo.text]
        if self._logprobs:
            for id, logprob in zip(echo.ids, echo.logprobs, strict=True):
                self._logprobs.add(id, logprob)

    def push(self, delta: Any) -> None:
        self._text.append(delta.text)
        if self._logprobs:
            for one in delta.logprobs or ():
                self._logprobs.add(one.id, one)

    def take(self, finish: str | None) -> dict[str, Any]:
        """A chunk's choice: what is new."""
        logprobs = self._logprobs.take() if self._logprobs else None
        text, self._text = "".join(self._text), []
        return {"index": self.index, "text": text, "logprobs": logprobs, "finish_reason": finish}

    def choice(self, finish: str) -> dict[str, Any]:
        """The whole answer, when nothing was taken before."""
        return self.take(finish)


class _Logprobs:
    """Parallel lists: tokens, token_logprobs, top_logprobs, text_offset."""

    def __init__(self, tokenizer: Any):
        self._tokenizer, self._offset = tokenizer, 0
        self._clear()

    def add(self, id: int, logprob: Any) -> None:
        text = self._show(id)
        self._tokens.append(text)
        self._offsets.append(self._offset)
        self._offset += len(text)
        self._values.append(None if logprob is None else max(logprob.logprob, FLOOR))
        tops = None if logprob is None else {self._show(i): max(v, FLOOR) for i, v in logprob.top}
        self._tops.append(tops)

    def take(self) -> dict[str, Any]:
        taken = {
            "tokens": self._tokens,
            "token_logprobs": self._values,
            "top_logprobs": self._tops,
            "text_offset": self._offsets,
        }
        self._clear()
        return taken

    def _clear(self) -> None:
        self._tokens: list[str] = []
        self._offsets: list[int] = []
        self._values: list[float | None] = []
        self._tops: list[dict[str, float] | None] = []

    def _show(self, id: int) -> str:
        """A token's text; of half a character, its bytes as OpenAI writes them."""
        data = self._tokenizer.token_bytes(id)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
