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
    WANTED_INDEX,
    arg,
    is_single,
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
from quant.jit import kernel
from quant.later import inline
from quant.rows import PANEL, SLOT_BYTES, quantise
from quant.simd import (
    BYTES,
    LANES,
    exp,
    fma,
    get_f32,
    get_i32,
    get_i64,
    lanes_between,
    load_f32,
    load_i32,
    maximum,
    peak,
    put_f32,
    splat_f32,
    store_f32,
    store_low_halves,
    to_i32,
    total,
)
from quant.tiles import dot_pairs, int_zeros_like, scale_rows, store_rows, zeros

(Q, Q_SCALES, HEADS, KV_HEADS, K_DIMS, V_DIMS, POOL, GROUP_BYTES, HEAD_BYTES, K_BYTES,
 WINDOW, SOFTCAP, PARTS, PART_BYTES, PART_ROWS, PANELS_OUT, LANE_OUT, LANE_BYTES,
 ROWS_OUT, OUT_STRIDE, LAST) = range(OWN, OWN + 21)  # fmt: skip

LOW = -1e29  # no score is lower; one that may not be seen counts as ten times it
PAGES = SPAN // PAGE
ROW_BYTES = SPAN * 4  # of scores
TOTAL, PEAK = 0, 4  # behind the sums of a part: what they are divided by, the highest score

# Of a lane's scratch: scores of 8 rows, their 16-bit weights, the scales of those and of V, the
# highest of each row, parts.
WEIGHTS = 8 * ROW_BYTES
WEIGHT_SCALES = WEIGHTS + 8 * SPAN * 2
PEAKS = WEIGHT_SCALES + 64
V_SCALES = PEAKS + 64
PART = V_SCALES + 4 * SPAN


def part_bytes(v_dims: int) -> int:
    """Bytes of one row's result for one span."""
    return -(-v_dims // 32) * 128 + 64


def scratch_bytes(v_dims: int, group: int) -> int:
    """What a lane needs: the above, states of 8 tokens of a group, and an output row of it."""
    return PART + 16 * group * part_bytes(v_dims) + group * v_dims * 4 + 4096


def part_rows(group: int) -> int:
    """Rows that the register tiles of one token's group write: `group` and what pads the last."""
    rest = group % 8
    return group - rest + next(tile for tile in (0, 2, 4, 8) if tile >= rest)


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
def score(tile, task, args, kv, q, q_stride, scales, s_stride, begin, pages, out):
    """Rows of Q against `pages` pages of K from page `begin` on: (rows, SPAN) f32 at `out`."""
    dims, pool = arg(args, K_DIMS), head_pool(args, kv)
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
    """One row of scores: capped, what may not be seen pushed down; the highest of them."""
    low = first_position(position, arg(args, WINDOW)) - first
    seen, top, end = position + 1 - first, splat_f32(np.float32(LOW)), pages * PAGE
    cap = get_f32(args + 8 * SOFTCAP)
    if cap > np.float32(0):  # cap * tanh(v / cap)
        one = splat_f32(np.float32(1))
        for c in range(0, end, LANES):
            e = exp(load_f32(scores + 4 * c) * splat_f32(np.float32(2) / cap))
            store_f32(scores + 4 * c, (e - one) / (e + one) * splat_f32(cap))
    if low > 0 or seen < end:
        for c in range(0, end, LANES):
            v = load_f32(scores + 4 * c)
            store_f32(scores + 4 * c, lanes_between(v, low - c, seen - c, np.float32(10 * LOW)))
    for c in range(0, end, LANES):
        top = maximum(top, load_f32(scores + 4 * c))
    return peak(top)


@inline
def soften(scores, scales, end, highest, part):
    """e**(score - highest), summed up, then times the scale of V; the largest of those."""
    shift, whole = splat_f32(highest), splat_f32(np.float32(0))
    most = whole
    for c in range(0, 4 * end, 4 * LANES):
        weight = exp(load_f32(scores + c) - shift)
        whole = whole + weight
        weight = weight * load_f32(scales + c)
        store_f32(scores + c, weight)
        most = maximum(most, weight)
    put_f32(part + TOTAL, total(whole))
    put_f32(part + PEAK, highest)
    return peak(most)


@inline
def weights_of(task, args, kv, begin, pages, count, step, memory, out):
    """Scores of `count` rows to 16-bit weights, their scales, sums and peaks. Row after row in
    each pass, so that the rows' chains of dependent steps overlap."""
    pool, dims, end = head_pool(args, kv), (arg(args, V_DIMS) + 31) // 32 * 32, pages * PAGE
    group_bytes, k_size = arg(args, GROUP_BYTES), arg(args, K_BYTES)
    for p in range(pages):
        v = v_scales(pool, entry(task, begin + p), group_bytes, k_size, dims)
        for c in range(0, 4 * PAGE, 4 * LANES):
            store_f32(memory + V_SCALES + p * 4 * PAGE + c, load_f32(v + c))
    size, position = arg(args, PART_BYTES), arg(task, TASK_POSITION)
    for row in range(count):
        scores, at = memory + row * ROW_BYTES, position + step * row
        put_f32(memory + PEAKS + 4 * row, hide(args, scores, begin * PAGE, pages, at))
    for row in range(count):
        highest, part = get_f32(memory + PEAKS + 4 * row), out + (row + 1) * size - 64
        most = soften(memory + row * ROW_BYTES, memory + V_SCALES, end, highest, part)
        put_f32(memory + PEAKS + 4 * row, most)
    for row in range(count):
        largest, level = get_f32(memory + PEAKS + 4 * row), np.float32(V_LEVEL)
        inverse = splat_f32(level / largest if largest > np.float32(1e-37) else np.float32(0))
        scores, halves = memory + row * ROW_BYTES, memory + WEIGHTS + row * SPAN * 2
        for c in range(0, end, LANES):
            store_low_halves(halves + 2 * c, to_i32(load_f32(scores + 4 * c) * inverse))
        put_f32(memory + WEIGHT_SCALES + 4 * row, largest / level)


@inline
def weigh(tile, task, args, kv, begin, pages, memory, out):
    """16-bit weights times pages of V: the sums of a part for each row, at `out`."""
    dims, pool, one = arg(args, V_DIMS), head_pool(args, kv), splat_f32(np.float32(1))
    group_bytes, k_size, size = arg(args, GROUP_BYTES), arg(args, K_BYTES), arg(args, PART_BYTES)
    for band in range((dims + 31) // 32 * 32 // BAND):
        i, j, to = int_zeros_like(tile), int_zeros_like(tile), out + band * BAND * 4
        for p in range(pages):
            v = v_page(pool, entry(task, begin + p), group_bytes, k_size)
            v += band * GROUP * BAND_BYTES
            for pair in range(PAGE // 2):
                x = memory + WEIGHTS + (p * PAGE // 2 + pair) * 4
                i = dot_pairs(i, load_i32(v + pair * 4 * BAND), x, SPAN * 2)
                if VECTORS == 2:
                    j = dot_pairs(j, load_i32(v + pair * 4 * BAND + BYTES), x, SPAN * 2)
        store_rows(scale_rows(i, one, memory + WEIGHT_SCALES, 4), to, size)
        if VECTORS == 2:
            store_rows(scale_rows(j, one, memory + WEIGHT_SCALES, 4), to + BYTES, size)


@inline
def tile_span(tile, count, task, args, kv, q, q_stride, scales, s_stride, step, begin, memory, out):
    """`count` rows, their positions `step` apart, against the span from page `begin` on."""
    last = arg(task, TASK_POSITION) + step * (count - 1)
    pages = min(PAGES, last // PAGE + 1 - begin)
    score(tile, task, args, kv, q, q_stride, scales, s_stride, begin, pages, memory)
    weights_of(task, args, kv, begin, pages, count, step, memory, out)
    weigh(tile, task, args, kv, begin, pages, memory, out)


@inline
def rows_span(count, task, args, kv, q, q_stride, scales, s_stride, step, begin, memory, out):
    """The same with the smallest register tile that holds the rows, 8 at the most."""
    rows = (count, task, args, kv, q, q_stride, scales, s_stride, step, begin, memory, out)
    if count > 4:
        tile_span(zeros(8), *rows)
    elif count > 2:
        tile_span(zeros(4), *rows)
    else:
        tile_span(zeros(2), *rows)


@inline
def span(task, args, kv, begin, memory, out):
    """All rows of a task, of one KV head, against one span: parts at `out`, head after head."""
    dims, heads, count = arg(args, K_DIMS), arg(args, HEADS), arg(task, TASK_COUNT)
    group, row = heads // arg(args, KV_HEADS), arg(task, TASK_ROW)
    q = arg(args, Q) + (row * heads + kv * group) * 2 * dims
    scales = arg(args, Q_SCALES) + (row * heads + kv * group) * 4
    if count == 1:
        for h in range(0, group, 8):
            rows_span(
                min(group - h, 8), task, args, kv, q + h * 2 * dims, 2 * dims, scales + 4 * h, 4,
                0, begin, memory, out + h * arg(args, PART_BYTES),
            )  # fmt: skip
    else:
        for h in range(group):
            rows_span(
                count, task, args, kv, q + h * 2 * dims, heads * 2 * dims, scales + 4 * h,
                4 * heads, 1, begin, memory, out + h * count * arg(args, PART_BYTES),
            )  # fmt: skip


@inline
def copy(source, target, size):
    """Copy vectors."""
    for c in range(0, size, 4 * LANES):
        store_f32(target + c, load_f32(source + c))


@inline
def merge(part, state, rows, size, first):
    """Add the parts of a span to the states of `rows` rows. What sees nothing changes no bit."""
    if first:
        copy(part, state, rows * size)
        return
    sums = size - 64
    for row in range(rows):
        r = row * size
        old, here = get_f32(state + r + sums + PEAK), get_f32(part + r + sums + PEAK)
        new = max(old, here)
        a, b = exp(splat_f32(old - new)), exp(splat_f32(here - new))
        for c in range(r, r + sums + 4 * LANES, 4 * LANES):
            store_f32(state + c, fma(load_f32(state + c), a, load_f32(part + c) * b))
        put_f32(state + r + sums + PEAK, new)


@inline
def divide(state, v_dims, size, out):
    """The answer of one row: its sums over its total, `v_dims` f32."""
    inverse = np.float32(1) / get_f32(state + size - 64 + TOTAL)
    whole = v_dims // LANES * LANES
    for c in range(0, 4 * whole, 4 * LANES):
        store_f32(out + c, load_f32(state + c) * splat_f32(inverse))
    for c in range(4 * whole, 4 * v_dims, 4):
        put_f32(out + c, get_f32(state + c) * inverse)


@inline
def emit(args, row, kv, memory, single, lane):
    """A group's answers for one token, side by side at `memory`, to panels or rows."""
    width = arg(args, HEADS) // arg(args, KV_HEADS) * arg(args, V_DIMS)
    if arg(args, ROWS_OUT):
        y = arg(args, ROWS_OUT) + row * arg(args, OUT_STRIDE) + kv * width * 4
        for c in range(0, 4 * width, 4):
            put_f32(y + c, get_f32(memory + c))
    if arg(args, PANELS_OUT):
        first, blocks = kv * width // 32, arg(args, HEADS) * arg(args, V_DIMS) // 32
        for k in range(width // 32):
            if single:
                panel = arg(args, LANE_OUT) + lane * arg(args, LANE_BYTES)
                quantise(memory + 128 * k, panel + (first + k) * SLOT_BYTES, 0, 1)
            else:
                panel = arg(args, PANELS_OUT) + row // PANEL * blocks * SLOT_BYTES * PANEL
                block = panel + (first + k) * SLOT_BYTES * PANEL
                quantise(memory + 128 * k, block, row % PANEL, PANEL)


@kernel(4)
def attend(args, begin, end, lane):
    """Units are (task, KV head). A task of one span leaves its parts to `merge_spans`; another
    goes through its whole context and emits its rows."""
    batch, memory, size = arg(args, BATCH), scratch_of(args, lane), arg(args, PART_BYTES)
    kv_heads = arg(args, KV_HEADS)
    group, part = arg(args, HEADS) // kv_heads, memory + PART
    state = part + 8 * group * size
    for unit in range(begin, end):
        task, kv = arg(batch, TASK_LIST) + unit // kv_heads * TASK_BYTES, unit % kv_heads
        position, count = arg(task, TASK_POSITION), arg(task, TASK_COUNT)
        low = first_position(position, arg(args, WINDOW)) // SPAN
        if arg(batch, SPLIT):
            if arg(task, TASK_SPAN) >= low:
                out = arg(args, PARTS) + unit * arg(args, PART_ROWS) * size
                span(task, args, kv, arg(task, TASK_SPAN) * PAGES, memory, out)
            continue
        for s in range(low, (position + count - 1) // SPAN + 1):
            span(task, args, kv, s * PAGES, memory, part)
            merge(part, state, group * count, size, s == low)
        for t in range(count):
            row = arg(task, TASK_ROW) + t
            if arg(args, LAST):
                row = get_i64(arg(batch, WANTED_INDEX) + 8 * row)
            if row >= 0:
                for h in range(group):
                    v_dims = arg(args, V_DIMS)
                    divide(state + (h * count + t) * size, v_dims, size, part + h * v_dims * 4)
                emit(args, row, kv, part, False, lane)


@kernel(4)
def merge_spans(args, begin, end, lane):
    """A row a unit: the parts of its spans, merged and emitted. A single token's answer goes
    to each lane's own copy."""
    batch, memory, size = arg(args, BATCH), scratch_of(args, lane), arg(args, PART_BYTES)
    kv_heads, single = arg(args, KV_HEADS), is_single(args)
    group = arg(args, HEADS) // kv_heads
    out = memory + group * size
    for t in range(begin, end):
        row = t
        if arg(args, LAST):
            row = get_i64(arg(batch, WANTED_INDEX) + 8 * t)
        if row < 0:
            continue
        position = np.int64(get_i32(arg(batch, POSITIONS) + 4 * t))
        first = get_i64(arg(batch, FIRST_TASKS) + 8 * t)
        low = first_position(position, arg(args, WINDOW)) // SPAN
        for kv in range(kv_heads):
            for s in range(low, position // SPAN + 1):
                unit = (first + s) * kv_heads + kv
                part = arg(args, PARTS) + unit * arg(args, PART_ROWS) * size
                merge(part, memory, group, size, s == low)
            for h in range(group):
                v_dims = arg(args, V_DIMS)
                divide(memory + h * size, v_dims, size, out + h * v_dims * 4)
            emit(args, row, kv, out, single, lane)
