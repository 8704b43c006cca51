"""Q4_K: 256 weights in 144 bytes.   [d f16][dmin f16][12 bytes of scales and minima][128 nibbles]

w = d * s * q - dmin * m, with a 6-bit s and m for each 32 weights. Nibbles: four runs of 32 bytes,
each the low nibbles of 32 weights and the high ones of the next 32.
Tile: LANES d, LANES dmin, the 12 bytes for LANES rows, then 8 x 4 vectors as Q4_0 has them.
"""

import numpy as np

from quant.format import bytes_apart, columns, halves_apart, integer_format
from quant.later import inline
from quant.nibbles import byte
from quant.products import with_minima
from quant.simd import BYTES, HALVES, bits, get_f16, load_bytes, stack, store_bytes
from quant.sums import fours

BLOCK = np.dtype([("d", "<f2"), ("dmin", "<f2"), ("s", "u1", 12), ("q", "u1", (4, 32))])


def scales_of(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(n, 12) u8 -> scales (n, 8) and minima (n, 8) of 0 to 63."""
    a, b, c = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([a & 63, c & 15 | (a >> 6) << 4], 1)
    return scales, np.concatenate([b & 63, c >> 4 | (b >> 6) << 4], 1)


def scaled(block: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Blocks with d, dmin and s, and their (n, 8, 32) weights -> (n, 256) f32."""
    scales, minima = scales_of(block["s"])
    d = block["d"].astype("f4")[:, None] * scales
    least = block["dmin"].astype("f4")[:, None] * minima
    return (d[..., None] * q - least[..., None]).reshape(-1, 256)


def nibbles(q: np.ndarray) -> np.ndarray:
    """(n, 4, 32) u8 -> (n, 8, 32) u8 of 0 to 15."""
    return np.stack([q & 15, q >> 4], 2).reshape(-1, 8, 32)


def unpack(blocks: np.ndarray) -> np.ndarray:
    """(n, 144) u8 -> (n, 256) f32."""
    b = np.ascontiguousarray(blocks).view(BLOCK)[:, 0]
    return scaled(b, nibbles(b["q"]))


@inline
def scaled_weight(block, j, q):
    """A weight of run j, from its whole number."""
    packed = block + 4 + j % 4
    low, least, high = byte(packed), byte(packed + 4), byte(packed + 8)
    if j < 4:
        s, m = low & 63, least & 63
    else:
        s, m = high & 15 | (low >> 6) << 4, high >> 4 | (least >> 6) << 4
    scale, minimum = get_f16(block) * np.float32(s), get_f16(block + 2) * np.float32(m)
    return scale * np.float32(q) - minimum


@inline
def weight(block, i):
    """One weight of a block."""
    j = i // 32
    q = byte(block + 16 + 32 * (j // 2) + i % 32) >> 4 * (j % 2) & 15
    return scaled_weight(block, j, q)


@inline
def pack_scales(q, target):
    """d, dmin and the 12 bytes, from the first four columns at q."""
    halves_apart(load_bytes(q), target)
    for k in range(3):
        bytes_apart(load_bytes(q + BYTES + BYTES * k), target + 2 * HALVES + BYTES * k)


@inline
def tile(source, stride, target):
    """One block of LANES rows."""
    q = stack(36)
    columns(source, stride, 36, q)
    pack_scales(q, target)
    q, target = q + 4 * BYTES, target + 2 * HALVES + 3 * BYTES
    for j in range(4):
        for g in range(4):
            k = 8 * j + g
            a, b = load_bytes(q + BYTES * k), load_bytes(q + BYTES * (k + 4))
            store_bytes(target + BYTES * k, bits(a, 0, 15) | bits(b, 4, 240))
            store_bytes(target + BYTES * (k + 4), bits(a, -4, 15) | bits(b, 0, 240))


FORMAT = integer_format(
    "Q4_K", __name__, unpack, with_minima, tile, weight, integers=fours, WEIGHT_BYTES=4 * BYTES
)
