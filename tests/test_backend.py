"""The CPU backend: programs against NumPy, and the same bits however a batch is put together."""

import threading
from concurrent.futures import Future

import numpy as np
import pytest
import tiny
from interpreter import Interpreter, nmse
from recorded import Part, batch_of, hidden, logits

from localllm import models
from localllm.backends.cpu import model as cpu_model
from localllm.backends.cpu import weights
from localllm.backends.cpu.model import FEW
from localllm.batch import LOADING
from localllm.errors import Unsupported
from localllm.gguf import GGUF
from quant.formats import format_of, supported
from quant.simd import LANES

pytestmark = pytest.mark.usefixtures("kept_kernels")
ARCHITECTURES = models.supported()
IDS = np.random.default_rng(5).integers(0, 320, 100).tolist()


@pytest.fixture
def opened(tmp_path):
    """opened(architecture="llama", ...) -> (file, model); both are closed at the end."""
    closing = []

    def open_(options=None, kv_type="f16", **numbers):
        path = tiny.write(tmp_path / f"{len(closing)}.gguf", text=False, **numbers)
        file = GGUF.open(path)
        options = {"threads": 2, "max_rows": 64, "kv_type": kv_type, **(options or {})}
        model = models.load(file, device="cpu", **options)
        closing.extend([model, file])
        return file, model

    yield open_
    for each in closing:
        each.close()


def agree(file, model, bound, ids=IDS):
    program, got = models.record(file), logits(model, ids)
    assert nmse(got, Interpreter(program, file).logits(ids)) < bound


# ---- loading -----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 40_000, 1 << 40])
def test_weights_are_packed_in_groups_of_any_size(size, opened, monkeypatch):
    """Tile by tile, some at a time or all at once; 333 rows leave a last tile to be filled up."""
    monkeypatch.setattr(weights, "GROUP", size)
    told = []
    options = {"progress": lambda *stage: told.append(stage)}
    file, model = opened(vocab=333, type="Q8_0", options=options)
    agree(file, model, bound=1e-3)
    names = len(model.weights.loaded)
    done = [done for stage, done, total in told if stage == LOADING and total == names]
    assert done == sorted(done) and set(done) <= set(range(names + 1)) and names > 10
    assert done[0] == 0 and done[-1] == names and not model.weights.late
    tiles = sum(matrix.rows // LANES for matrix in model.weights.loaded.values())
    assert len(done) == {0: tiles + 1, 1 << 40: 2}.get(size, len(done))
    assert size == 1 << 40 or 2 < len(done) <= tiles + 1


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_K", "F16"])
@pytest.mark.parametrize("ids", [IDS[:1], IDS[:FEW], IDS[: FEW + 1]], ids=len)
def test_the_same_bits_while_weights_are_repacked(ids, kind, opened, monkeypatch):
    """Few rows start at once with all weights in the file, and every later step repacks some."""
    monkeypatch.setattr(weights, "PIECE", 70_000)
    monkeypatch.setattr(cpu_model, "CATCH_UP", 0)
    numbers = {"vocab": 333, "type": kind, "width": 256, "feed_forward": 512, "layers": 1}
    numbers |= {"heads": 8, "head_width": 32}
    _, whole = opened(**numbers, options={"max_rows": 128})
    want, steps = logits(whole, ids, chunk=128), 0
    _, model = opened(**numbers, options={"max_rows": 128, "until": at_once})
    assert len(model.weights.late) == len(model.weights.loaded)
    while model.weights.late:
        assert np.array_equal(logits(model, ids, chunk=128), want)
        steps += 1
    assert np.array_equal(logits(model, ids, chunk=128), want)
    assert steps == 1 if len(ids) > FEW else steps > 3


def test_weights_are_repacked_until_others_are_done(opened):
    """Others that are never done leave nothing to be repacked."""
    file, model = opened(vocab=333, type="Q8_0", options={"until": Future})
    assert not model.weights.late
    agree(file, model, bound=1e-3)
    _, learning = opened(vocab=333, kv_type="q8_0", options={"until": at_once})
    assert not learning.weights.late  # what a sample goes through has to be there


def at_once() -> Future:
    """What others do is done."""
    future: Future = Future()
    future.set_result(None)
    return future


# ---- whole programs ----------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture(architecture, opened):
    """With floats for weights all that is rounded is attention's 16-bit numbers."""
    agree(*opened(architecture=architecture, type="F32"), bound=2e-6)
    agree(*opened(architecture=architecture), bound=1e-3)


@pytest.mark.parametrize("name", supported())
def test_every_format(name, opened):
    """A value between two whole numbers may be rounded the other way: 1 / 127, here and there."""
    numbers = {"width": 256, "feed_forward": 256, "heads": 8, "head_width": 32, "layers": 1}
    agree(*opened(type=name, **numbers), bound=1e-3 if format_of(name).integer else 2e-6)


@pytest.mark.parametrize(
    "numbers",
    [
        {"feed_forward": 32},
        {"feed_forward": 416, "width": 96},
        {"architecture": "qwen2", "head_width": 32, "kv_heads": 1},
        {"heads": 6, "kv_heads": 6, "head_width": 16},
        {"heads": 7, "kv_heads": 1, "head_width": 32},
        {"vocab": 331},
    ],
    ids=str,
)
def test_odd_sizes(numbers, opened):
    agree(*opened(**numbers), bound=1e-3)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(
    "numbers",
    [
        {"feed_forward": 70, "width": 52, "vocab": 333},
        {"feed_forward": 33, "width": 44, "heads": 3, "kv_heads": 3, "head_width": 10},
        {"heads": 6, "kv_heads": 2, "head_width": 8, "layers": 7},
    ],
    ids=str,
)
def test_odd_sizes_of_floats(numbers, architecture, opened):
    agree(*opened(architecture=architecture, type="F16", **numbers), bound=2e-6)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("kind, bound", [("F32", 2e-6), ("Q8_0", 1e-3)])
def test_hidden_rows(architecture, kind, bound, opened):
    file, model = opened(architecture=architecture, type=kind, width=96)
    want = Interpreter(models.record(file), file).hidden(IDS)
    got = hidden(model, IDS, 64)
    assert got.shape == (len(IDS), model.width) and nmse(got, want) < bound


# ---- int8 pages -------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(
    "numbers",
    [
        {},
        {"heads": 6, "kv_heads": 6, "head_width": 16},
        {"heads": 6, "kv_heads": 2, "head_width": 80},
        {"type": "F16", "heads": 3, "kv_heads": 3, "head_width": 10, "feed_forward": 33},
    ],
    ids=str,
)
def test_int8_pages(numbers, architecture, opened):
    """V and its weights are off by up to 1 / 254 of their largest."""
    agree(*opened(architecture=architecture, kv_type="q8_0", **numbers), bound=2e-3)


def test_pages_take_what_was_estimated(opened):
    for kv_type in models.KV_TYPES:
        file, model = opened({"pages": 32}, kv_type=kv_type, head_width=80, width=96)
        page = models.estimate(file, kv_type=kv_type).page_bytes
        assert model.lowered.pool.group_bytes * 4 == page * 32
    with pytest.raises(Unsupported, match="q4_0"):
        opened(kv_type="q4_0")


def test_a_load_that_fails_leaves_no_threads(tmp_path):
    def fails():
        raise ValueError("no sample")

    before = threading.active_count()
    with GGUF.open(tiny.write(tmp_path / "a.gguf", text=False)) as file:
        with pytest.raises(ValueError, match="no sample"):
            models.load(file, device="cpu", threads=2, kv_type="q8_0", sample=fails)
        assert threading.active_count() == before


# ---- the same bits -------------------------------------------------------------------------------

MODELS = [{"architecture": name} for name in ARCHITECTURES]
MODELS += [{"architecture": name, "kv_type": "q8_0"} for name in ARCHITECTURES]
MODELS += [{"type": "F16"}, {"type": "Q6_K", "width": 256, "head_width": 64, "feed_forward": 256}]


@pytest.fixture(params=MODELS, ids=str)
def numbers(request):
    return request.param


def test_whole_in_chunks_and_token_by_token(numbers, opened):
    _, model = opened(**numbers)
    whole = logits(model, IDS)
    for chunk in (1, 2, 3, 7, 8, 33):
        np.testing.assert_array_equal(logits(model, IDS, chunk), whole)
    np.testing.assert_array_equal(logits(model, IDS[:41]), whole[:41])


def test_threads_room_and_pages_change_no_bit(numbers, opened):
    _, model = opened(**numbers)
    whole, rng = logits(model, IDS), np.random.default_rng(0)
    np.testing.assert_array_equal(logits(model, IDS, 20, rng.permutation(model.pages)), whole)
    for options in ({"threads": 1}, {"threads": 3}, {"max_rows": 100}, {"max_rows": 9}):
        _, other = opened(options, **numbers)
        np.testing.assert_array_equal(logits(other, IDS), whole, str(options))
        np.testing.assert_array_equal(logits(other, IDS, 1), whole, str(options))


def test_batch_mates_change_no_bit(numbers, opened):
    """Prompts, pieces of prompts and single tokens of many sequences in each step."""
    _, model = opened({"pages": 60, "max_rows": 64}, **numbers)
    rng = np.random.default_rng(1)
    texts = [rng.integers(0, 320, size).tolist() for size in (70, 33, 17, 90, 2)]
    alone = [logits(model, text) for text in texts]
    pages = np.split(rng.permutation(60)[:50], 5)
    done, got = [0] * 5, [[] for _ in texts]
    while any(done[s] < len(text) for s, text in enumerate(texts)):
        waiting = [s for s, text in enumerate(texts) if done[s] < len(text)]
        parts = []
        for s in rng.permutation(waiting):
            take = texts[s][done[s] : done[s] + int(rng.choice([1, 1, 2, 5, 12]))]
            parts.append((s, Part(take, pages[s], done[s])))
            done[s] += len(take)
        rows = model.forward(batch_of(*(part for _, part in parts)))
        for s, part in parts:
            got[s].append(rows[: len(part.ids)].copy())
            rows = rows[len(part.ids) :]
    for want, pieces in zip(alone, got, strict=True):
        np.testing.assert_array_equal(np.concatenate(pieces), want)


def test_only_the_wanted_rows_in_their_order(numbers, opened):
    _, model = opened(**numbers)
    whole, pages = logits(model, IDS[:60]), np.arange(model.pages)
    for wanted in ([59], [0], [3, 4, 17, 40, 58], list(range(0, 60, 2)), []):
        got = model.forward(batch_of(Part(IDS[:60], pages, 0, wanted)))
        np.testing.assert_array_equal(got, whole[wanted])
    model.forward(batch_of(Part(IDS[:59], pages, 0, [])))
    got = model.forward(batch_of(Part(IDS[59:60], pages, 59)))
    np.testing.assert_array_equal(got, whole[59:60])


def test_hidden_rows_beside_logits(numbers, opened):
    """Neither changes the other, however the batch is put together."""
    _, model = opened(**numbers)
    whole, logits_of = hidden(model, IDS, 64), logits(model, IDS)
    for chunk in (1, 2, 9):
        np.testing.assert_array_equal(hidden(model, IDS, chunk), whole)
    pages, others = np.arange(4), np.arange(4, 8)
    model.forward(batch_of(Part(IDS[:20], pages, 0, [])))
    got = model.forward(
        batch_of(
            Part(IDS[20:21], pages, 20, [0]),
            Part(IDS[:40], others, 0, [3, 39], [0, 1, 2, *range(4, 30)]),
        )
    )
    np.testing.assert_array_equal(got, logits_of[[20, 3, 39]])
    np.testing.assert_array_equal(model.hidden(), whole[[0, 1, 2, *range(4, 30)]])
    model.forward(batch_of(Part(IDS[20:21], pages, 20)))
    assert model.hidden().shape == (0, model.width)


def test_rows_that_share_a_long_prefix(opened):
    """More spans in all than a context has; and a deep row beside shallow ones."""
    _, model = opened({"pages": 120, "max_rows": 64, "context": 1600}, context=1600)
    shared = np.random.default_rng(4).integers(0, 320, 1504).tolist()
    for at in range(0, 1504, 64):
        part = Part(shared[at : at + 64], np.arange(94), at, [])
        model.forward(batch_of(part))
    own = [np.append(np.arange(94), 94 + s) for s in range(12)]
    alone = [model.forward(batch_of(Part([s], own[s], 1504))).copy() for s in range(12)]
    together = model.forward(batch_of(*(Part([s], own[s], 1504) for s in range(12))))
    np.testing.assert_array_equal(together, np.concatenate(alone))
    rows = [Part([0], own[0], 1504), Part([7], np.array([110]), 0), Part([7], np.array([111]), 0)]
    got = model.forward(batch_of(*rows)).copy()
    np.testing.assert_array_equal(got[0], alone[0][0])
    np.testing.assert_array_equal(got[1], got[2])


def test_many_sequences_decode_together(opened):
    """As many as split spans apart, and more than that."""
    _, model = opened({"pages": 400, "max_rows": 64, "context": 256}, context=256)
    rng = np.random.default_rng(2)
    texts = rng.integers(0, 320, (40, 150)).tolist()
    alone = [logits(model, text)[-1] for text in texts]
    pages = rng.permutation(400).reshape(40, 10)
    for s, text in enumerate(texts):
        for at in range(0, 149, 64):
            model.forward(batch_of(Part(text[at : min(at + 64, 149)], pages[s], at, [])))
    for count in (1, 2, 5, 9, 40):
        rows = [Part(texts[s][149:], pages[s], 149) for s in range(count)]
        np.testing.assert_array_equal(model.forward(batch_of(*rows)), alone[:count])
