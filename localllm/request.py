"""What the engine is asked for and what it answers: token ids and plain data."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field
from typing import Protocol

import numpy as np

from localllm.sampling import Sampling


class Mask(Protocol):
    """Which tokens may come next: a grammar's view of an answer. One object per answer."""

    def allowed(self) -> np.ndarray | None:
        """(vocab,) bool, or bits packed from the lowest up in any integer type; None: all."""
        ...

    def take(self, id: int) -> None:
        """Called with each token that was picked, in order."""
        ...


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt and how to go on from it. Ask n times, with n seeds, for n answers: the pages of
    the prompt are shared and computed once, also while the first is still at it.

    max_tokens: None goes on to the end of the context; 0 only fills the cache.
    end_ids: a token of these ends the answer ("stop"); it is counted but not delivered.
    logit_rows: deliver a row of logits for every prompt position from logit_start on.
    pooling: "mean" or "last" delivers one vector for the whole prompt; max_tokens must be 0.
    logprobs: None for none, 0 for the picked token's own, n for the n likeliest beside it.
    client: whom this is for; clients share the machine evenly. cache_key: prefixes are shared only
    between requests of one key (an adapter, a tenant); cache=False neither reads nor fills.
    breakers: token sequences that end a repeated passage, for dry. pieces: a token's bytes, for
    infill, which does nothing without.
    """

    ids: Sequence[int]
    sampling: Sampling = field(default_factory=Sampling)
    _: KW_ONLY
    max_tokens: int | None = None
    end_ids: frozenset[int] = frozenset()
    logit_rows: bool = False
    logit_start: int = 0
    pooling: str = ""
    logprobs: int | None = None
    client: str = ""
    cache: bool = True
    cache_key: str = ""
    mask: Mask | None = None
    breakers: Sequence[tuple[int, ...]] = ()
    pieces: Callable[[int], bytes] | None = None


@dataclass(frozen=True, slots=True)
class Logprob:
    """A picked token's natural-log probability under the model, and the likeliest beside it."""

    id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()  # (id, log probability), likeliest first


@dataclass(slots=True)
class Event:
    """Something a request brought forth in one step."""

    ids: list[int] = field(default_factory=list)  # tokens of the answer
    logprobs: list[Logprob] | None = None  # one for each of ids, when asked for
    progress: tuple[int, int] | None = None  # prompt tokens done (cached ones too), of how many
    logits: np.ndarray | None = None  # (rows, vocab) f32, the reader's own
    start: int = 0  # the position of the first row of logits
    vector: np.ndarray | None = None  # (width,) f32, the pooled hidden rows

    def takes(self, more: "Event") -> bool:
        """Whether both can be told as one: all but arrays."""
        arrays = (self.logits, self.vector, more.logits, more.vector)
        return all(array is None for array in arrays)

    def take(self, more: "Event") -> None:
        """Tell what came next along with this."""
        self.ids = self.ids + more.ids
        if more.logprobs is not None:
            self.logprobs = (self.logprobs or []) + more.logprobs
        self.progress = more.progress or self.progress


@dataclass(slots=True)
class Usage:
    """Tokens counted. cached_tokens: those of the prompt that were found in the prefix tree."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


@dataclass(slots=True)
class Timings:
    """When things happened, in seconds of time.perf_counter, and what follows from that in ms.

    As a dict its names are llama-server's, where that has one.
    """

    submitted: float = 0.0
    admitted: float = 0.0  # first given pages
    prompted: float = 0.0  # the whole prompt was computed
    first: float = 0.0  # the first token was picked
    ended: float = 0.0  # the last one was
    computed_tokens: int = 0  # of the prompt
    predicted_tokens: int = 0
    draft_n: int = 0  # guesses at tokens of the answer that were computed (see `engine.drafts`)
    draft_n_accepted: int = 0  # of these, those that came true

    @property
    def queue_ms(self) -> float:
        return _ms(self.submitted, self.admitted)

    @property
    def prompt_ms(self) -> float:
        return _ms(self.admitted, self.prompted)

    @property
    def prompt_per_second(self) -> float:
        """Prompt tokens computed (not those found in the cache) each second."""
        return _rate(self.computed_tokens, self.prompt_ms)

    @property
    def predicted_ms(self) -> float:
        """From the first token to the last."""
        return _ms(self.first, self.ended)

    @property
    def predicted_per_second(self) -> float:
        """Tokens after the first, each second."""
        return _rate(self.predicted_tokens - 1, self.predicted_ms)

    @property
    def ttft_ms(self) -> float:
        """From submit to the first token."""
        return _ms(self.submitted, self.first)

    def as_dict(self) -> dict[str, float]:
        names = ("queue_ms", "prompt_ms", "prompt_per_second", "predicted_ms",
                 "predicted_per_second", "ttft_ms", "draft_n", "draft_n_accepted")  # fmt: skip
        return {name: getattr(self, name) for name in names}


def _ms(start: float, end: float) -> float:
    return max(0.0, end - start) * 1000 if start and end else 0.0


def _rate(count: int, ms: float) -> float:
    return max(0, count) / ms * 1000 if ms else 0.0
