"""Where kernels find their arguments: fields of 8 bytes, the batch's first.

A kernel is called as kernel(args, begin, end, lane): do pieces begin to end - 1 of the op whose
argument block is at `args`. Its first two fields are the same for every op; the rest are its own.
"""

import numpy as np

from quant.later import inline
from quant.rows import PANEL
from quant.simd import get_i64

CHUNK = 16  # panels that go through a tile of weights before the next one is fetched
SPAN = 128  # positions whose scores are taken together: attention merges at multiples of it

# The batch: how often each kind of op's units are to be done ...
ONCE, CHUNKS, WANTED_CHUNKS, LOGIT_CHUNKS = range(4)
TASKS, MERGES, PANELS, WANTED_PANELS = range(4, 8)
# ... and what its rows are, which count too.
TOKENS, WANTED, SINGLE, SPLIT = 8, 9, 10, 11
POSITIONS, TABLES, TASK_LIST, FIRST_TASKS, WANTED_ROWS, WANTED_INDEX = range(12, 18)
LOGITS = 18  # of the wanted rows, the first so many: the others' hidden rows are wanted
DRAWS, WISHES = 19, 20  # rows of logits that tokens are drawn from, and how (`localllm.wishes`)
IDS = 21  # of the tokens, i32
DRAWN = 22  # where the ids that are drawn go, i64
ONWARD = 23  # 1 where another pass follows, with the tokens that this one draws
BATCH_FIELDS = 24

# Every argument block.
BATCH, ROWS, SCRATCH, SCRATCH_BYTES = range(4)
OWN = 4  # where an op's own fields begin

# A task of attention: rows of one sequence that follow each other.
TASK_ROW, TASK_COUNT, TASK_POSITION, TASK_TABLE, TASK_SPAN = range(5)
TASK_BYTES = 64


@inline
def arg(args, field):
    """A field of an argument block, a batch or a task."""
    return get_i64(args + 8 * field)


@inline
def rows_of(args):
    """How many rows this op works on: all tokens, or those that are wanted."""
    return arg(arg(args, BATCH), arg(args, ROWS))


@inline
def is_single(args):
    """Whether the batch is one token: then lanes keep their own copies of small inputs."""
    return arg(arg(args, BATCH), SINGLE)


@inline
def scratch_of(args, lane):
    """Memory of this lane alone."""
    return arg(args, SCRATCH) + lane * arg(args, SCRATCH_BYTES)


def float_bits(value: float) -> int:
    """A float as a field holds it."""
    return int(np.float32(value).view(np.int32))


def round_up(value: int, unit: int) -> int:
    """The next multiple of `unit`."""
    return -(-value // unit) * unit


def panels(rows: int) -> int:
    """Panels that hold so many rows."""
    return -(-rows // PANEL)
