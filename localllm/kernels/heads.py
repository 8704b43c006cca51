"""From rows of q, k and v to what attention reads: head norms, RoPE, 16-bit Q, K and V."""

import numpy as np

from localllm.batch import PAGE
from localllm.kernels.fields import BATCH, OWN, POSITIONS, TABLES, arg
from localllm.kernels.norm import square_sum
from localllm.kernels.pages import k_page, store_k, store_v, to_halves, v_page, v_scales
from quant.jit import Kernel
from quant.later import inline, stamp
from quant.simd import (
    LANES,
    fma,
    get_f32,
    get_i32,
    get_i64,
    load_f32,
    put_f32,
    splat_f32,
    stack,
    store_f32,
    swap_pairs,
)

(Q, K, V, STRIDE_Q, STRIDE_K, STRIDE_V, HEADS, KV_HEADS, K_DIMS, V_DIMS, Q_GAIN, K_GAIN, EPSILON,
 ROPE, ROPE_DIMS, ROPE_KIND, Q_OUT, Q_SCALES, Q_SCALE, LEVEL, POOL, GROUP_BYTES,
 HEAD_BYTES, K_BYTES, CENTRES, INVERSES, FACTORS, FEEDBACK, ROTATION,
 V_ROTATION) = range(OWN, OWN + 30)  # fmt: skip

NO_ROPE, NEIGHBOURS, HALVES = range(3)  # which dims turn together: 2i and 2i + 1, or i and i + n/2


@inline
def load_head(x, dims, gain, epsilon, out):
    """A head to `out`, zeros behind it, as it is or RMS-normed."""
    whole = dims // LANES * LANES
    for c in range(0, whole, LANES):
        store_f32(out + 4 * c, load_f32(x + 4 * c))
    for c in range(whole, (dims + 31) // 32 * 32):
        put_f32(out + 4 * c, get_f32(x + 4 * c) if c < dims else np.float32(0))
    if gain:
        padded = (dims + 31) // 32 * 32
        mean = square_sum(out, padded) / np.float32(dims)
        factor = splat_f32(np.float32(1) / np.sqrt(mean + epsilon))
        for c in range(0, 4 * padded, 4 * LANES):
            store_f32(out + c, load_f32(out + c) * factor * load_f32(gain + c))


@inline
def rope(x, turns, dims, kind):
    """Turn pairs of the first `dims` of a head; `turns` are cosines, then sines, of `dims` / 2."""
    half = dims // 2
    sines = turns + 4 * half
    if kind == HALVES and half % LANES == 0:
        for c in range(0, 4 * half, 4 * LANES):
            a, b = load_f32(x + c), load_f32(x + 4 * half + c)
            cos, sin = load_f32(turns + c), load_f32(sines + c)
            store_f32(x + c, a * cos - b * sin)
            store_f32(x + 4 * half + c, b * cos + a * sin)
    else:
        apart = half if kind == HALVES else 1
        step = 1 if kind == HALVES else 2
        for i in range(half):
            p, q = x + 4 * step * i, x + 4 * (step * i + apart)
            a, b = get_f32(p), get_f32(q)
            cos, sin = get_f32(turns + 4 * i), get_f32(sines + 4 * i)
            put_f32(p, a * cos - b * sin)
            put_f32(q, b * cos + a * sin)


@inline
def rope_neighbours(x, turns, dims):
    """The same for neighbours, `turns` being cosines of each dim, then sines with their signs."""
    for c in range(0, 4 * dims, 4 * LANES):
        v = load_f32(x + c)
        turned = swap_pairs(v) * load_f32(turns + 4 * dims + c)
        store_f32(x + c, fma(v, load_f32(turns + c), turned))


@inline
def turn(x, args, position):
    """RoPE as this op has it."""
    kind, dims = arg(args, ROPE_KIND), arg(args, ROPE_DIMS)
    if kind == NEIGHBOURS and dims % LANES == 0:
        rope_neighbours(x, arg(args, ROPE) + position * 8 * dims, dims)
    elif kind:
        rope(x, arg(args, ROPE) + position * 4 * dims, dims, kind)


@inline
def prepare_head(args, t, kv, position, page):
    """One KV head of one token: its group of Q to 16 bits, K and V to their page."""
    dims, epsilon, level = arg(args, K_DIMS), get_f32(args + 8 * EPSILON), arg(args, LEVEL)
    heads, kv_heads, head, halves = arg(args, HEADS), arg(args, KV_HEADS), stack(128), stack(128)
    pool, group_bytes = arg(args, POOL) + kv * arg(args, HEAD_BYTES), arg(args, GROUP_BYTES)
    k_size, slot, group = arg(args, K_BYTES), position % PAGE, heads // kv_heads
    for n in range(group + 1):  # K is the last
        h, is_q = kv * group + n, n < group
        x = arg(args, Q) + t * arg(args, STRIDE_Q) + h * 4 * dims
        out, gain = arg(args, Q_OUT) + (t * heads + h) * 2 * dims, arg(args, Q_GAIN)
        if not is_q:
            x = arg(args, K) + t * arg(args, STRIDE_K) + kv * 4 * dims
            out, gain = halves, arg(args, K_GAIN)
        load_head(x, dims, gain, epsilon, head)
        turn(head, args, position)
        scale = to_halves(head, dims, level, out)
        if is_q:
            scale *= get_f32(args + 8 * Q_SCALE)
            put_f32(arg(args, Q_SCALES) + 4 * (t * heads + h), scale)
        else:
            store_k(halves, scale, dims, k_page(pool, page, group_bytes, k_size), slot)
    v_dims = arg(args, V_DIMS)
    load_head(arg(args, V) + t * arg(args, STRIDE_V) + kv * 4 * v_dims, v_dims, 0, epsilon, head)
    padded = (v_dims + 31) // 32 * 32
    scales = v_scales(pool, page, group_bytes, arg(args, HEAD_BYTES))
    store_v(head, padded, v_page(pool, page, group_bytes, k_size), scales, slot)


def each_head(args, begin, end, lane):
    """Units are (token, KV head)."""
    batch, kv_heads = arg(args, BATCH), arg(args, KV_HEADS)
    for unit in range(begin, end):
        kv, t = unit % kv_heads, unit // kv_heads
        position = np.int64(get_i32(arg(batch, POSITIONS) + 4 * t))
        table = get_i64(arg(batch, TABLES) + 8 * t)
        page = np.int64(get_i32(table + position // PAGE * 4))
        prepare_head(args, t, kv, position, page)


heads = Kernel(stamp(each_head, "heads"), 4, __name__)
