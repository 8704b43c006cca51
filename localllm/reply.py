"""One answer as it comes: token ids become text, and anybody may cancel it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from localllm.engine.worker import Ticket
from localllm.request import Logprob
from localllm.text.stream import TextStream

TIMINGS = (
    "prompt_ms",
    "prompt_per_second",
    "predicted_ms",
    "predicted_per_second",
    "ttft_ms",
    "draft_n",
    "draft_n_accepted",
)


@dataclass(frozen=True, slots=True)
class Delta:
    """What arrived: text that is whole, the ids behind it; progress (done, total) of a prompt.

    An id whose text is held back (half a character, half a stop string) comes with text "".
    """

    text: str = ""
    ids: tuple[int, ...] = ()
    logprobs: list[Logprob] | None = None  # one for each of ids, when asked for
    progress: tuple[int, int] | None = None


class Deltas:
    """Iterate for Deltas, once and from one thread; what needs the end of them reads on to it."""

    def __init__(self, deltas: Iterator[Delta]):
        self._deltas = deltas
        self._texts: list[str] = []

    def __iter__(self) -> Iterator[Delta]:
        return self

    def __next__(self) -> Delta:
        delta = next(self._deltas)
        self._texts.append(delta.text)
        return delta

    @property
    def text(self) -> str:
        """The whole answer."""
        self._finish()
        return "".join(self._texts)

    def _finish(self) -> None:
        for _ in self:
            pass


class Reply(Deltas):
    """See Deltas; `cancel` is for any thread.

    `text`, `usage`, `timings` and `finish_reason` wait for the end of the answer. Finish reasons:
    "stop" (an end token or a stop string), "length" (max_tokens or context), "cancelled".
    """

    def __init__(
        self,
        ticket: Ticket,
        token_bytes: Callable[[int], bytes],
        stops: Sequence[str] = (),
        load_ms: float = 0.0,
    ):
        self._ticket, self._token_bytes, self._load_ms = ticket, token_bytes, load_ms
        self._stream = TextStream(stops)
        super().__init__(self._read())

    def cancel(self) -> None:
        """Stop as soon as the current step is over; what has come so far stays."""
        self._ticket.cancel()

    @property
    def finish_reason(self) -> str:
        self._finish()
        reason = self._ticket.finish_reason or "cancelled"
        return "stop" if self._stream.stopped is not None else reason

    @property
    def stop(self) -> str | None:
        """The stop string that ended the answer, if one did."""
        self._finish()
        return self._stream.stopped

    @property
    def seed(self) -> int:
        """The seed that would give this answer again."""
        return self._ticket.seed

    @property
    def usage(self) -> dict[str, int]:
        """prompt_tokens, of which cached_tokens came from the prefix cache; completion_tokens."""
        self._finish()
        return self._ticket.usage

    @property
    def timings(self) -> dict[str, float]:
        """Milliseconds and tokens per second of loading, prompt and generation; draft_n, tokens
        that were guessed, and draft_n_accepted, those that came true."""
        self._finish()
        measured = self._ticket.timings
        return {"load_ms": self._load_ms} | {name: measured[name] for name in TIMINGS}

    def _read(self) -> Iterator[Delta]:
        stopped = False
        for event in self._ticket:
            if stopped:
                continue  # tokens that were under way when the stop string was seen
            data = b"".join(map(self._token_bytes, event.ids))
            text = self._stream.push(data) if data else ""
            yield Delta(text, tuple(event.ids), event.logprobs, event.progress)
            stopped = self._stream.stopped is not None
            if stopped:
                self.cancel()
        if rest := self._stream.flush():
            yield Delta(rest)
