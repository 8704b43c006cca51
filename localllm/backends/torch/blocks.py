"""Blocks of ggml's formats to numbers by tensor operations, on whatever device they lie.

Every function takes (n, bytes) u8 and gives (n, weights) of `dtype`. The layouts are told in
`quant.formats`, whose NumPy twins these are held against.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Unpack = Callable[[Tensor, torch.dtype], Tensor]


def halves(b: Tensor, at: int) -> Tensor:
    """(n, 1) f32: the f16 at byte `at` of every block."""
    return b[:, at : at + 2].view(torch.float16).float()


def shifted(b: Tensor, shifts: range) -> Tensor:
    """(n, k, m) u8: b (n, m) shifted right by each of k numbers of bits."""
    by = torch.arange(shifts.start, shifts.stop, shifts.step, dtype=torch.uint8, device=b.device)
    return b[:, None, :] >> by[:, None]


def nibbles(b: Tensor) -> Tensor:
    """(n, m) u8 -> (n, 2 m) u8: all the low halves, then all the high ones."""
    return torch.cat([b & 15, b >> 4], 1)


def fifths(q: Tensor, high: Tensor) -> Tensor:
    """(n, 16) u8 nibbles and (n, 4) u8 of fifth bits -> (n, 32) u8 of 0 to 31."""
    bits = shifted(high, range(8)).transpose(1, 2).reshape(-1, 32) & 1
    return nibbles(q) | bits << 4


def affine(q: Tensor, scale: Tensor, least: Tensor | float, dtype: torch.dtype) -> Tensor:
    """q * scale + least in `dtype`; scale and least f32, one for each row of q."""
    least = least.to(dtype) if isinstance(least, Tensor) else least
    return q.to(dtype) * scale.to(dtype) + least


def symmetric(q: Tensor, offset: int, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """(q - offset) * scale in `dtype`."""
    return (q.to(dtype) - offset) * scale.to(dtype)


def q4_0(b: Tensor, dtype: torch.dtype) -> Tensor:
    """[d f16][16 nibbles]"""
    return symmetric(nibbles(b[:, 2:]), 8, halves(b, 0), dtype)


def q4_1(b: Tensor, dtype: torch.dtype) -> Tensor:
    """[d f16][m f16][16 nibbles]"""
    return affine(nibbles(b[:, 4:]), halves(b, 0), halves(b, 2), dtype)


def q5_0(b: Tensor, dtype: torch.dtype) -> Tensor:
    """[d f16][fifth bits u32][16 nibbles]"""
    return symmetric(fifths(b[:, 6:], b[:, 2:6]), 16, halves(b, 0), dtype)


def q5_1(b: Tensor, dtype: torch.dtype) -> Tensor:
    """[d f16][m f16][fifth bits u32][16 nibbles]"""
    return affine(fifths(b[:, 8:], b[:, 4:8]), halves(b, 0), halves(b, 2), dtype)


def q8_0(b: Tensor, dtype: torch.dtype) -> Tensor:
    """[d f16][32 i8]"""
    return symmetric(b[:, 2:].view(torch.int8), 0, halves(b, 0), dtype)


def scales(b: Tensor) -> tuple[Tensor, Tensor]:
    """Scales and minima, (n, 8, 1) f32 each, of [d f16][dmin f16][12 bytes of 6-bit numbers]."""
    low, high, rest = b[:, 4:8], b[:, 8:12], b[:, 12:16]
    scale = torch.cat([low & 63, rest & 15 | (low >> 6) << 4], 1)
    least = torch.cat([high & 63, rest >> 4 | (high >> 6) << 4], 1)
    return (halves(b, 0) * scale)[..., None], (halves(b, 2) * -least.float())[..., None]


def runs(q: Tensor) -> Tensor:
    """(n, 128) u8 -> (n, 8, 32) u8: of each 32 bytes the low nibbles, then the high ones."""
    return shifted(q, range(0, 8, 4)).unflatten(2, (4, 32)).transpose(1, 2).flatten(1, 2) & 15


def q4_k(b: Tensor, dtype: torch.dtype) -> Tensor:
    """[d f16][dmin f16][12 bytes of scales][128 nibbles]"""
    return affine(runs(b[:, 16:]), *scales(b), dtype).flatten(1)


def q5_k(b: Tensor, dtype: torch.dtype) -> Tensor:
    """[d f16][dmin f16][12 bytes of scales][32 fifth bits][128 nibbles]"""
    q = runs(b[:, 48:]) | (shifted(b[:, 16:48], range(8)) & 1) << 4
    return affine(q, *scales(b), dtype).flatten(1)


def q6_k(b: Tensor, dtype: torch.dtype) -> Tensor:
    """[128 nibbles][64 x 2 high bits][16 scales i8][d f16]"""
    low = shifted(b[:, :128].reshape(-1, 64), range(0, 8, 4)) & 15  # (2 n, 2, 64)
    high = shifted(b[:, 128:192].reshape(-1, 32), range(0, 8, 2)) & 3  # (2 n, 4, 32)
    q = (low.reshape(-1, 4, 32) | high << 4).reshape(-1, 16, 16)
    scale = halves(b, 208) * b[:, 192:208].view(torch.int8)
    return symmetric(q, 32, scale[..., None], dtype).flatten(1)


def plain(kind: torch.dtype) -> Unpack:
    """Numbers that only need another type."""
    return lambda b, dtype: b.view(kind).to(dtype)


UNPACK: dict[str, Unpack] = {
    "F32": plain(torch.float32),
    "F16": plain(torch.float16),
    "BF16": plain(torch.bfloat16),
    "Q4_0": q4_0,
    "Q4_1": q4_1,
    "Q5_0": q5_0,
    "Q5_1": q5_1,
    "Q8_0": q8_0,
    "Q4_K": q4_k,
    "Q5_K": q5_k,
    "Q6_K": q6_k,
}
