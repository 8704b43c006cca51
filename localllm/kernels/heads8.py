"""The same as `heads` for int8 pages: K is centred, scaled and rotated, Q scaled and rotated."""

from localllm.batch import PAGE
from localllm.kernels.fields import arg
from localllm.kernels.heads import (
    CENTRES,
    EPSILON,
    FACTORS,
    FEEDBACK,
    GROUP_BYTES,
    HEAD_BYTES,
    HEADS,
    INVERSES,
    K_BYTES,
    K_DIMS,
    K_GAIN,
    KV_HEADS,
    LEVEL,
    POOL,
    Q_GAIN,
    Q_OUT,
    Q_SCALE,
    Q_SCALES,
    ROTATION,
    STRIDE_K,
    STRIDE_Q,
    STRIDE_V,
    V_DIMS,
    V_ROTATION,
    K,
    Q,
    V,
    each_head,
    load_head,
    turn,
)
from localllm.kernels.pages import k_page, to_halves, v_scales
from localllm.kernels.pages8 import store_k, store_v, v_page
from localllm.kernels.rotation import rotate
from quant.jit import Kernel
from quant.later import inline, stamp
from quant.simd import LANES, get_f32, load_f32, put_f32, stack, store_f32


@inline
def shape(x, centre, factor, dims):
    """(x - centre) * factor, in place; a `centre` of 0 is none."""
    for c in range(0, 4 * dims, 4 * LANES):
        v = load_f32(x + c)
        if centre:
            v = v - load_f32(centre + c)
        store_f32(x + c, v * load_f32(factor + c))


@inline
def prepare_head8(args, t, kv, position, page):
    """One KV head of one token: its group of Q to 16 bits, K and V to their page."""
    dims, epsilon, head = arg(args, K_DIMS), get_f32(args + 8 * EPSILON), stack(128)
    heads, kv_heads, padded = arg(args, HEADS), arg(args, KV_HEADS), (dims + 31) // 32 * 32
    pool, group_bytes = arg(args, POOL) + kv * arg(args, HEAD_BYTES), arg(args, GROUP_BYTES)
    k_size, slot, group = arg(args, K_BYTES), position % PAGE, heads // kv_heads
    for n in range(group + 1):  # K is the last
        h, is_q = kv * group + n, n < group
        x = arg(args, Q) + t * arg(args, STRIDE_Q) + h * 4 * dims
        gain, centre, factor = arg(args, Q_GAIN), 0, arg(args, FACTORS) + kv * 4 * padded
        if not is_q:
            x = arg(args, K) + t * arg(args, STRIDE_K) + kv * 4 * dims
            gain, centre = arg(args, K_GAIN), arg(args, CENTRES) + kv * 4 * padded
            factor = arg(args, INVERSES) + kv * 4 * padded
        load_head(x, dims, gain, epsilon, head)
        turn(head, args, position)
        shape(head, centre, factor, padded)
        rotate(head, padded, arg(args, ROTATION))
        if is_q:
            at = t * heads + h
            scale = to_halves(head, dims, arg(args, LEVEL), arg(args, Q_OUT) + at * 2 * dims)
            put_f32(arg(args, Q_SCALES) + 4 * at, scale * get_f32(args + 8 * Q_SCALE))
        else:
            feedback = arg(args, FEEDBACK) + kv * 4 * padded * padded
            store_k(head, padded, k_page(pool, page, group_bytes, k_size), slot, feedback)
    v_dims = arg(args, V_DIMS)
    wide = (v_dims + 31) // 32 * 32
    load_head(arg(args, V) + t * arg(args, STRIDE_V) + kv * 4 * v_dims, v_dims, 0, epsilon, head)
    rotate(head, wide, arg(args, V_ROTATION))
    scales = v_scales(pool, page, group_bytes, arg(args, HEAD_BYTES))
    store_v(head, wide, v_page(pool, page, group_bytes, k_size), scales, slot)


heads8 = Kernel(stamp(each_head, "heads8", prepare_head=prepare_head8), 4, __name__)
