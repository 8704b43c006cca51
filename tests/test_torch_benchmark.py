"""The GPU benchmark runs from end to end, on torch's CPU device and a tiny shape of each kind."""

import dataclasses
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install '.[torch]'")

from localllm.bench.grid import Case  # noqa: E402
from localllm.gguf import GGUF  # noqa: E402
from localllm.models import record  # noqa: E402

FOLDER = Path(__file__).parents[1] / "benchmarks"
CASES = [Case("pp", 20), Case("tg", 2), Case("tg", 2, batch=8)]
TINY = {"layers": 2, "width": 256, "heads": 4, "kv_heads": 2, "head_width": 64,
        "feed_forward": 256, "vocab": 512, "context": 128}  # fmt: skip


@pytest.fixture
def gpu(monkeypatch, home, kept_kernels):
    monkeypatch.syspath_prepend(str(FOLDER))
    import gpu

    tiny = [dataclasses.replace(shape, **TINY) for shape in gpu.shapes.SHAPES]
    monkeypatch.setattr(gpu.shapes, "SHAPES", tiny)
    monkeypatch.setattr(gpu, "CASES", CASES)
    monkeypatch.setattr(gpu, "keep", lambda: kept_kernels)
    monkeypatch.setattr(gpu, "PAGES", 40)
    return gpu


def test_a_page_of_figures(gpu, tmp_path, monkeypatch):
    out = tmp_path / "GPU.md"
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--device", "torch-cpu", "--out", str(out)])
    gpu.main()
    page = out.read_text(encoding="utf-8")
    rows = [row for row in page.splitlines() if "(random weights)" in row]
    assert len(rows) == len(gpu.shapes.SHAPES)
    assert all("✓" in row and row.count("|") == 9 for row in rows), page


def test_no_time_is_said_so(gpu, tmp_path, monkeypatch):
    out = tmp_path / "GPU.md"
    words = ["gpu.py", "--device", "torch-cpu", "--minutes", "0", "--only", "smollm2"]
    monkeypatch.setattr(sys, "argv", [*words, "--out", str(out)])
    gpu.main()
    assert out.read_text(encoding="utf-8").count("no time left") == 1


@pytest.mark.model
@pytest.mark.parametrize("name", ["smollm2", "qwen2.5-coder:0.5b"])
def test_a_made_file_is_as_large_as_the_real_one(name, tmp_path, monkeypatch, model_path):
    monkeypatch.syspath_prepend(str(FOLDER))
    import shapes

    shape = next(shape for shape in shapes.SHAPES if shape.name == name)
    made = shapes.write(shape, tmp_path / "made.gguf")
    with GGUF.open(made) as ours, GGUF.open(model_path(name)) as real:
        assert {n: (t.type, t.shape) for n, t in ours.tensors.items() if "blk" not in n} == {
            n: (t.type, t.shape) for n, t in real.tensors.items() if "blk" not in n
        }
        assert sum(t.nbytes for t in ours.tensors.values()) == pytest.approx(
            sum(t.nbytes for t in real.tensors.values()), rel=0.01
        )
        assert len(record(ours).layers) == len(record(real).layers)
