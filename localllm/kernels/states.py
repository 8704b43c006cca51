"""What attention knows of 8 rows after some spans of positions, and how two of that become one.

Here too: where the arguments of attention's kernels and the parts of a lane's scratch stand.
"""

import numpy as np

from localllm.batch import PAGE
from localllm.kernels.fields import OWN, SPAN, TASK_TABLE, arg, round_up
from quant.elementary import exp2
from quant.later import inline
from quant.simd import (
    BYTES,
    LANES,
    fma,
    get_f32,
    get_i32,
    load_f32,
    maximum,
    put_f32,
    splat_f32,
    store_f32,
)

(Q, Q_SCALES, HEADS, KV_HEADS, K_DIMS, V_DIMS, POOL, GROUP_BYTES, HEAD_BYTES, K_BYTES,
 WINDOW, SOFTCAP, PARTS, PANELS_OUT, LANE_OUT, LANE_BYTES, ROWS_OUT, OUT_STRIDE,
 LAST, SPAN_2, SPAN_4, SPAN_8, ROTATION) = range(OWN, OWN + 23)  # fmt: skip

# What the kernel of a register tile is to do: `count` rows of Q, their positions `step` apart,
# against the pages of a span from page `begin` of a task's table on.
(TASK, KV, COUNT, STEP, BEGIN, FIRST_Q, Q_STRIDE, FIRST_SCALE, SCALE_STRIDE, NEXT, NEXT_BYTES) = (
    range(11)
)

LOG2_E = 1.4426950408889634  # scores are in powers of two
LOW = -1e29  # no score is lower; one that may not be seen counts as ten times it
TINY = 1e-37  # weights below it count as nothing
PAGES = SPAN // PAGE
ROW_BYTES = SPAN * 4  # of scores

# Numbers of the 8 rows of a tile stand in a place of their own, as wide as the widest vector.
NUMBERS = 64
# A state is what is known of 8 rows after some spans: what the sums are to be divided by, the
# highest score, and the sums, a row after the other.
TOTALS, PEAKS, SUMS = 0, NUMBERS, 2 * NUMBERS

# Of a lane's scratch: scores of 8 rows, their 16-bit weights, scales of V; a vector a row that is
# still to be reduced, twice; numbers of the rows; what a tile is to do; states.
WEIGHTS = 8 * ROW_BYTES
V_SCALES = WEIGHTS + 8 * SPAN * 2
FIRST, SECOND = V_SCALES + 4 * SPAN, V_SCALES + 4 * SPAN + 8 * BYTES
HERE, WHOLE, LARGEST, INVERSE, OLD, NEW, WEIGHT_SCALES = (
    SECOND + 8 * BYTES + NUMBERS * n for n in range(7)
)
WORK = WEIGHT_SCALES + PAGES * NUMBERS  # one for each page, or the first for all
STATES = WORK + 128


def state_bytes(v_dims: int) -> int:
    """Bytes of the state of 8 rows."""
    return SUMS + 8 * round_up(v_dims, 32) * 4


def part_bytes(v_dims: int, group: int) -> int:
    """Bytes of the states of one token's heads that share a KV head."""
    return -(-group // 8) * state_bytes(v_dims)


def scratch_bytes(v_dims: int, group: int) -> int:
    """What a lane needs: the above, states of 8 tokens of a group, and their answers."""
    return STATES + group * state_bytes(v_dims) + 8 * group * v_dims * 4 + 4096


@inline
def state_size(args):
    """Bytes of the state of 8 rows."""
    return SUMS + 32 * padded_dims(args)


@inline
def padded_dims(args):
    """Dims of a head of V, up to a multiple of 32."""
    return (arg(args, V_DIMS) + 31) // 32 * 32


@inline
def first_position(position, window):
    """The first position that one at `position` sees."""
    return max(position - window + 1, 0) if window else 0


@inline
def entry(task, index):
    """The page at that place of a task's table."""
    return np.int64(get_i32(arg(task, TASK_TABLE) + 4 * index))


@inline
def head_pool(args, kv):
    """Where a KV head's pages begin."""
    return arg(args, POOL) + kv * arg(args, HEAD_BYTES)


@inline
def begin_states(args, states, count, rows):
    """States of rows that have seen nothing yet, as many of each as its register tile has.

    No more: a part's lines were read by other lanes, and are to be had back from them.
    """
    size = state_size(args)
    used = SUMS + 4 * padded_dims(args) * (8 if rows > 4 else 4 if rows > 2 else 2)
    for state in range(states, states + count * size, size):
        for c in range(0, used, 4 * LANES):
            store_f32(state + c, splat_f32(np.float32(0)))
        for c in range(PEAKS, PEAKS + 32, 4 * LANES):
            store_f32(state + c, splat_f32(np.float32(LOW)))


@inline
def merge_numbers(state, here, whole, old_factor, new_factor):
    """Totals and peaks of 8 more rows into a state; what its sums and the new ones are times."""
    for c in range(0, 32, 4 * LANES):
        old, new = load_f32(state + PEAKS + c), load_f32(here + c)
        top = maximum(old, new)
        a, b = exp2(old - top), exp2(new - top)
        store_f32(state + PEAKS + c, top)
        total = fma(load_f32(state + TOTALS + c), a, load_f32(whole + c) * b)
        store_f32(state + TOTALS + c, total)
        store_f32(old_factor + c, a)
        store_f32(new_factor + c, b)


@inline
def merge(args, part, state, rows, memory):
    """Add the part of a span to the state of up to 8 rows. What sees nothing changes no bit."""
    dims = padded_dims(args)
    merge_numbers(state, part + PEAKS, part + TOTALS, memory + OLD, memory + NEW)
    for row in range(rows):
        a = splat_f32(get_f32(memory + OLD + 4 * row))
        b = splat_f32(get_f32(memory + NEW + 4 * row))
        for c in range(SUMS + 4 * row * dims, SUMS + 4 * (row + 1) * dims, 4 * LANES):
            store_f32(state + c, fma(load_f32(state + c), a, load_f32(part + c) * b))


@inline
def divide(args, state, row, out):
    """The answer of one row of a state: its sums over its total, f32."""
    inverse = np.float32(1) / get_f32(state + TOTALS + 4 * row)
    sums, dims = state + SUMS + 4 * row * padded_dims(args), arg(args, V_DIMS)
    whole = dims // LANES * LANES
    for c in range(0, 4 * whole, 4 * LANES):
        store_f32(out + c, load_f32(sums + c) * splat_f32(inverse))
    for c in range(4 * whole, 4 * dims, 4):
        put_f32(out + c, get_f32(sums + c) * inverse)
