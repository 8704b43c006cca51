"""Rows of Q against one span of pages: scores, weights, and sums of V merged into a state.

A register tile is 2, 4 or 8 rows that see the same pages: 8 tokens of one head, or the heads of
one token that share a KV head. Q . K and P . V are pairs of 16-bit products. Each row's bits
depend on its own numbers only, whatever stands beside it.
"""

import numpy as np

from localllm.batch import PAGE
from localllm.kernels.fields import SPAN, TASK_POSITION, arg
from localllm.kernels.pages import BAND, BAND_BYTES, GROUP, V_LEVEL, VECTORS, k_page, v_page
from localllm.kernels.states import (
    BEGIN,
    COUNT,
    FIRST,
    FIRST_Q,
    FIRST_SCALE,
    GROUP_BYTES,
    HERE,
    INVERSE,
    K_BYTES,
    K_DIMS,
    KV,
    LARGEST,
    LOG2_E,
    LOW,
    NEW,
    NEXT,
    NEXT_BYTES,
    OLD,
    PAGES,
    Q_STRIDE,
    ROW_BYTES,
    SCALE_STRIDE,
    SECOND,
    SOFTCAP,
    STEP,
    SUMS,
    TASK,
    TINY,
    V_SCALES,
    WEIGHT_SCALES,
    WEIGHTS,
    WHOLE,
    WINDOW,
    WORK,
    entry,
    first_position,
    head_pool,
    merge_numbers,
    padded_dims,
)
from quant.elementary import exp2
from quant.jit import Kernel
from quant.later import inline, stamp
from quant.simd import (
    BYTES,
    LANES,
    get_f32,
    lanes_between,
    load_f32,
    load_i32,
    maximum,
    minimum,
    prefetch_early,
    splat_f32,
    store_f32,
    store_low_halves,
    to_i32,
    zero_below,
)
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

LINES = BAND_BYTES // 64  # of cache, a page's part of a band
ROWS = 8  # of the register tile; each kernel has its own


@inline
def ask(address, size):
    """Ask for bytes that will be read soon, as far as the second cache."""
    for line in range(0, size, 64):
        prefetch_early(address + line)


@inline
def ask_for_next(memory, part, parts):
    """Ask for one of so many parts of the pages of K that come after this span."""
    size = arg(memory + WORK, NEXT_BYTES) // parts
    ask(arg(memory + WORK, NEXT) + part * size, size)


@inline
def score(tile, task, args, kv, work, begin, pages, out):
    """Rows of Q against `pages` pages of K from page `begin` on: (rows, SPAN) f32 at `out`."""
    dims, pool = arg(args, K_DIMS), head_pool(args, kv)
    q, q_stride = arg(work, FIRST_Q), arg(work, Q_STRIDE)
    scales, s_stride = arg(work, FIRST_SCALE), arg(work, SCALE_STRIDE)
    group_bytes, k_size = arg(args, GROUP_BYTES), arg(args, K_BYTES)
    for p in range(pages):
        k = k_page(pool, entry(task, begin + p), group_bytes, k_size)
        v = v_page(pool, entry(task, begin + p), group_bytes, k_size)
        for c in range(0, PAGE * 4, 4 * LANES):
            i = int_zeros_like(tile)
            for pair in range(dims // 2):  # as many lines of V as pairs of dims of K
                prefetch_early(v + pair // LINES * GROUP * BAND_BYTES + pair % LINES * 64)
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
def scale_weights(memory, level, scales):
    """From the largest weights of 8 rows: what makes them whole numbers up to `level`, and back."""
    for c in range(0, 32, 4 * LANES):
        largest = load_f32(memory + LARGEST + c)
        inverse = zero_below(splat_f32(level) / largest, largest, np.float32(TINY))
        store_f32(memory + INVERSE + c, inverse)
        store_f32(scales + c, largest * splat_f32(np.float32(1) / level))


@inline
def quantise_weights(tile, count, pages, memory):
    """Weights to 16 bits, of each row as its largest allows."""
    scale_weights(memory, np.float32(V_LEVEL), memory + WEIGHT_SCALES)
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
            ask_for_next(memory, band * pages + p, dims // BAND * pages)
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
    quantise_weights(tile, count, pages, memory)
    weigh(tile, task, args, kv, begin, pages, memory, state)


def span_kernels(name: str, home: str, **helpers) -> dict[int, Kernel]:
    """The kernels of register tiles of 2, 4 and 8 rows; `attend` calls them by their addresses."""
    return {
        rows: Kernel(stamp(rows_span, f"{name}{rows}", ROWS=rows, **helpers), 4, home)
        for rows in (2, 4, 8)
    }


SPANS = span_kernels("span", __name__)
