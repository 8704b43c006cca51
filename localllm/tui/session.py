"""One chat in line mode: the model, what was said, and the settings; no terminal in it."""

from collections.abc import Callable, Mapping
from typing import Any

from localllm.errors import BadRequest, TooLarge
from localllm.tui import knobs, meter
from localllm.tui.asking import ask

TEMPLATE = 16  # tokens that the chat template may put around a message


class Session:
    """Messages as the model gets them; `used` counts the context's tokens after the last answer.

    `open_llm(name, progress)` opens a model: progress(stage, done, total).
    """

    def __init__(
        self,
        open_llm: Callable[..., Any],
        system: str | None = None,
        sampling: Mapping[str, Any] | None = None,
    ):
        self._open_llm = open_llm
        self.llm: Any = None
        self.system = system or ""
        self.messages: list[dict[str, str]] = []
        self.options: dict[str, Any] = dict(sampling or {})
        self.stats: dict[str, Any] = {}
        self.used = 0

    def open(self, name: str, progress: Callable[[str, int, int], None]) -> None:
        """Change to another model; the old one stays when the new one cannot be opened."""
        llm = self._open_llm(name, progress)
        self.close()
        self.llm, self.used = llm, 0
        self.system = self.system or llm.system or ""

    def close(self) -> None:
        if self.llm is not None:
            self.llm.close()
            self.llm = None

    @property
    def context(self) -> int:
        return self.llm.context

    def ask(self, text: str) -> Any:
        """Put a question and start its answer. Nothing is ever cut to make it fit: TooLarge."""
        fresh = len(self.llm.tokenize(text, special=False)) + TEMPLATE
        if self.used + fresh >= self.context:
            counts = f"{self.used:,} are in use and this message needs about {fresh:,}"
            raise TooLarge(
                f"The context of {self.context:,} tokens is full: {counts}.",
                "/undo takes back the last exchange, /clear begins anew.",
            )
        asked = [*self.messages, {"role": "user", "content": text}]
        reply = ask(self.llm, self._with_system(asked), knobs.turned(self.options))
        self.messages = asked
        return reply

    def keep(self, reply: Any) -> None:
        """Take over an answer, whole or stopped, and what it cost."""
        text = reply.text
        self.stats = {**reply.usage, **reply.timings, "finish_reason": reply.finish_reason}
        self.used = sum(self.stats.get(key, 0) for key in ("prompt_tokens", "completion_tokens"))
        if text:
            self.messages = [*self.messages, {"role": "assistant", "content": text}]
        if "prompt_tokens" not in self.stats:  # a server that was cut off tells no numbers
            self.used = self._estimate()

    def take_back(self, text: str) -> None:
        """Forget a question that got no answer."""
        if self.messages and self.messages[-1] == {"role": "user", "content": text}:
            self.messages = self.messages[:-1]

    def undo(self) -> str:
        """Take back the last exchange; what the user had written."""
        last = max((i for i, m in enumerate(self.messages) if m["role"] == "user"), default=None)
        if last is None:
            raise BadRequest("There is nothing to take back.")
        text = self.messages[last]["content"]
        self.messages = self.messages[:last]
        self.used = self._estimate()
        return text

    def clear(self) -> None:
        self.messages, self.used, self.stats = [], 0, {}

    def replace(self, messages: list[dict[str, str]]) -> None:
        """Go on from other messages."""
        self.system = "\n\n".join(m["content"] for m in messages if m["role"] == "system")
        self.messages = [m for m in messages if m["role"] != "system"]
        self.used = self._estimate()

    def whole(self) -> list[dict[str, str]]:
        """Everything said, with the system prompt before it."""
        return self._with_system(self.messages)

    def last_answer(self) -> str:
        """The last answer; BadRequest while there is none."""
        answers = [m["content"] for m in self.messages if m["role"] == "assistant"]
        if not answers:
            raise BadRequest("There is no answer yet.")
        return answers[-1]

    def warning(self) -> str:
        """What to say when the context is nearly full."""
        if not meter.is_tight(self.used, self.context):
            return ""
        full = meter.context(self.used, self.context)
        return f"The context is nearly full: {full}. /undo or /clear makes room."

    def _with_system(self, messages: list[dict[str, str]]) -> list[dict[str, str]]:
        head = [{"role": "system", "content": self.system}] if self.system else []
        return head + messages

    def _estimate(self) -> int:
        return sum(
            len(self.llm.tokenize(m["content"], special=False)) + TEMPLATE for m in self.whole()
        )
