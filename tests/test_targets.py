"""The core's tests once more, with the kernels compiled for lesser processors than this one."""

import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import llvmlite.binding as llvm
import pytest
from crosscompile import TARGETS, forced

from quant.target import LEVELS, choose

TESTS = Path(__file__).parent
ALL = os.environ.get("LOCALLLM_TEST_TARGETS") == "all"

# Enough to meet every instruction of the level: vector values, formats of each kind, and models in
# pieces and among others. With LOCALLLM_TEST_TARGETS=all: everything.
FILES = ["test_targets.py", "test_simd.py", "test_tiles.py", "test_quant.py", "test_backend.py"]
SOME = (
    "forcing or test_simd or test_tiles or numpy or (test_quant and (Q4_K or Q5_0 or Q6_K or F16))"
    " or (test_batch_mates and gemma3) or (test_every_architecture and qwen2)"
    " or (test_odd_sizes_of_floats and gemma3)"
)
WORDS = (
    [*FILES, "test_kernels.py", "test_batch.py", "-k", "not lesser"]
    if ALL
    else [*FILES, "-k", SOME]
)
CHOSEN = ("avx2", "avx512vl-vnni", "plain")


def lacking(level: str) -> set[str]:
    """The features of a level that this machine has not got."""
    here = {name for name, there in llvm.get_host_cpu_features().items() if there}
    return set(next(known.needs for known in LEVELS if known.name == level)) - here


def run(target: str, folder: Path) -> subprocess.CompletedProcess:
    words = ["-q", "-x", "-rP", "-o", f"cache_dir={folder / target}", *WORDS]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=TESTS, env=forced(target),
        capture_output=True, text=True, timeout=1200,
    )  # fmt: skip


@pytest.fixture(scope="module")
def runs(pytestconfig):
    """Target -> its run, two at a time, begun when the first is asked for."""
    folder = pytestconfig.cache.mkdir("targets")
    able = [target for target in CHOSEN if not lacking(TARGETS[target].level)]
    with ThreadPoolExecutor(2) as pool:
        yield {target: pool.submit(run, target, folder) for target in able}


@pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"),
    reason="these are x86 processors; on Arm the suite itself runs what is there",
)
@pytest.mark.parametrize("target", CHOSEN)
def test_the_core_on_a_lesser_processor(target, runs):
    if missing := lacking(TARGETS[target].level):
        pytest.skip(f"this processor lacks {', '.join(sorted(missing))}")
    done = runs[target].result()
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert f"compiles for {TARGETS[target].level}" in done.stdout


def test_forcing():
    """Says, also to the test above, what this process compiles for."""
    from quant.target import TARGET, features

    print(f"compiles for {TARGET.name}")
    assert choose(features()) == TARGET


@pytest.mark.parametrize(
    ("features", "name"),
    [
        ("", "plain"),
        ("sse2 ssse3 avx", "plain"),
        ("avx2 fma", "plain"),  # no chip, but a list may lack what it should have
        ("avx2 fma f16c", "avx2"),
        ("avxvnni avx2 fma f16c", "avx-vnni"),
        ("avx512f avx512bw avx512vl avx2 fma f16c", "avx2"),
        ("avx512vl avx512vnni avx2 fma f16c", "avx512vl-vnni"),
        ("avx512f avx512bw avx512vl avx512vnni avx2 fma f16c", "avx512-vnni"),
        ("neon", "plain"),
        ("neon dotprod i8mm", "neon-dotprod"),
    ],
)
def test_a_level_needs_every_feature_it_uses(features, name):
    assert choose(frozenset(features.split())).name == name


def test_every_level_divides_a_block():
    assert all(32 % level.lanes == 0 and level.lanes <= 16 for level in LEVELS)
