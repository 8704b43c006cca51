"""Every block format: against the gguf package, against NumPy, and against itself, bit for bit."""

import gguf
import naive
import numpy as np
import pytest
from blocks import Tiles, random_blocks

from quant.formats import format_of, supported
from quant.jit import compile_all, kernel
from quant.rows import BLOCK, SLOT_BYTES, quantise
from quant.simd import LANES
from quant.types import GGML_TYPES, by_name

pytestmark = pytest.mark.usefixtures("compiled")
INTEGER = [name for name in supported() if format_of(name).integer]
LIMITS = [0, 1, 15, 16, 127, 128, 129, 240, 255]  # bytes at which an integer product could overflow


@pytest.fixture(scope="module")
def kernels(request):
    """Those of the formats that the tests chosen are about."""
    chosen = [getattr(item, "callspec", None) for item in request.session.items]
    names = {call.params.get("name") for call in chosen if call} & set(supported())
    forms = [format_of(name) for name in sorted(names)]
    return [kernel for f in forms for kernel in (f.product, f.repack, f.unpack_row)]


@pytest.fixture
def compiled(kept_kernels, kernels):
    """By two processes, where they are not kept yet."""
    compile_all(kernels, 2)


@kernel(5, __name__)
def rows_to_panel(source, blocks, panel, count, slots):
    for t in range(count):
        for k in range(blocks):
            x = source + (t * blocks + k) * 4 * BLOCK
            quantise(x, panel + k * SLOT_BYTES * slots, t, slots)


# ---- the file's blocks ------------------------------------------------------------------------


def test_the_type_table_is_the_gguf_packages():
    sizes = {kind: gguf.GGML_QUANT_SIZES[kind] for kind in gguf.GGML_QUANT_SIZES}
    theirs = {int(kind): (kind.name, *size) for kind, size in sizes.items()}
    del theirs[9]  # Q8_1: ggml's block has two f16, the package's two f32; no file has either
    for number, kind in GGML_TYPES.items():
        if number in theirs:
            assert tuple(kind) == theirs[number]
    assert set(supported()) <= {name for name, _, _ in theirs.values()}
    assert all(by_name(name).name == name for name in supported())


def test_formats_are_those_that_the_first_models_need():
    needed = "F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q4_K Q5_K Q6_K"
    assert set(supported()) >= set(needed.split())


@pytest.mark.parametrize("name", supported())
def test_unpack_is_gguf_quants_bit_for_bit(name, rng):
    form = format_of(name)
    assert (form.weights, form.bytes) == by_name(name)[1:]
    blocks = random_blocks(form, 8, 512, rng)
    if name == "F32":
        want = blocks.view("<f4")
    else:
        want = gguf.dequantize(blocks, gguf.GGMLQuantizationType[name])
    got = form.unpack(blocks.reshape(-1, form.bytes)).reshape(8, 512)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got.view("u4"), want.view("u4"))


@pytest.mark.parametrize("name", supported())
def test_a_row_is_unpacked_as_in_numpy(name, rng):
    """Bit for bit, and nothing is written behind its end."""
    form, columns = format_of(name), 768
    blocks = random_blocks(form, 4, columns, rng)
    want = form.unpack(blocks.reshape(-1, form.bytes)).reshape(4, columns)
    got = np.full((4, columns + 8), 7, np.float32)
    for row, out in zip(blocks, got, strict=True):
        form.unpack_row(row.ctypes.data, columns // form.weights, form.bytes, out.ctypes.data)
    np.testing.assert_array_equal(got[:, :columns].view("u4"), want.view("u4"))
    assert (got[:, columns:] == 7).all()


def test_an_unknown_format_has_no_file():
    with pytest.raises(KeyError):
        format_of("IQ1_S_not_there")
    with pytest.raises(KeyError):
        format_of("../types")


# ---- rows as int8 -------------------------------------------------------------------------------


@pytest.mark.parametrize("slots", [1, 8])
def test_rows_become_panels_as_in_numpy(slots, rng):
    count, blocks = min(slots, 5), 3
    x = rng.normal(size=(count, blocks * BLOCK)).astype("f4")
    x[0, :BLOCK] = 0
    x[-1, 40], x[-1, 41] = 1e-38, -3e4
    out = np.full(blocks * SLOT_BYTES * slots, 255, np.uint8)
    rows_to_panel(x.ctypes.data, blocks, out.ctypes.data, count, slots)
    np.testing.assert_array_equal(out, naive.panel(x, slots))


# ---- products -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", supported())
def test_products_of_1_to_20_tokens(name, rng):
    """Right, and the same bits however many tokens go together."""
    form, rows, columns = format_of(name), 3 * LANES, 768
    blocks = random_blocks(form, rows, columns, rng)
    tiles = Tiles.of(form, blocks, columns)
    x = rng.normal(size=(20, columns)).astype("f4")
    weights = form.unpack(blocks.reshape(-1, form.bytes)).reshape(rows, columns)
    want = naive.product(weights, naive.rounded(x) if form.integer else x)
    whole = tiles.times(x)
    assert np.abs(whole - want).max() < 3e-6 * np.abs(want).max()
    for count in range(1, 20):
        np.testing.assert_array_equal(tiles.times(x[:count]), whole[:count], f"{count} tokens")
    for t in range(20):
        np.testing.assert_array_equal(tiles.times_one(x[t]), whole[t], f"token {t} alone")


@pytest.mark.parametrize("name", supported())
def test_a_tokens_bits_do_not_depend_on_its_slot(name, rng):
    form = format_of(name)
    columns = max(form.weights, 32)
    tiles = Tiles.of(form, random_blocks(form, LANES, columns, rng), columns)
    x = rng.normal(size=(8, columns)).astype("f4")
    order = rng.permutation(8)
    np.testing.assert_array_equal(tiles.times(x[order]), tiles.times(x)[order])


@pytest.mark.parametrize("name", INTEGER)
def test_extreme_weights_and_activations_do_not_overflow(name, rng):
    form, columns = format_of(name), 512
    for bytes_of in ([0], [255], [128], [127], LIMITS):
        blocks = random_blocks(form, LANES, columns, rng, bytes_of)
        x = rng.choice([-1.0, 1.0], (9, columns)).astype("f4")
        x[0], x[1] = 1, -1
        weights = form.unpack(blocks.reshape(-1, form.bytes)).reshape(LANES, columns)
        want = naive.product(weights, naive.rounded(x))
        most = np.abs(weights).sum(1) + 0.02 * columns  # one step of the scale in each column
        error = np.abs(Tiles.of(form, blocks, columns).times(x) - want) / most
        assert error.max() < 2e-6, bytes_of


@pytest.mark.parametrize("name", supported())
def test_a_row_of_zeros_gives_zeros(name, rng):
    form, columns = format_of(name), 256
    tiles = Tiles.of(form, random_blocks(form, LANES, columns, rng), columns)
    assert not tiles.times(np.zeros((3, columns), "f4")).any()
