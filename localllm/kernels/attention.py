"""Attention over pages: online softmax in spans of positions, merged in the context's order.

Whole numbers throughout: Q . K and P . V are pairs of 16-bit products. A register tile is 1, 2, 4
or 8 rows that see the same pages: 8 tokens of one head, or the heads of one token that share a KV
head. Each row's bits depend on its own numbers only, whatever stands beside it.
"""

import numpy as np

from localllm.batch import PAGE
from localllm.kernels.fields import (
    BATCH,
    FIRST_TASKS,
    MERGES,
    OWN,
    POSITIONS,
    SPAN,
    SPLIT,
    TASK_BYTES,
    TASK_COUNT,
    TASK_LIST,
    TASK_POSITION,
    TASK_ROW,
    TASK_SPAN,
    TASK_TABLE,
    TASKS,
    WANTED_INDEX,
    arg,
    is_single,
    round_up,
    scratch_of,
)
from localllm.kernels.pages import (
    BAND,
    BAND_BYTES,
    GROUP,
    V_LEVEL,
    VECTORS,
    k_page,
    v_page,
    v_scales,
)
from quant.elementary import exp2
from quant.jit import Kernel, kernel
from quant.later import inline, stamp
from quant.rows import PANEL, SLOT_BYTES, quantise, quantise_panel
from quant.simd import (
    BYTES,
    LANES,
    fma,
    get_f32,
    get_i32,
    get_i64,
    lanes_between,
    load_f32,
    load_i32,
    maximum,
    minimum,
    put_f32,
    put_i64,
    splat_f32,
    store_f32,
    store_low_halves,
    to_i32,
    zero_below,
)
from quant.threads import call4
from quant.tiles import (
    dot_pairs,
    int_zeros_like,
    merge_rows,
    rows_at,
    scale_rows,
    store_peaks,
    store_rows,
    store_totals,
    zeros,
)

(Q, Q_SCALES, HEADS, KV_HEADS, K_DIMS, V_DIMS, POOL, GROUP_BYTES, HEAD_BYTES, K_BYTES,
 WINDOW, SOFTCAP, PARTS, PANELS_OUT, LANE_OUT, LANE_BYTES, ROWS_OUT, OUT_STRIDE,
 LAST, SPAN_2, SPAN_4, SPAN_8) = range(OWN, OWN + 22)  # fmt: skip

# What the kernel of a register tile is to do: `count` rows of Q, their positions `step` apart,
# against the pages of a span from page `begin` of a task's table on.
(TASK, KV, COUNT, STEP, BEGIN, FIRST_Q, Q_STRIDE, FIRST_SCALE, SCALE_STRIDE) = range(9)
ROWS = 8  # of the register tile; each kernel has its own

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
HERE, WHOLE, LARGEST, INVERSE, WEIGHT_SCALES, OLD, NEW = (
    SECOND + 8 * BYTES + NUMBERS * n for n in range(7)
)
WORK = NEW + NUMBERS
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
def score(tile, task, args, kv, work, begin, pages, out):
    """Rows of Q against `pages` pages of K from page `begin` on: (rows, SPAN) f32 at `out`."""
    dims, pool = arg(args, K_DIMS), head_pool(args, kv)
    q, q_stride = arg(work, FIRST_Q), arg(work, Q_STRIDE)
    scales, s_stride = arg(work, FIRST_SCALE), arg(work, SCALE_STRIDE)
    group_bytes, k_size = arg(args, GROUP_BYTES), arg(args, K_BYTES)
    for p in range(pages):
        k = k_page(pool, entry(task, begin + p), group_bytes, k_size)
        for c in range(0, PAGE * 4, 4 * LANES):
            i = int_zeros_like(tile)
            for pair in range(dims // 2):
                i = dot_pairs(i, load_i32(k + pair * PAGE * 4 + c), q + 4 * pair, q_stride)
            s = scale_rows(i, load_f32(k + dims * PAGE * 2 + c), scales, s_stride)
            store_rows(s, out + p * PAGE * 4 + c, ROW_BYTES)


@inline
def hide(args, scores, first, pages, position):
    """One row of scores: capped, and what may not be seen pushed down."""
    low = first_position(position, arg(args, WINDOW)) - first
    seen, end = position + 1 - first, pages * PAGE
    cap = get_f32(args + 8 * SOFTCAP)
    if cap > np.float32(0):  # cap * tanh(v / cap), in powers of two
        one, double = splat_f32(np.float32(1)), splat_f32(np.float32(2 * LOG2_E) / cap)
        for c in range(0, end, LANES):
            e = exp2(minimum(load_f32(scores + 4 * c) * double, splat_f32(np.float32(64))))
            store_f32(scores + 4 * c, (e - one) / (e + one) * splat_f32(cap))
    if low > 0 or seen < end:
        for c in range(0, end, LANES):
            v = load_f32(scores + 4 * c)
            store_f32(scores + 4 * c, lanes_between(v, low - c, seen - c, np.float32(10 * LOW)))


@inline
def peaks_of(tile, args, count, step, position, begin, pages, memory):
    """The highest score that each of `count` rows sees."""
    for row in range(count):
        scores, top = memory + row * ROW_BYTES, splat_f32(np.float32(LOW))
        hide(args, scores, begin * PAGE, pages, position + step * row)
        for c in range(0, pages * PAGE * 4, 4 * LANES):
            top = maximum(top, load_f32(scores + c))
        store_f32(memory + FIRST + row * BYTES, top)
    store_peaks(memory + HERE, rows_at(tile, memory + FIRST, BYTES))


@inline
def soften(tile, count, pages, memory):
    """Scores to 2**(score - highest), summed up, then times the scale of V; the largest."""
    for row in range(count):
        scores, shift = memory + row * ROW_BYTES, splat_f32(get_f32(memory + HERE + 4 * row))
        whole = most = splat_f32(np.float32(0))
        for c in range(0, pages * PAGE * 4, 4 * LANES):
            weight = exp2(load_f32(scores + c) - shift)
            whole = whole + weight
            weight = weight * load_f32(memory + V_SCALES + c)
            store_f32(scores + c, weight)
            most = maximum(most, weight)
        store_f32(memory + FIRST + row * BYTES, whole)
        store_f32(memory + SECOND + row * BYTES, most)
    store_totals(memory + WHOLE, rows_at(tile, memory + FIRST, BYTES))
    store_peaks(memory + LARGEST, rows_at(tile, memory + SECOND, BYTES))


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
def quantise_weights(count, pages, memory):
    """Weights to 16 bits, of each row as its largest allows."""
    level = np.float32(V_LEVEL)
    for c in range(0, 32, 4 * LANES):
        largest = load_f32(memory + LARGEST + c)
        inverse = zero_below(splat_f32(level) / largest, largest, np.float32(TINY))
        store_f32(memory + INVERSE + c, inverse)
        store_f32(memory + WEIGHT_SCALES + c, largest * splat_f32(np.float32(1) / level))
    for row in range(count):
        inverse = splat_f32(get_f32(memory + INVERSE + 4 * row))
        scores, halves = memory + row * ROW_BYTES, memory + WEIGHTS + row * SPAN * 2
        for c in range(0, pages * PAGE, LANES):
            store_low_halves(halves + 2 * c, to_i32(load_f32(scores + 4 * c) * inverse))


@inline
def weigh(tile, task, args, kv, begin, pages, memory, state):
    """16-bit weights times pages of V, merged into the sums of a state."""
    dims, pool, one = padded_dims(args), head_pool(args, kv), splat_f32(np.float32(1))
    group_bytes, k_size = arg(args, GROUP_BYTES), arg(args, K_BYTES)
    scales, old, new = memory + WEIGHT_SCALES, memory + OLD, memory + NEW
    for band in range(dims // BAND):
        i, j, to = int_zeros_like(tile), int_zeros_like(tile), state + SUMS + band * BAND * 4
        for p in range(pages):
            v = v_page(pool, entry(task, begin + p), group_bytes, k_size)
            v += band * GROUP * BAND_BYTES
            for pair in range(PAGE // 2):
                x = memory + WEIGHTS + (p * PAGE // 2 + pair) * 4
                i = dot_pairs(i, load_i32(v + pair * 4 * BAND), x, SPAN * 2)
                if VECTORS == 2:
                    j = dot_pairs(j, load_i32(v + pair * 4 * BAND + BYTES), x, SPAN * 2)
        merge_rows(scale_rows(i, one, scales, 4), to, 4 * dims, old, new)
        if VECTORS == 2:
            merge_rows(scale_rows(j, one, scales, 4), to + BYTES, 4 * dims, old, new)


def rows_span(args, work, memory, state):
    """Up to a tile's rows against a span: what `work` says, merged into their state."""
    count, step, begin = arg(work, COUNT), arg(work, STEP), arg(work, BEGIN)
    task, kv, tile = arg(work, TASK), arg(work, KV), zeros(ROWS)
    position = arg(task, TASK_POSITION)
    pages = min(PAGES, (position + step * (count - 1)) // PAGE + 1 - begin)
    score(tile, task, args, kv, work, begin, pages, memory)
    peaks_of(tile, args, count, step, position, begin, pages, memory)
    soften(tile, count, pages, memory)
    merge_numbers(state, memory + HERE, memory + WHOLE, memory + OLD, memory + NEW)
    quantise_weights(count, pages, memory)
    weigh(tile, task, args, kv, begin, pages, memory, state)


def span_kernel(rows: int) -> Kernel:
    """The kernel of a register tile of that many rows; `attend` calls it by its address."""
    return Kernel(stamp(rows_span, f"span{rows}", ROWS=rows), 4, __name__)


SPANS = {rows: span_kernel(rows) for rows in (2, 4, 8)}


@inline
def load_v_scales(task, args, kv, begin, memory):
    """The scales of V of a span, as far as the task sees it."""
    last = arg(task, TASK_POSITION) + arg(task, TASK_COUNT) - 1
    for p in range(min(PAGES, last // PAGE + 1 - begin)):
        page = entry(task, begin + p)
        v = v_scales(head_pool(args, kv), page, arg(args, GROUP_BYTES), arg(args, K_BYTES),
                     padded_dims(args))  # fmt: skip
        for c in range(0, 4 * PAGE, 4 * LANES):
            store_f32(memory + V_SCALES + p * 4 * PAGE + c, load_f32(v + c))


@inline
def span(task, args, kv, begin, memory, states):
    """All rows of a task, of one KV head, against one span, into their states: 8 heads of a
    token in each, or 8 tokens of a head."""
    dims, heads, count = arg(args, K_DIMS), arg(args, HEADS), arg(task, TASK_COUNT)
    group, row = heads // arg(args, KV_HEADS), arg(task, TASK_ROW)
    q = arg(args, Q) + (row * heads + kv * group) * 2 * dims
    scales = arg(args, Q_SCALES) + (row * heads + kv * group) * 4
    load_v_scales(task, args, kv, begin, memory)
    single = count == 1
    tiles, apart = ((group + 7) // 8, 8) if single else (group, 1)
    stride, step, work = (1, 0, memory + WORK) if single else (heads, 1, memory + WORK)
    put_i64(work + 8 * TASK, task)
    put_i64(work + 8 * KV, kv)
    put_i64(work + 8 * STEP, step)
    put_i64(work + 8 * BEGIN, begin)
    put_i64(work + 8 * Q_STRIDE, stride * 2 * dims)
    put_i64(work + 8 * SCALE_STRIDE, stride * 4)
    for k in range(tiles):
        rows, at = min(group - 8 * k, 8) if single else count, k * apart
        put_i64(work + 8 * COUNT, rows)
        put_i64(work + 8 * FIRST_Q, q + at * 2 * dims)
        put_i64(work + 8 * FIRST_SCALE, scales + 4 * at)
        kernel = arg(args, SPAN_8 if rows > 4 else SPAN_4 if rows > 2 else SPAN_2)
        call4(kernel, args, work, memory, states + k * state_size(args))


@inline
def begin_states(args, states, count):
    """States of rows that have seen nothing yet."""
    size = state_size(args)
    for state in range(states, states + count * size, size):
        for c in range(0, size, 4 * LANES):
            store_f32(state + c, splat_f32(np.float32(0)))
        for c in range(PEAKS, PEAKS + 32, 4 * LANES):
            store_f32(state + c, splat_f32(np.float32(LOW)))


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


@inline
def emit_row(args, row, kv, answer):
    """A group's answer for one token to its row of f32."""
    width = arg(args, HEADS) // arg(args, KV_HEADS) * arg(args, V_DIMS)
    y = arg(args, ROWS_OUT) + row * arg(args, OUT_STRIDE) + kv * width * 4
    for c in range(0, 4 * width, 4):
        put_f32(y + c, get_f32(answer + c))


@inline
def emit_slot(args, row, kv, answer, lane):
    """A group's answer for one token to its slot of a panel."""
    width, single = arg(args, HEADS) // arg(args, KV_HEADS) * arg(args, V_DIMS), is_single(args)
    block = block_of(args, row, kv)
    if single:
        block = arg(args, LANE_OUT) + lane * arg(args, LANE_BYTES) + kv * width // 32 * SLOT_BYTES
    slots = 1 if single else PANEL
    for k in range(width // 32):
        quantise(answer + 128 * k, block + k * SLOT_BYTES * slots, row % slots, slots)


@inline
def block_of(args, row, kv):
    """The first block of a group in the panel of a row."""
    blocks = arg(args, HEADS) * arg(args, V_DIMS) // 32
    first = row // PANEL * blocks + kv * blocks // arg(args, KV_HEADS)
    return arg(args, PANELS_OUT) + first * SLOT_BYTES * PANEL


@inline
def emit_task(args, task, kv, states, answers, lane):
    """A group's answers for the tokens of a task, by way of rows at `answers`."""
    batch, group, count = arg(args, BATCH), arg(args, HEADS) // arg(args, KV_HEADS), 1
    first, panels, width = arg(task, TASK_ROW), arg(args, PANELS_OUT), group * arg(args, V_DIMS)
    if not arg(batch, SPLIT):
        count = arg(task, TASK_COUNT)
    together = panels and count == PANEL and first % PANEL == 0 and not arg(args, LAST)
    for t in range(count):
        row, answer = first + t, answers + t * width * 4
        if arg(args, LAST):
            row = get_i64(arg(batch, WANTED_INDEX) + 8 * row)
        if row >= 0:
            for h in range(group):
                tile, at = (h // 8, h % 8) if count == 1 else (h, t)
                state = states + tile * state_size(args)
                divide(args, state, at, answer + h * arg(args, V_DIMS) * 4)
            if arg(args, ROWS_OUT):
                emit_row(args, row, kv, answer)
            if panels and not together:
                emit_slot(args, row, kv, answer, lane)
    if together:
        block = block_of(args, first, kv)
        for k in range(width // 32):
            quantise_panel(answers + 128 * k, 4 * width, block + k * SLOT_BYTES * PANEL)


@inline
def is_wanted(args, task):
    """Whether any row of a task is read later: after the last layer's attention few are."""
    if not arg(args, LAST):
        return True
    first = arg(arg(args, BATCH), WANTED_INDEX) + 8 * arg(task, TASK_ROW)
    for t in range(arg(task, TASK_COUNT)):
        if get_i64(first + 8 * t) >= 0:
            return True
    return False


@kernel(4)
def attend(args, begin, end, lane):
    """Units are (KV head, task), so that a lane stays with one head's pages. A task of one span
    leaves its part to `merge_spans`; another goes through its whole context and emits its rows."""
    batch, memory, size = arg(args, BATCH), scratch_of(args, lane), state_size(args)
    tasks, group = arg(batch, TASKS), arg(args, HEADS) // arg(args, KV_HEADS)
    for unit in range(begin, end):
        kv, task = unit // tasks, arg(batch, TASK_LIST) + unit % tasks * TASK_BYTES
        if not is_wanted(args, task):
            continue
        position, count = arg(task, TASK_POSITION), arg(task, TASK_COUNT)
        low = first_position(position, arg(args, WINDOW)) // SPAN
        high = (position + count - 1) // SPAN
        tiles, states = (group + 7) // 8 if count == 1 else group, memory + STATES
        if arg(batch, SPLIT):
            states = arg(args, PARTS) + unit * tiles * size
            low, high = max(low, arg(task, TASK_SPAN)), arg(task, TASK_SPAN)
        begin_states(args, states, tiles if low <= high else 0)
        for s in range(low, high + 1):
            span(task, args, kv, s * PAGES, memory, states)
        if not arg(batch, SPLIT):
            emit_task(args, task, kv, states, memory + STATES + group * size, lane)


@kernel(4)
def merge_spans(args, begin, end, lane):
    """Units are (KV head, row): the parts of a row's spans, merged and emitted. A single token's
    answer goes to each lane's own copy."""
    batch, memory, size = arg(args, BATCH), scratch_of(args, lane), state_size(args)
    tasks, rows = arg(batch, TASKS), arg(batch, MERGES)
    group = arg(args, HEADS) // arg(args, KV_HEADS)
    tiles, states = (group + 7) // 8, memory + STATES
    for unit in range(begin, end):
        kv, t = unit // rows, unit % rows
        position = np.int64(get_i32(arg(batch, POSITIONS) + 4 * t))
        first = get_i64(arg(batch, FIRST_TASKS) + 8 * t)
        begin_states(args, states, tiles)
        for s in range(first_position(position, arg(args, WINDOW)) // SPAN, position // SPAN + 1):
            part = arg(args, PARTS) + (kv * tasks + first + s) * tiles * size
            for k in range(tiles):
                at, count = k * size, min(group - 8 * k, 8)
                merge(args, part + at, states + at, count, memory)
        task = arg(batch, TASK_LIST) + first * TASK_BYTES
        emit_task(args, task, kv, states, states + group * size, lane)
