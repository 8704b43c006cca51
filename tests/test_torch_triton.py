"""Triton's kernels in its interpreter, held against tensor operations; needs no GPU."""

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install '.[torch]'")
if "triton" in sys.modules:
    pytest.skip("Triton was loaded before it could be told to interpret", allow_module_level=True)
os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel, ours or Triton's own, is defined
pytest.importorskip("triton", reason="needs Triton: pip install triton (Linux)")

from test_torch_blocks import random_blocks  # noqa: E402

from localllm.backends.torch import triton as kernels  # noqa: E402
from localllm.backends.torch.blocks import UNPACK  # noqa: E402
from localllm.backends.torch.device import Device  # noqa: E402
from localllm.backends.torch.weights import FEW, Matrix, multiply  # noqa: E402
from quant.types import by_name  # noqa: E402


def matrix(name: str, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random blocks (rows, bytes), and what they mean, (rows, columns) f32."""
    blocks = torch.from_numpy(random_blocks(name, rows * columns // by_name(name).weights))
    return blocks.view(rows, -1), UNPACK[name](blocks, torch.float32).view(rows, columns)


def test_every_format_of_blocks_has_a_kernel():
    assert set(kernels.FORMATS) == {name for name in UNPACK if name.startswith("Q")}


@pytest.mark.parametrize("name", [name for name in UNPACK if name.startswith("Q")])
def test_unpacking(name):
    columns = 3 * max(96, by_name(name).weights)
    blocks, want = matrix(name, 7, columns)
    torch.testing.assert_close(kernels.unpack(name, blocks, columns, torch.float32), want)
    got = kernels.unpack(name, blocks, columns, torch.float16)
    assert got.dtype == torch.float16
    torch.testing.assert_close(got.float(), want, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("tokens", [1, 3, 8])
@pytest.mark.parametrize("name", ["Q4_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"])
def test_products_of_a_few_rows(name, tokens):
    columns = 3 * max(96, by_name(name).weights)
    blocks, weights = matrix(name, 7, columns)
    x, out = torch.randn(tokens, columns), torch.full((tokens + 1, 9), 7.0)
    kernels.multiply(name, blocks, x, out[:tokens, :7])
    torch.testing.assert_close(out[:tokens, :7], x @ weights.t(), rtol=1e-4, atol=1e-4)
    assert (out[tokens:] == 7).all() and (out[:, 7:] == 7).all()


def test_many_rows_go_to_torch():
    """Few rows go to the kernel, many to a product of what the other kernel unpacks."""
    device = Device("torch CPU", "cpu", exact=False, chunk=1000)
    blocks, weights = matrix("Q4_0", 20, 96)
    mine = Matrix("Q4_0", blocks, 96, device, kernels)
    for rows in (FEW, FEW + 1):
        x, out = torch.randn(rows, 96) * 1e5, torch.empty(rows, 20)
        multiply(x, [(mine, out)])
        want = x @ weights.t()
        assert ((out - want) ** 2).sum() < 1e-6 * (want**2).sum()
    assert Matrix("F16", blocks, 96, device, kernels).kernels is None


COMPILE = """
import triton.language as tl
from triton import compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from localllm.backends.torch import triton as kernels
from quant.types import by_name

NUMBERS = "rows columns row_bytes x_stride y_stride tokens".split()
for name in ("Q5_1", "Q8_0", "Q5_K", "Q6_K"):
    kind = by_name(name)
    fixed = {"FORMAT": kernels.FORMATS[name], "WEIGHTS": kind.weights, "BYTES": kind.bytes}
    fixed |= {"R": kernels.ROWS, "C": kernels.COLUMNS}
    pointers = {"b": "*u8", "h": "*fp16", "x": "*fp32", "y": "*fp32"}
    for kernel, more in ((kernels._multiply, {"T": 8}), (kernels._unpack, {"DTYPE": tl.float32})):
        known = {**pointers, **dict.fromkeys(NUMBERS, "i32"), **dict.fromkeys(fixed | more)}
        types = {arg: known[arg] or "constexpr" for arg in kernel.arg_names}
        source = ASTSource(kernel, types, fixed | more)
        print(len(compile(source, target=GPUTarget("cuda", 80, 32)).asm["ptx"]) > 1000)
"""


def test_they_compile_for_a_gpu_without_one(tmp_path):
    """The interpreter knows no types; the compiler does."""
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", COMPILE],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.stdout.split() == ["True"] * 8, done.stderr
