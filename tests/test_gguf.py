"""GGUF files: what a good one gives, and that a bad one is refused by name."""

import struct
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from gguf_bytes import ARRAY, BOOL, F32, STRING, U32, U64, array, gguf, pair, tensor

from localllm.errors import BadFile, LocalLLMError, NotFound, Unsupported
from localllm.gguf import GGUF, shards

ARCH = pair("general.architecture", STRING, "llama")


@pytest.fixture
def write(tmp_path):
    def write(data: bytes, name: str = "model.gguf") -> Path:
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


def good() -> bytes:
    pairs = [
        ARCH,
        pair("llama.block_count", U32, 2),
        pair("llama.rope.scale", F32, 0.5),
        pair("yes", BOOL, 1),
        pair("big", U64, 2**63 + 1),
        array("words", STRING, ["a", "", "é", b"\xff"]),
        array("numbers", 5, [-1, 2, 3]),
        array("flags", BOOL, [1, 0]),
    ]
    tensors = [tensor("a.weight", (4, 3)), tensor("b.weight", (32, 2, 2), 8, offset=64)]
    return gguf(pairs, tensors, bytes(range(200)))


@pytest.mark.parametrize("version", [2, 3])
def test_a_good_file(write, version):
    data = good()
    with GGUF.open(write(data[:4] + struct.pack("<I", version) + data[8:])) as model:
        assert model.architecture == "llama" and model.size == len(data)
        meta = model.metadata
        assert (meta["yes"], meta["big"], meta["llama.rope.scale"]) == (True, 2**63 + 1, 0.5)
        assert meta.count("words") == 4
        assert meta["words"] == ["a", "", "é", "\ufffd"] and meta["words"] is meta["words"]
        assert meta["numbers"].tolist() == [-1, 2, 3] and meta["numbers"].dtype == "<i4"
        assert meta["flags"].tolist() == [True, False]
        assert model.tensors["b.weight"].shape == (2, 2, 32)
        assert (model.tensors["b.weight"].type, model.tensors["b.weight"].nbytes) == ("Q8_0", 136)


def test_blocks_are_readonly_views_of_the_file(write):
    with GGUF.open(write(good())) as model:
        a, b = model.blocks("a.weight"), model.blocks("b.weight")
        assert a.shape == (3, 16) and b.shape == (4, 34)
        assert a.ravel().tolist() == list(range(48))
        assert b.ravel().tolist() == list(range(64, 200))
        with pytest.raises(ValueError):
            a[0, 0] = 1
        with pytest.raises(ValueError):
            model.metadata["numbers"][0] = 1
        model.release("b.weight")
        model.release()
        assert b[0, 0] == 64


def test_typed_reads(write):
    with GGUF.open(write(good())) as model:
        assert model.get(".block_count", int) == 2
        assert model.get(".block_count", float) == 2.0
        assert model.get(".missing", int, None) is None
        assert isinstance(model.get("numbers", (int, np.ndarray)), np.ndarray)
        with pytest.raises(BadFile, match=r"llama\.missing"):
            model.get(".missing", int)
        with pytest.raises(BadFile, match=r"'yes' is bool, not int"):
            model.get("yes", int)
        with pytest.raises(BadFile, match=r"no tensor 'c'"):
            model.blocks("c")


def test_closing_leaves_held_views_alive(write):
    model = GGUF.open(write(good()))
    view = model.blocks("a.weight")
    model.close()
    assert view[0, 5] == 5


HOSTILE = {
    "not a GGUF": b"GGML" + good()[4:],
    "too few": b"GGUF",
    "big-endian": b"GGUF" + struct.pack(">I", 3) + bytes(16),
    "version 1": b"GGUF" + struct.pack("<I", 1) + bytes(16),
    "claims .* keys": gguf(counts=(1 << 40, 0)),
    "claims .* tensors": gguf(counts=(0, 1 << 62)),
    "truncated": gguf(counts=(1, 0), align=8) + b"\x05",
    "key claims to be 18446744073709551615 bytes": gguf([b"\xff" * 8 + bytes(32)]),
    "not UTF-8": gguf([pair(b"\xff\xfe", U32, 1)]),
    "'a' is there twice": gguf([pair("a", U32, 1), pair("a", U32, 1)]),
    "neither true nor false": gguf([pair("a", BOOL, 2)]),
    "unknown value type 13": gguf([struct.pack("<Q", 1) + b"a" + struct.pack("<I", 13)]),
    "array of arrays": gguf([array("a", ARRAY, [], count=5)]),
    "array 'a': it is truncated": gguf([array("a", U64, [], count=1 << 61)]),
    "claims .* strings": gguf([array("a", STRING, [], count=1 << 61)]),
    "within the strings of 'a'": gguf([array("a", STRING, ["x" * 9], 2) + b"\xff" * 8]),
    "alignment 3 ": gguf([pair("general.alignment", U32, 3)]),
    "alignment 0 ": gguf([pair("general.alignment", U32, 0)]),
    "alignment 131072 ": gguf([pair("general.alignment", U32, 1 << 17)]),
    "alignment 'x' ": gguf([pair("general.alignment", STRING, "x")]),
    "0 dimensions": gguf([], [tensor("a", ())]),
    "4294967295 dimensions": gguf([], [tensor("a", (1,), rank=(1 << 32) - 1)]),
    "shape .0, 4.": gguf([], [tensor("a", (4, 0))], bytes(64)),
    "impossible for Q4_K": gguf([], [tensor("a", (32,), 12)], bytes(200)),
    "ends at byte": gguf([], [tensor("a", (4, 4))], bytes(63)),
    "ends at byte 8507": gguf([], [tensor("a", (1 << 62, 1 << 62))], bytes(64)),
    "multiple of 32": gguf([], [tensor("a", (4,), offset=16)], bytes(64)),
    "Tensor 'a' is there twice": gguf([], [tensor("a", (4,)), tensor("a", (4,), 0, 32)], bytes(64)),
    "'b' overlaps": gguf([], [tensor("a", (12,)), tensor("b", (4,), 0, 32)], bytes(64)),
    "tensor name claims": gguf([], [tensor("a" * 65, (4,))], bytes(64)),
    "empty or holds a zero": gguf([pair("a\0b", U32, 1)]),
}


@pytest.mark.parametrize("message", HOSTILE)
def test_a_bad_file_is_refused_by_name(write, message):
    path = write(HOSTILE[message])
    with pytest.raises(BadFile, match=message) as caught:
        GGUF.open(path)
    assert "model.gguf" in caught.value.message


def test_an_unknown_block_format_is_named(write):
    with pytest.raises(Unsupported, match=r"'a' has the unknown block format number 4"):
        GGUF.open(write(gguf([], [tensor("a", (4,), 4)], bytes(64))))


def test_flags_are_checked_before_they_are_viewed(write):
    model = GGUF.open(write(gguf([array("a", BOOL, [1, 2])])))
    with pytest.raises(BadFile, match="neither true nor false"):
        model.metadata["a"]


def test_many_empty_strings_are_refused_at_once(write):
    path = write(gguf([array("a", STRING, [], count=3 << 20)], data=bytes(32 << 20)))
    tracemalloc.start()
    began = time.perf_counter()
    with pytest.raises(BadFile):
        GGUF.open(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert time.perf_counter() - began < 1 and peak < 1 << 20


def test_what_is_no_file(tmp_path):
    with pytest.raises(NotFound, match="no file"):
        GGUF.open(tmp_path / "none.gguf")
    with pytest.raises(NotFound, match="not a file"):
        GGUF.open(tmp_path)


def shard(number: int, count: int, total: int = 2) -> bytes:
    pairs = [pair("split.no", 2, number), pair("split.count", 2, count)]
    if number == 0:
        pairs += [ARCH, pair("split.tensors.count", 5, total)]
    return gguf(pairs, [tensor(f"t{number}", (4,))], bytes([number + 1] * 16))


def test_any_shard_opens_all(write):
    write(shard(0, 2), "m-00001-of-00002.gguf")
    second = write(shard(1, 2), "m-00002-of-00002.gguf")
    with GGUF.open(second) as model:
        assert model.path.name == "m-00001-of-00002.gguf" and model.architecture == "llama"
        assert list(model.tensors) == ["t0", "t1"]
        assert model.blocks("t0")[0, 0] == 1 and model.blocks("t1")[0, 0] == 2


def test_shards_that_do_not_belong_together(write):
    first = write(shard(0, 2), "m-00001-of-00002.gguf")
    with pytest.raises(NotFound, match="m-00002-of-00002"):
        GGUF.open(first)
    write(shard(0, 2), "m-00002-of-00002.gguf")
    with pytest.raises(LocalLLMError, match="part 2 of 2"):
        GGUF.open(first)
    write(shard(1, 2), "m-00002-of-00002.gguf")
    write(shard(0, 2, total=3), "m-00001-of-00002.gguf")
    with pytest.raises(BadFile, match="as many tensors"):
        GGUF.open(first)
    with pytest.raises(BadFile, match="part 1 of 1"):
        GGUF.open(write(shard(0, 2), "renamed.gguf"))
    with pytest.raises(BadFile, match="numbered"):
        shards(Path("m-00003-of-00002.gguf"))


@pytest.mark.parametrize(
    ("missing", "held"), [(range(0), True), (range(2**16), True), (range(2**20, 2**22), False)]
)
def test_whether_the_system_holds_the_file_is_looked_up(write, monkeypatch, missing, held):
    """It is not in memory where looks would wait, nor where the system cannot tell."""

    def preadv(file, buffers, at, flags):
        if at in missing:
            raise BlockingIOError
        return 1

    with GGUF.open(write(good() + bytes(2**21))) as model:
        monkeypatch.setattr("os.RWF_NOWAIT", 8, raising=False)
        monkeypatch.setattr("os.preadv", preadv, raising=False)
        assert model.in_memory() == held
        monkeypatch.delattr("os.RWF_NOWAIT")
        assert not model.in_memory()
