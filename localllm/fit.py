"""Will it fit? Weights, pages of KV and scratch, held against the memory that is free."""

from dataclasses import dataclass
from typing import Protocol

from localllm.batch import PAGE
from localllm.errors import TooLarge
from localllm.units import size

SHARE = 0.9  # of the free memory a model may plan with; the rest is for everybody else
LEAST = 256  # tokens of context under which a model is of no use
CONTEXTS, QUARTER = 4, 0.25  # the pool may hold so many contexts, in so much of the free memory


class Footprint(Protocol):
    """What a model takes, in bytes: weights and scratch at once, pages as they are used."""

    @property
    def weights(self) -> int: ...
    @property
    def page_bytes(self) -> int: ...
    @property
    def scratch(self) -> int: ...


@dataclass(frozen=True)
class Fit:
    """A model of `context` tokens needs `needs` of the `available` bytes."""

    context: int
    needs: int
    available: int
    weights: int
    pages: int
    scratch: int
    largest: int  # tokens of context that would fit, at most the trained length
    pool: int  # pages of KV to have: several sequences and finished turns share them

    @property
    def fits(self) -> bool:
        return self.needs <= SHARE * self.available

    def __str__(self) -> str:
        return (
            f"{size(self.needs)} needed: {size(self.weights)} weights, {size(self.pages)} for "
            f"{self.context} tokens of context, {size(self.scratch)} scratch; "
            f"{size(self.available)} free"
        )


def fit(footprint: Footprint, trained: int, context: int | None, available: int) -> Fit:
    """Plan a context: what was asked for, else as much of the trained length as fits."""
    fixed = footprint.weights + footprint.scratch
    room = int(SHARE * available) - fixed
    tokens = max(0, room // max(1, footprint.page_bytes)) * PAGE
    largest = min(trained, tokens)
    chosen = context or (largest if largest >= min(LEAST, trained) else trained)
    needed = -(-chosen // PAGE)
    shared = int(QUARTER * available) // max(1, footprint.page_bytes)
    pages = needed * footprint.page_bytes
    return Fit(
        chosen, fixed + pages, available, footprint.weights, pages, footprint.scratch, largest,
        pool=max(needed, min(CONTEXTS * needed, shared)),
    )  # fmt: skip


def demand(name: str, plan: Fit) -> Fit:
    """The plan, if it fits; TooLarge with the numbers and a way out if it does not."""
    if plan.fits:
        return plan
    if plan.largest >= LEAST:
        hint = f"A context of {plan.largest} tokens would fit: --ctx {plan.largest}."
    else:
        hint = "Close other programs, or take a smaller model or a smaller quantization."
    raise TooLarge(f"{name} does not fit into memory: {plan}.", hint)
