"""Triton kernels where torch's own calls would move too much memory: products of a few rows
straight from the file's blocks, and the unpacking of a matrix in one pass.

What a format is, is one function: which bytes hold the weights of some columns. It is held against
`blocks` in Triton's interpreter, without a GPU.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from quant.types import by_name

COLUMNS, ROWS = 256, 4  # of a tile that one program takes at a time
DTYPES = {torch.float16: tl.float16, torch.float32: tl.float32}

# In all of these: b points at bytes, h at the same memory as f16; at is the byte where a block
# begins, (rows, columns) i64; c the column within it; ok masks what lies outside.


@triton.jit
def byte(b, at, ok):
    """Bytes as i32."""
    return tl.load(b + at, mask=ok, other=0).to(tl.int32)


@triton.jit
def half(h, at, ok):
    """The f16 at an even byte, as f32."""
    return tl.load(h + at // 2, mask=ok, other=0).to(tl.float32)


@triton.jit
def signed(b, at, ok):
    """Bytes as signed numbers."""
    return tl.load(b + at, mask=ok, other=0).to(tl.int8, bitcast=True).to(tl.float32)


@triton.jit
def nibble(b, at, c, ok):
    """32 nibbles in 16 bytes: the low ones, then the high ones."""
    return (byte(b, at + c % 16, ok) >> c // 16 * 4) & 15


@triton.jit
def fifth(b, bits, at, c, ok):
    """32 numbers of 5 bits: a bit each in 4 bytes at `bits`, and nibbles at `at`."""
    top = (byte(b, bits + c // 8, ok) >> c % 8) & 1
    return (nibble(b, at, c, ok) | top << 4).to(tl.float32)


@triton.jit
def q4_0(b, h, at, c, ok):
    return half(h, at, ok) * (nibble(b, at + 2, c, ok) - 8).to(tl.float32)


@triton.jit
def q4_1(b, h, at, c, ok):
    return half(h, at, ok) * nibble(b, at + 4, c, ok).to(tl.float32) + half(h, at + 2, ok)


@triton.jit
def q5_0(b, h, at, c, ok):
    return half(h, at, ok) * (fifth(b, at + 2, at + 6, c, ok) - 16)


@triton.jit
def q5_1(b, h, at, c, ok):
    return half(h, at, ok) * fifth(b, at + 4, at + 8, c, ok) + half(h, at + 2, ok)


@triton.jit
def q8_0(b, h, at, c, ok):
    return half(h, at, ok) * signed(b, at + 2 + c, ok)


@triton.jit
def by_scales(b, h, at, c, q, ok):
    """d * s * q - dmin * m, with 6-bit s and m for each 32 columns."""
    group = c // 32
    low = byte(b, at + 4 + group % 4, ok)
    high = byte(b, at + 8 + group % 4, ok)
    rest = byte(b, at + 12 + group % 4, ok)
    s = tl.where(group < 4, low & 63, (rest & 15) | (low >> 6) << 4)
    m = tl.where(group < 4, high & 63, (rest >> 4) | (high >> 6) << 4)
    scale, least = half(h, at, ok) * s.to(tl.float32), half(h, at + 2, ok) * m.to(tl.float32)
    return scale * q.to(tl.float32) - least


@triton.jit
def q4_k(b, h, at, c, ok):
    q = (byte(b, at + 16 + c // 64 * 32 + c % 32, ok) >> c // 32 % 2 * 4) & 15
    return by_scales(b, h, at, c, q, ok)


@triton.jit
def q5_k(b, h, at, c, ok):
    q = (byte(b, at + 48 + c // 64 * 32 + c % 32, ok) >> c // 32 % 2 * 4) & 15
    top = (byte(b, at + 16 + c % 32, ok) >> c // 32) & 1
    return by_scales(b, h, at, c, q | top << 4, ok)


@triton.jit
def q6_k(b, h, at, c, ok):
    part, i = c // 128, c % 128
    low = (byte(b, at + part * 64 + i % 64, ok) >> i // 64 * 4) & 15
    high = (byte(b, at + 128 + part * 32 + i % 32, ok) >> i // 32 * 2) & 3
    scale = half(h, at + 208, ok) * signed(b, at + 192 + c // 16, ok)
    return scale * ((low | high << 4) - 32).to(tl.float32)


FORMATS = {
    "Q4_0": q4_0,
    "Q4_1": q4_1,
    "Q5_0": q5_0,
    "Q5_1": q5_1,
    "Q8_0": q8_0,
    "Q4_K": q4_k,
    "Q5_K": q5_k,
    "Q6_K": q6_k,
}


@triton.jit
def _multiply(
    b, h, x, y, rows, columns, row_bytes, x_stride, y_stride, tokens,
    FORMAT: tl.constexpr, WEIGHTS: tl.constexpr, BYTES: tl.constexpr,
    R: tl.constexpr, C: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    """R rows of weights times up to T tokens: y (tokens, rows) f32 = x (tokens, columns) W^T."""
    r = tl.program_id(0) * R + tl.arange(0, R)
    t = tl.arange(0, T)
    sums = tl.zeros((T, R, C), tl.float32)
    for first in range(0, columns, C):
        c = first + tl.arange(0, C)
        ok = (r[:, None] < rows) & (c[None, :] < columns)
        at = r[:, None].to(tl.int64) * row_bytes + (c // WEIGHTS * BYTES)[None, :]
        w = FORMAT(b, h, at, (c % WEIGHTS)[None, :], ok)
        there = (t[:, None] < tokens) & (c[None, :] < columns)
        v = tl.load(x + t[:, None] * x_stride + c[None, :], mask=there, other=0)
        sums += w[None, :, :] * v[:, None, :]
    there = (t[:, None] < tokens) & (r[None, :] < rows)
    tl.store(y + t[:, None] * y_stride + r[None, :], tl.sum(sums, 2), mask=there)


@triton.jit
def _unpack(
    b, h, y, rows, columns, row_bytes,
    FORMAT: tl.constexpr, WEIGHTS: tl.constexpr, BYTES: tl.constexpr, DTYPE: tl.constexpr,
    R: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """R rows by C columns of weights to y (rows, columns)."""
    r = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.program_id(1) * C + tl.arange(0, C)
    ok = (r[:, None] < rows) & (c[None, :] < columns)
    row = r[:, None].to(tl.int64)
    at = row * row_bytes + (c // WEIGHTS * BYTES)[None, :]
    w = FORMAT(b, h, at, (c % WEIGHTS)[None, :], ok)
    tl.store(y + row * columns + c[None, :], w.to(DTYPE), mask=ok)


def multiply(kind: str, blocks: Tensor, x: Tensor, out: Tensor) -> None:
    """x (T, columns) f32 times the weights in blocks (rows, bytes), to out (T, rows) f32."""
    rows, block = len(blocks), by_name(kind)
    _multiply[(triton.cdiv(rows, ROWS),)](
        blocks, blocks.view(torch.float16), x, out, rows, x.shape[1], blocks.shape[1],
        x.stride(0), out.stride(0), len(x), FORMATS[kind], block.weights, block.bytes,
        ROWS, COLUMNS, triton.next_power_of_2(len(x)),
    )  # fmt: skip


def unpack(kind: str, blocks: Tensor, columns: int, dtype: torch.dtype) -> Tensor:
    """Blocks (n, bytes) as (n, columns) numbers of f16 or f32."""
    out = torch.empty((len(blocks), columns), dtype=dtype, device=blocks.device)
    block, grid = by_name(kind), (triton.cdiv(len(blocks), ROWS), triton.cdiv(columns, COLUMNS))
    _unpack[grid](
        blocks, blocks.view(torch.float16), out, len(blocks), columns, blocks.shape[1],
        FORMATS[kind], block.weights, block.bytes, DTYPES[dtype], ROWS, COLUMNS,
    )  # fmt: skip
    return out
