"""What doctor says: a verdict in words, and a remark for each thing that is wrong."""

import pytest

from localllm.verdict import remarks, verdict

FINE = {
    "instructions": "avx512-vnni", "threads": 2, "cores": 2, "quota": None, "busy": 0.0,
    "gpu": "", "torch": False, "memory": 32 << 30, "memory_available": 30 << 30,
    "bandwidth": 50e9, "bandwidth_one_thread": 30e9, "multiply_adds": {"Q4_K": 2e11, "Q8_0": 3e11},
    "disk_rate": 1e9, "disk_free": 100 << 30, "stale": 0, "kernels": "/k", "cache_writable": True,
}  # fmt: skip


def test_the_verdict_says_what_limits_and_what_helps(monkeypatch):
    monkeypatch.delenv("NUMBA_DISABLE_JIT", raising=False)
    text = " ".join(verdict(FINE))
    assert "50 tokens/s" in text and "300 tokens/s" in text and "fewer bits" in text
    assert "more threads would not" not in text and list(remarks(FINE)) == []
    assert "more threads would not" in " ".join(verdict(FINE | {"bandwidth_one_thread": 49e9}))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"instructions": "plain"}, "tenth"),
        ({"instructions": "avx2"}, "VNNI"),
        ({"quota": 1.5}, "1.5 CPUs"),
        ({"busy": 0.5}, "50%"),
        ({"gpu": "An NVIDIA GPU"}, "An NVIDIA GPU is not used: `pip install torch`"),
        ({"memory_available": 1 << 30}, "1.1 GB of memory"),
        ({"disk_rate": 50e6}, "20 s to load"),
        ({"disk_free": 1 << 20}, "1.0 MB of disk"),
        ({"stale": 1 << 30}, "1.1 GB of old kernels lie beside /k"),
        ({"cache_writable": False}, "/k cannot be written"),
    ],
)
def test_what_is_wrong_is_remarked(changed, said, monkeypatch):
    monkeypatch.delenv("NUMBA_DISABLE_JIT", raising=False)
    [remark] = remarks(FINE | changed)
    assert said in remark
    assert not list(remarks(FINE | changed | {"torch": True})) or "gpu" not in changed
