"""What LLVM makes of the products: each processor's own instructions, and no more of them."""

import json
import re

import loops
import pytest
from crosscompile import TARGETS, cross

from quant.formats import supported

# Target -> what its loops must have, and what they must not (registers or forms it has not got).
MARKS = {
    "avx512-vnni": (r"vpdpbusd.*%zmm", r"\{vex\}|vpmaddubsw"),
    "avx512vl-vnni": (r"^\s+vpdpbusd.*%ymm", r"\{vex\}|%zmm|vpmaddubsw"),
    "avx-vnni": (r"\{vex\}\s+vpdpbusd.*%ymm", r"%zmm|%ymm(1[6-9]|[23]\d)|%k\d|vpmaddubsw"),
    "avx2": (r"vpmaddubsw.*%ymm", r"vpdpbusd|%zmm|%ymm(1[6-9]|[23]\d)|%k\d"),
    "plain": (r"pmaddwd|pmullw", r"%[yz]mm|\bv[a-z0-9]+\s|pmaddubsw|pdpbusd"),
    "neon": (r"\bsmull\b|\bsmlal\b|\bmul\b", r"\b[su]dot\b|smmla"),
    "neon-dotprod": (r"\bsdot\b", r"\bsmull\b|smmla"),
    "neon-i8mm": (r"\bsdot\b", r"\bsmull\b"),
}
SOME = ["Q4_K", "Q8_0"]


def hot(folder, name: str) -> list[str]:
    return loops.body((folder / f"{name}.s").read_text(), f"kernel_{name}")


def test_every_target_is_looked_at():
    assert set(MARKS) == set(TARGETS)


@pytest.mark.parametrize("target", MARKS)
def test_dot_products_are_the_processors_own(target, kernel_folder):
    """Compiled here, whatever this machine is; a chip with AVX-VNNI needs the VEX form."""
    wanted, never = MARKS[target]
    folder = cross(target, [f"tile8:{name}" for name in SOME], kernel_folder)
    for name in SOME:
        lines = hot(folder, name)
        assert sum(bool(re.search(wanted, line)) for line in lines) >= 8, name
        assert not [line for line in lines if re.search(never, line)], name
        assert not [line for line in lines if re.search(r"\bcall|\bbl\b", line)], name


@pytest.fixture(scope="module")
def measured(kernel_folder):
    return loops.measure(kernel_folder)


@pytest.mark.parametrize("name", supported())
@pytest.mark.parametrize("target", loops.TARGETS)
def test_hot_loops_have_not_grown(target, name, measured):
    """Against tests/data/loops.json; `python tests/loops.py FOLDER` records anew."""
    record = json.loads(loops.RECORD.read_text())
    before, now = record["loops"][target][name], measured[target][name]
    assert now["dots"] > 0
    if record["llvm"] != loops.llvm_version():
        pytest.skip(f"recorded with LLVM {record['llvm']}, this is {loops.llvm_version()}")
    assert now["dots"] == before["dots"], "the loop is unrolled otherwise: record it anew"
    assert now["spills"] <= before["spills"] * 1.05 + 2, "more registers are spilled than before"
    assert now["all"] <= before["all"] * 1.03, "there are more instructions than before"


MODEL = ["norm:norm", "linear:linear", "linear:gated", "heads:heads", "attention:merge_spans"]
MODEL += ["attention:attend", "spans:span8"]
LIBRARY = {"memset", "memcpy", "memmove"}  # what a kernel may call by name


def test_a_models_kernels_compile_for_arm(kernel_folder):
    """To machine code that is complete: it needs neither Python nor Numba."""
    words = [f"localllm.kernels.{word}" for word in MODEL]
    folder = cross("neon-dotprod", words, kernel_folder)
    for name in (word.split(":")[1] for word in MODEL):
        lines = loops.body((folder / f"{name}.s").read_text(), f"kernel_{name}")
        called = {line.split()[1] for line in lines if re.match(r"\s+bl\s", line)}
        assert called <= LIBRARY, name
        assert (folder / f"{name}.o").read_bytes()[18:20] == b"\xb7\x00"  # ELF for AArch64
