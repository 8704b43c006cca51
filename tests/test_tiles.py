"""Register tiles against NumPy: dot products, arithmetic, reductions, rows in memory."""

import numpy as np
import pytest
from kernel_calls import floats, ints, run

from quant.jit import kernel
from quant.simd import (
    BYTES,
    LANES,
    load_byte_pairs,
    load_bytes,
    load_f32,
    load_i32,
    splat_i32,
    store_eight,
    store_eight_ints,
)
from quant.target import TARGET
from quant.tiles import (
    add_ints,
    dot_pairs,
    dot_rows,
    dot_unsigned,
    fma_int_rows,
    fma_int_tiles,
    fma_offset_rows,
    fma_rows,
    fma_scaled_rows,
    fma_tiles,
    int_zeros_like,
    ints_at,
    merge_rows,
    multiply_ints,
    multiply_rows,
    rows_at,
    scale_rows,
    store_peaks,
    store_rows,
    store_totals,
    zeros,
)

pytestmark = pytest.mark.usefixtures("kept_kernels")


@kernel(4, __name__)
def dots(weights, rows, halves, out):
    i = int_zeros_like(zeros(2))
    w = load_bytes(weights)
    store_rows(dot_rows(i, w, rows, 32), out, 64)
    store_rows(dot_pairs(i, load_i32(halves), halves, 8), out + 128, 64)
    store_rows(dot_unsigned(i, load_bytes(rows), weights, 4), out + 256, 64)
    store_rows(dot_pairs(i, load_byte_pairs(rows), halves, 8), out + 384, 64)


def test_integer_dot_products(rng):
    weights = np.resize(rng.integers(0, 256, BYTES).astype("u1"), 64)
    weights[:8] = 0, 128, 255, 127, 128, 128, 128, 128
    rows = rng.integers(-127, 128, 64).astype("i1")
    rows[:4], rows[32:36] = 127, -127
    halves = rng.integers(-4095, 4096, 128).astype("<i2")
    out = ints(run(dots, weights, rows, halves, results=8))
    x = rows.reshape(2, 32)[:, :4].astype(int)
    w = weights[:BYTES].view("i1" if TARGET.signed else "u1").astype(int).reshape(LANES, 4)
    np.testing.assert_array_equal(out[:2], x @ w.T)
    pairs = halves.astype(int).reshape(-1, 2)
    np.testing.assert_array_equal(out[2:4], pairs[[0, 2]] @ pairs[:LANES].T)
    signed = rows[:BYTES].astype(int).reshape(LANES, 4)
    unsigned = weights[:8].astype(int).reshape(2, 4)
    np.testing.assert_array_equal(out[4:6], unsigned @ signed.T)
    few = rows[: 2 * LANES].astype(int).reshape(LANES, 2)
    np.testing.assert_array_equal(out[6:], pairs[[0, 2]] @ few.T)


@kernel(4, __name__)
def tile_values(ints_address, rows, scale, out):
    t = zeros(2)
    i = ints_at(t, ints_address, 8)
    s = load_f32(scale)
    store_rows(fma_rows(t, s, rows, 8), out, 64)
    store_rows(fma_scaled_rows(t, i, s, rows, 8), out + 128, 64)
    store_rows(fma_offset_rows(t, i, s, rows, rows + 16, 8), out + 256, 64)
    store_rows(fma_int_rows(t, i, rows, 8), out + 384, 64)
    store_rows(scale_rows(i, s, rows, 8), out + 512, 64)
    doubled = add_ints(i, multiply_ints(i, splat_i32(np.int32(3))))
    store_rows(doubled, out + 640, 64)
    store_rows(fma_tiles(t, fma_rows(t, s, rows, 8), s), out + 768, 64)
    store_rows(fma_int_tiles(t, i, s), out + 896, 64)
    store_rows(multiply_rows(fma_rows(t, s, rows, 8), rows, 8), out + 1024, 64)


def test_tile_arithmetic(rng):
    numbers = rng.integers(-9999, 9999, 4).astype("<i4")
    rows, scale = rng.normal(size=16).astype("<f4"), rng.normal(size=LANES).astype("<f4")
    out = run(tile_values, numbers, rows, scale, results=18)
    i, x, z = (a[[0, 2]].astype("f8")[:, None] for a in (numbers, rows, rows[4:]))
    s = scale.astype("f8")
    want = [x * s, i * x * s, (i * x + z) * s, i * x + 0 * s, i * x * s]
    np.testing.assert_allclose(floats(out[:10]), np.concatenate(want), rtol=3e-6, atol=1e-3)
    np.testing.assert_array_equal(ints(out[10:12]), 4 * i.astype(int) + 0 * s.astype(int))
    np.testing.assert_allclose(floats(out[12:14]), x * s * s, rtol=3e-6, atol=1e-6)
    np.testing.assert_allclose(floats(out[14:16]), i * s, rtol=3e-6, atol=1e-3)
    np.testing.assert_allclose(floats(out[16:]), x * s * x, rtol=3e-6, atol=1e-6)


@kernel(3, __name__)
def across(numbers, ints_address, out):
    """Peaks, then totals, of 2 rows and of 8; totals of whole numbers."""
    two, eight = rows_at(zeros(2), numbers, BYTES), rows_at(zeros(8), numbers, BYTES)
    store_peaks(out, two)
    store_totals(out + 8, two)
    store_peaks(out + 64, eight)
    store_totals(out + 96, eight)
    store_totals(out + 128, ints_at(zeros(8), ints_address, 4))


def test_reductions_across_lanes_do_not_depend_on_the_number_of_rows(rng):
    numbers = rng.normal(size=(8, LANES)).astype("<f4")
    whole = rng.integers(-9999, 9999, 8).astype("<i4")
    out = run(across, numbers, whole, results=3)
    f = out.view("<f4")
    np.testing.assert_array_equal(f[0, :2], numbers[:2].max(axis=1))
    np.testing.assert_array_equal(f[1, :8], numbers.max(axis=1))
    np.testing.assert_allclose(f[1, 8:], numbers.sum(axis=1, dtype="f8"), atol=1e-5)
    np.testing.assert_array_equal(f[0, 2:4], f[1, 8:10])
    np.testing.assert_array_equal(out.view("<i4")[2, :8], whole * LANES)


@kernel(2, __name__)
def merged(numbers, out):
    t = rows_at(zeros(2), numbers, BYTES)
    store_rows(t, out, 64)
    merge_rows(t, out, 64, numbers, numbers + 8)
    store_eight(out + 128, load_f32(numbers))
    store_eight_ints(out + 192, load_i32(numbers))


def test_rows_merged_into_memory(rng):
    numbers = rng.normal(size=(2, LANES)).astype("<f4")
    out = run(merged, numbers, results=4)
    a, b = numbers.ravel()[:2], numbers.ravel()[2:4]
    want = numbers * a[:, None].astype("f8") + numbers * b[:, None].astype("f8")
    np.testing.assert_allclose(floats(out)[:2], want, rtol=1e-5, atol=1e-6)
    some = min(LANES, 8)
    for row in (2, 3):
        np.testing.assert_array_equal(out.view("<f4")[row, :some], numbers[0, :some])
        assert not out.view("<f4")[row, some:].any()
