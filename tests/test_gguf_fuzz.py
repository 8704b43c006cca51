"""Damaged headers of real files: only our own errors come out, fast and without much memory."""

import struct
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localllm.errors import LocalLLMError
from localllm.gguf import GGUF

HEADERS = {
    path.stem: path.read_bytes()
    for path in sorted((Path(__file__).parent / "data/headers").glob("*.header"))
}
DATA = 100_000  # bytes of weights behind each header, as in the files they are from
SECONDS, BYTES = 1, 4 << 20
EXTREMES = [0, 1, 2, 3, 4, 5, 8, 9, 2**16, 2**31, 2**32 - 1, 2**32, 2**62, 2**63, 2**64 - 1]


@st.composite
def damage(draw, header: bytes) -> bytes:
    """`header` with bytes flipped, numbers replaced by extremes, pieces cut, doubled or moved."""
    data = bytearray(header + bytes(DATA))
    for _ in range(draw(st.integers(1, 4))):
        where = st.integers(0, max(0, min(len(header), len(data)) - 1))
        at = draw(where)
        match draw(st.sampled_from(["flip", "u32", "u64", "cut", "drop", "copy"])):
            case "flip":
                data[at : at + 1] = bytes(b ^ draw(st.integers(1, 255)) for b in data[at : at + 1])
            case "u32":
                data[at : at + 4] = struct.pack("<I", draw(st.sampled_from(EXTREMES)) % 2**32)
            case "u64":
                data[at : at + 8] = struct.pack("<Q", draw(st.sampled_from(EXTREMES)))
            case "cut":
                del data[at + draw(st.integers(0, DATA)) :]
            case "drop":
                del data[at : at + draw(st.integers(1, 64))]
            case "copy":
                start = draw(where)
                data[at:at] = data[start : start + draw(st.integers(1, 256))]
    return bytes(data)


def read_everything(path: Path) -> None:
    with GGUF.open(path) as model:
        for key in model.metadata:
            model.metadata[key]
        for name, tensor in model.tensors.items():
            assert model.blocks(name).nbytes == tensor.nbytes
            assert tensor.offset + tensor.nbytes <= model.size


@pytest.mark.parametrize("name", HEADERS)
def test_the_undamaged_files_open(name, tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(HEADERS[name] + bytes(DATA))
    read_everything(path)


@pytest.mark.parametrize("name", HEADERS)
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(choice=st.data())
def test_damaged_headers(name, choice, tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(choice.draw(damage(HEADERS[name])))
    tracemalloc.start()
    began = time.perf_counter()
    try:
        read_everything(path)
    except LocalLLMError as error:
        assert "model.gguf" in error.message or "'" in error.message
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert time.perf_counter() - began < SECONDS
    assert peak < BYTES


@pytest.mark.parametrize("name", HEADERS)
def test_every_truncation(name, tmp_path):
    header, path = HEADERS[name], tmp_path / "model.gguf"
    for length in range(0, len(header), 7):
        path.write_bytes(header[:length])
        with pytest.raises(LocalLLMError, match=r"model\.gguf"):
            read_everything(path)
