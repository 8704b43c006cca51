"""Blocks unpacked by tensor operations, held against the gguf package."""

import gguf
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install '.[torch]'")

from localllm.backends.torch.blocks import UNPACK  # noqa: E402
from quant.formats import supported  # noqa: E402
from quant.types import by_name  # noqa: E402

SCALES = {"Q4_0": (0,), "Q5_0": (0,), "Q8_0": (0,), "Q6_K": (208,)}  # others: at 0 and 2


def random_blocks(name: str, count: int) -> np.ndarray:
    """(count, bytes) u8: any bytes, but small scales and finite floats."""
    random, kind = np.random.default_rng(3), by_name(name)
    if not name.startswith("Q"):
        values = random.normal(size=(count, 1)).astype("f4")
        return gguf.quantize(values, gguf.GGMLQuantizationType[name]).view(np.uint8)
    blocks = random.integers(0, 256, (count, kind.bytes), dtype=np.uint8)
    for at in SCALES.get(name, (0, 2)):
        scales = random.uniform(-0.02, 0.02, (count, 1)).astype("f2")
        blocks[:, at : at + 2] = scales.view(np.uint8)
    return blocks


def test_every_format_of_the_cpu_backend_is_here():
    assert set(supported()) <= set(UNPACK)


@pytest.mark.parametrize("name", UNPACK)
def test_unpacked_as_by_the_gguf_package(name):
    blocks = random_blocks(name, 100)
    want = blocks.view("f4") if name == "F32" else gguf.dequantize(blocks, gguf_type(name))
    got = UNPACK[name](torch.from_numpy(blocks), torch.float32)
    assert got.shape == (100, by_name(name).weights)
    np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.parametrize("name", UNPACK)
def test_f16_is_as_close_as_f16_can_be(name):
    blocks = torch.from_numpy(random_blocks(name, 100))
    want = UNPACK[name](blocks, torch.float32)
    got = UNPACK[name](blocks, torch.float16)
    assert got.dtype == torch.float16
    assert ((got.float() - want) ** 2).sum() < 1e-6 * (want**2).sum()


def test_rows_of_a_larger_matrix():
    """Blocks may be a part of other memory, as a piece of a matrix is."""
    blocks = torch.from_numpy(random_blocks("Q4_K", 60))
    whole = UNPACK["Q4_K"](blocks, torch.float32)
    assert torch.equal(UNPACK["Q4_K"](blocks[20:40], torch.float32), whole[20:40])


def gguf_type(name: str) -> gguf.GGMLQuantizationType:
    return gguf.GGMLQuantizationType[name]
