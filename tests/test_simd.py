"""Vector values against NumPy: arithmetic, conversions, memory, bytes."""

import numpy as np
import pytest
from kernel_calls import floats, ints, run

from localllm.kernels.rotation import rotate, rotation_size
from quant.elementary import exp, exp2, sigmoid
from quant.jit import kernel
from quant.simd import (
    BYTES,
    LANES,
    absolute,
    bits,
    column,
    fma,
    get_i16,
    get_i32,
    get_i64,
    get_u8,
    lanes_between,
    load_bf16,
    load_bytes,
    load_f16,
    load_f32,
    load_i8,
    load_i32,
    load_u8,
    maximum,
    minimum,
    nearest,
    peak,
    put_f32,
    put_i16,
    put_i32,
    put_i64,
    put_u8,
    shift_right,
    splat_byte,
    splat_f32,
    splat_i32,
    spread_bits,
    store_bytes,
    store_f32,
    store_halves,
    store_i32,
    store_low_bytes,
    store_low_halves,
    store_part,
    store_quarters,
    swap_pairs,
    to_f32,
    to_i32,
    total,
)

pytestmark = pytest.mark.usefixtures("kept_kernels")


# ---- floating point -----------------------------------------------------------------------------


@kernel(3, __name__)
def float_values(a, b, out):
    x, y = load_f32(a), load_f32(b)
    store_f32(out, x + y)
    store_f32(out + 64, x - y)
    store_f32(out + 128, x * y)
    store_f32(out + 192, x / y)
    store_f32(out + 256, absolute(x))
    store_f32(out + 320, maximum(x, y))
    store_f32(out + 384, minimum(x, y))
    store_f32(out + 448, nearest(x))
    store_i32(out + 512, to_i32(x))
    store_f32(out + 576, to_f32(to_i32(x)))
    store_f32(out + 640, swap_pairs(x))
    store_f32(out + 704, lanes_between(x, 1, 3, np.float32(9)))
    store_f32(out + 768, splat_f32(np.float32(2.5)))
    put_f32(out + 832, total(x))
    put_f32(out + 836, peak(x))
    store_f32(out + 896, fma(x, y, x))


def test_float_arithmetic(rng):
    x, y = rng.normal(size=(2, LANES)).astype("f4") * 20
    x[:4] = 0.5, 1.5, -2.5, 3.4999998  # ties go to the even number
    out = floats(run(float_values, x, y, results=15))
    want = [x + y, x - y, x * y, x / y, abs(x), np.maximum(x, y), np.minimum(x, y), np.rint(x)]
    np.testing.assert_array_equal(out[:8], want)
    np.testing.assert_array_equal(out[8].view("i4"), np.rint(x))
    np.testing.assert_array_equal(out[9], np.rint(x))
    np.testing.assert_array_equal(out[10], x.reshape(-1, 2)[:, ::-1].ravel())
    np.testing.assert_array_equal(out[11], [9, x[1], x[2], *[9] * (LANES - 3)])
    np.testing.assert_array_equal(out[12], 2.5)
    np.testing.assert_allclose(out[13, 0], x.sum(dtype="f8"), atol=1e-4)
    assert out[13, 1] == x.max()
    np.testing.assert_allclose(out[14], x * y.astype("f8") + x, rtol=1e-5, atol=1e-4)


@kernel(2, __name__)
def curves(a, out):
    x = load_f32(a)
    store_f32(out, exp(x))
    store_f32(out + 64, sigmoid(x))
    store_f32(out + 128, exp2(x))


def test_exp_and_sigmoid():
    """To a few units in the last place, and with the right ends."""
    for x in np.linspace(-86.9, 87.9, 40 * LANES).astype("f4").reshape(40, LANES):
        out = floats(run(curves, x, results=3))
        np.testing.assert_allclose(out[0], np.exp(x.astype("f8")), rtol=4e-7)
        want = 1 / (1 + np.exp(-x.astype("f8")))
        np.testing.assert_allclose(out[1], want, rtol=1e-6, atol=1e-37)
        np.testing.assert_allclose(out[2], np.exp2(x.astype("f8")), rtol=3e-6, atol=1e-37)
    x = np.resize(np.array([-1e30, -200, 0, 500], "f4"), LANES)
    out = floats(run(curves, x, results=3))
    assert (out[0, :3] == [0, 0, 1]).all() and out[0, 3] > 1e38
    assert (out[2, :3] == [0, 0, 1]).all()
    np.testing.assert_allclose(out[1, :4], [0, 0, 0.5, 1], atol=1e-37)


# ---- memory -------------------------------------------------------------------------------------


@kernel(2, __name__)
def loads(a, out):
    store_f32(out, load_f16(a))
    store_f32(out + 64, load_bf16(a))
    store_i32(out + 128, load_u8(a))
    store_i32(out + 192, load_i8(a))
    store_bytes(out + 256, load_bytes(a))
    store_low_bytes(out + 320, load_i32(a))
    store_low_halves(out + 384, load_i32(a))
    put_i64(out + 448, get_i64(a) + 1)
    put_i32(out + 456, get_i32(a) + 1)
    put_i16(out + 460, get_i16(a))
    put_u8(out + 462, get_u8(a))


@pytest.mark.parametrize("first", range(0, 0x7C00, 1237))
def test_loads_of_narrow_numbers(first):
    """Every kind of half float: zero, below the normal ones, normal, negative."""
    halves = np.resize(np.array([first, first | 0x8000, first // 64, 0x7BFF], "<u2"), 2 * LANES)
    out = run(loads, halves, results=8)
    np.testing.assert_array_equal(floats(out[0]), halves.view("<f2")[:LANES].astype("f4"))
    bf16 = (halves.astype("<u4") << 16).view("<f4")
    np.testing.assert_array_equal(floats(out[1]), bf16[:LANES])
    raw = halves.view("u1")
    np.testing.assert_array_equal(ints(out[2]), raw[:LANES])
    np.testing.assert_array_equal(ints(out[3]), raw.view("i1")[:LANES])
    np.testing.assert_array_equal(out[4, :BYTES], raw)
    np.testing.assert_array_equal(out[5, :LANES], raw.view("<i4").astype("u1"))
    np.testing.assert_array_equal(out[6].view("<u2")[:LANES], raw.view("<i4").astype("<u2"))
    assert out[7].view("<i8")[0] == raw.view("<i8")[0] + 1
    assert out[7].view("<i4")[2] == raw.view("<i4")[0] + 1
    assert out[7].view("<u2")[6] == halves[0] and out[7, 14] == raw[0]


# ---- bytes --------------------------------------------------------------------------------------


@kernel(2, __name__)
def byte_values(a, out):
    x = load_bytes(a)
    store_bytes(out, bits(x, 0, 15))
    store_bytes(out + 64, bits(x, 4, 240))
    store_bytes(out + 128, bits(x, -3, 31))
    store_bytes(out + 192, shift_right(x, 2))
    store_bytes(out + 256, spread_bits(x, 8))
    store_bytes(out + 320, x ^ splat_byte(0x88))
    store_bytes(out + 384, x & splat_byte(0x0F) | splat_byte(0x30))
    store_bytes(out + 448, column(a, 4))
    store_part(out + 512, x, 8, 2)
    store_part(out + 576, x, 16, 1)
    store_i32(out + 640, splat_i32(np.int32(-1)))
    store_halves(out + 640, load_i32(a), 1)
    store_i32(out + 704, splat_i32(np.int32(-1)))
    store_halves(out + 704, load_i32(a), 0)
    store_i32(out + 768, splat_i32(np.int32(-1)))
    store_quarters(out + 768, load_i32(a), 2)


def test_bytes(rng):
    x = rng.integers(0, 256, BYTES).astype("u1")
    out = run(byte_values, x, results=13)[:, :BYTES]
    pairs, lanes = x.view("<u2"), x.view("<u4")
    np.testing.assert_array_equal(out[0], x & 15)
    np.testing.assert_array_equal(out[1], (pairs << 4).view("u1") & 240)
    np.testing.assert_array_equal(out[2], (pairs >> 3).view("u1") & 31)
    np.testing.assert_array_equal(out[3], (pairs >> 2).view("u1"))
    bits = lanes[:, None] >> np.arange(8, 12, dtype="<u4") & 1
    np.testing.assert_array_equal(out[4], bits.ravel())
    np.testing.assert_array_equal(out[5], x ^ 0x88)
    np.testing.assert_array_equal(out[6], x & 15 | 0x30)
    np.testing.assert_array_equal(out[7], x)
    np.testing.assert_array_equal(out[8, :LANES], x[2::4])
    np.testing.assert_array_equal(
        np.ascontiguousarray(out[9, : 2 * LANES]).view("<u2"), pairs[1::2]
    )
    np.testing.assert_array_equal(out[10].view("<u4"), lanes << 16 | 0xFFFF)
    np.testing.assert_array_equal(out[11].view("<u4"), lanes | 0xFFFF0000)
    np.testing.assert_array_equal(out[12].view("<u4"), (lanes & 255) << 16 | 0xFF00FFFF)


@kernel(2, __name__)
def rotations(numbers, out):
    for n in range(3):
        size = 8 << n
        for c in range(0, 384, 4 * LANES):
            store_f32(out + 384 * n + c, load_f32(numbers + c))
        rotate(out + 384 * n, 96, size)


def test_rotation(rng):
    """Against the matrix that doubles: [[h, h], [h, -h]]."""
    x = rng.normal(size=96).astype("<f4")
    out = run(rotations, x, results=18).view("<f4").reshape(3, 96)
    for n, got in enumerate(out):
        matrix = np.ones((1, 1))
        while len(matrix) < 8 << n:
            matrix = np.block([[matrix, matrix], [matrix, -matrix]])
        want = x.reshape(-1, len(matrix)) @ matrix / np.sqrt(len(matrix))
        np.testing.assert_allclose(got, want.ravel(), rtol=1e-5, atol=1e-6)
    assert [rotation_size(dims) for dims in (64, 96, 80, 256, 10, 72)] == [64, 32, 16, 256, 1, 1]
