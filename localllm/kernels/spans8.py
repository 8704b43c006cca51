"""The same as `spans` for int8 pages: what differs is how scores and sums of V are made."""

import numpy as np

from localllm.batch import PAGE
from localllm.kernels.fields import SPAN, arg
from localllm.kernels.pages import BAND, GROUP, VECTORS, k_page
from localllm.kernels.pages8 import BAND_BYTES, BLOCK, v_page
from localllm.kernels.spans import ask, ask_for_next, scale_weights, span_kernels
from localllm.kernels.states import (
    FIRST,
    FIRST_Q,
    FIRST_SCALE,
    GROUP_BYTES,
    INVERSE,
    K_BYTES,
    K_DIMS,
    LARGEST,
    NEW,
    NUMBERS,
    OLD,
    Q_STRIDE,
    ROW_BYTES,
    SCALE_STRIDE,
    SUMS,
    WEIGHT_SCALES,
    WEIGHTS,
    entry,
    head_pool,
    padded_dims,
)
from quant.later import inline
from quant.simd import (
    BYTES,
    LANES,
    get_f32,
    load_bf16,
    load_byte_pairs,
    load_bytes,
    load_f32,
    maximum,
    splat_f32,
    store_f32,
    store_low_bytes,
    to_i32,
)
from quant.tiles import (
    dot_pairs,
    dot_unsigned,
    fma_int_rows,
    fma_int_tiles,
    int_zeros_like,
    merge_rows,
    multiply_rows,
    rows_at,
    store_peaks,
    store_rows,
    zeros_like,
)

LEVEL = 255  # the largest weight of a row and page


@inline
def score8(tile, task, args, kv, work, begin, pages, out):
    """Rows of Q against `pages` pages of K from page `begin` on: (rows, SPAN) f32 at `out`."""
    pool, dims = head_pool(args, kv), (arg(args, K_DIMS) + 31) // 32 * 32
    group_bytes, k_size = arg(args, GROUP_BYTES), arg(args, K_BYTES)
    q, stride = arg(work, FIRST_Q), arg(work, Q_STRIDE)
    for p in range(pages):
        k = k_page(pool, entry(task, begin + p), group_bytes, k_size)
        v = v_page(pool, entry(task, begin + p), group_bytes, k_size)
        for band in range(padded_dims(args) // BAND):
            ask(v + band * GROUP * BAND_BYTES, BAND_BYTES)
        for c in range(0, PAGE * 4, 4 * LANES):
            s = zeros_like(tile)
            for block in range(dims // BLOCK):
                i = int_zeros_like(tile)
                for pair in range(BLOCK // 2 * block, BLOCK // 2 * (block + 1)):
                    pairs = load_byte_pairs(k + pair * PAGE * 2 + c // 2)
                    i = dot_pairs(i, pairs, q + 4 * pair, stride)
                s = fma_int_tiles(s, i, load_bf16(k + (dims + block * 2) * PAGE + c // 2))
            s = multiply_rows(s, arg(work, FIRST_SCALE), arg(work, SCALE_STRIDE))
            store_rows(s, out + p * PAGE * 4 + c, ROW_BYTES)


@inline
def quantise_weights8(tile, count, pages, memory):
    """Weights to 8 bits, of each row and page as their largest allows."""
    for page in range(pages):
        begin, end = page * PAGE, (page + 1) * PAGE
        for row in range(count):
            scores = memory + row * ROW_BYTES
            largest = load_f32(scores + 4 * begin)
            for c in range(begin + LANES, end, LANES):
                largest = maximum(largest, load_f32(scores + 4 * c))
            store_f32(memory + FIRST + row * BYTES, largest)
        store_peaks(memory + LARGEST, rows_at(tile, memory + FIRST, BYTES))
        scale_weights(memory, np.float32(LEVEL), memory + WEIGHT_SCALES + NUMBERS * page)
        for row in range(count):
            inverse = splat_f32(get_f32(memory + INVERSE + 4 * row))
            scores, whole = memory + row * ROW_BYTES, memory + WEIGHTS + row * SPAN
            for c in range(begin, end, LANES):
                store_low_bytes(whole + c, to_i32(load_f32(scores + 4 * c) * inverse))


@inline
def weigh8(tile, task, args, kv, begin, pages, memory, state):
    """8-bit weights times pages of V, merged into the sums of a state."""
    dims, pool = padded_dims(args), head_pool(args, kv)
    group_bytes, k_size = arg(args, GROUP_BYTES), arg(args, K_BYTES)
    for vector in range(dims // BAND * VECTORS):
        band, within = vector // VECTORS, vector % VECTORS * BYTES
        sums = zeros_like(tile)
        for p in range(pages):
            i = int_zeros_like(tile)
            v = v_page(pool, entry(task, begin + p), group_bytes, k_size)
            v += band * GROUP * BAND_BYTES + within
            ask_for_next(memory, vector * pages + p, dims // BAND * VECTORS * pages)
            for four in range(PAGE // 4):
                weights = memory + WEIGHTS + p * PAGE + 4 * four
                i = dot_unsigned(i, load_bytes(v + four * 4 * BAND), weights, SPAN)
            sums = fma_int_rows(sums, i, memory + WEIGHT_SCALES + NUMBERS * p, 4)
        to = state + SUMS + vector * BYTES
        merge_rows(sums, to, 4 * dims, memory + OLD, memory + NEW)


SPANS8 = span_kernels(
    "span_int8_", __name__, score=score8, quantise_weights=quantise_weights8, weigh=weigh8
)
