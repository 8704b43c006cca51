"""What lowering makes: places of values, steps of the table, and what lives on with them."""

from dataclasses import dataclass, field

import numpy as np

from localllm.backends.cpu.learn import Shape
from localllm.backends.cpu.memory import Rows
from localllm.backends.cpu.pool import Pool
from localllm.backends.cpu.rope import RopeTable
from quant.jit import Kernel


@dataclass(frozen=True, slots=True)
class Panels:
    """int8 panels of `blocks` blocks; a single token's lie at `lane` + lane * `lane_bytes`."""

    address: int
    blocks: int
    lane: int
    lane_bytes: int


@dataclass(slots=True)
class Place:
    """Where a value stands, in one form or both."""

    rows: Rows | None = None
    panels: Panels | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """An op of the table: units times how often the batch's `kind` counts, perhaps lane by lane."""

    name: str
    layer: int
    kernel: Kernel
    args: np.ndarray
    units: int
    kind: int
    alone: bool = False
    bytes: int = 0  # of weights it reads
    products: int = 0  # multiply-adds a row


@dataclass
class Sizes:
    """What buffers are made for."""

    rows: int
    wanted: int
    lanes: int
    context: int
    pages: int
    parts: int  # spans that may be worked out apart
    kv_type: str


@dataclass
class Lowered:
    """The table's steps, and the memory that outlives lowering."""

    steps: list[Step] = field(default_factory=list)
    memory: list[np.ndarray] = field(default_factory=list)
    ropes: dict[object, RopeTable] = field(default_factory=dict)
    shapes: list[Shape] = field(default_factory=list)  # of K, where pages have one
    pool: Pool | None = None
    embedded: Rows | None = None  # what tokens begin as
    logits: Rows | None = None
    draws: bool = False  # whether the model draws tokens
    hidden: Rows | None = None  # what the logits are made from
