"""The kinds of KV pages there are: their sizes and the kernels that write and read them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from localllm.kernels import heads, heads8, pages, pages8, spans, spans8
from localllm.kernels.rotation import rotation_size
from quant.jit import Kernel


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of pages. `learns`: what becomes of K a sample of text says."""

    k_bytes: Callable[[int], int]  # of a page and head, by its dims
    v_bytes: Callable[[int], int]
    q_level: Callable[[int], int]  # the largest whole number of Q
    rotation: Callable[[int], int]  # how many dims of a head turn together
    heads: Kernel
    spans: Mapping[int, Kernel]
    learns: bool


KINDS = {
    "f16": Kind(
        pages.k_bytes, pages.v_bytes, pages.k_level, lambda dims: 1,
        heads.heads, spans.SPANS, learns=False,
    ),
    "q8_0": Kind(
        pages8.k_bytes, pages8.v_bytes, lambda dims: pages8.Q_LEVEL, rotation_size,
        heads8.heads8, spans8.SPANS8, learns=True,
    ),
}  # fmt: skip
