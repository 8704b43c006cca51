"""Programs on torch's CPU device, held against NumPy: every architecture, format and batch."""

import dataclasses

import numpy as np
import pytest
import tiny

torch = pytest.importorskip("torch", reason="needs torch: pip install '.[torch]'")

from interpreter import Interpreter, nmse  # noqa: E402
from recorded import Part, batch_of, hidden, i32, logits  # noqa: E402
from test_batch import BAD, CONTEXT, PAGES, ROWS, good  # noqa: E402

from localllm import models  # noqa: E402
from localllm.backends.torch.blocks import UNPACK  # noqa: E402
from localllm.backends.torch.device import Device  # noqa: E402
from localllm.backends.torch.model import TorchModel  # noqa: E402
from localllm.errors import BadRequest, Unsupported  # noqa: E402
from localllm.gguf import GGUF  # noqa: E402
from localllm.program import Op, Program  # noqa: E402

EXACT = Device("torch CPU", "cpu", exact=True, chunk=1 << 12)  # matrices come in several pieces
HALVES = Device("torch CPU", "cpu", exact=False, chunk=1 << 20)  # products as on a GPU
ROUNDED = 1e-6  # of the signal: what 16-bit K and V cost
IDS = np.random.default_rng(5).integers(0, 320, 100).tolist()
WIDE = {"width": 256, "feed_forward": 256, "heads": 8, "head_width": 32}


@pytest.fixture
def opened(tmp_path):
    """opened(architecture="llama", ...) -> (file, model on torch); both are closed at the end."""
    closing = []

    def open_(device=EXACT, options=None, **numbers):
        path = tiny.write(tmp_path / f"{len(closing)}.gguf", text=False, **numbers)
        file = GGUF.open(path)
        options = {"context": 256, "pages": 16, "max_rows": 64, **(options or {})}
        model = TorchModel(file, models.record(file), device, **options)
        closing.extend([model, file])
        return file, model

    yield open_
    for each in closing:
        each.close()


def agree(file, model, bound=ROUNDED):
    exact = Interpreter(models.record(file), file, rows8=False).logits(IDS)
    assert nmse(logits(model, IDS), exact) < bound


@pytest.mark.parametrize("architecture", models.supported())
def test_every_architecture(architecture, opened):
    agree(*opened(architecture=architecture))
    agree(*opened(HALVES, architecture=architecture), bound=3e-6)


@pytest.mark.parametrize("kind", UNPACK)
def test_every_format(kind, opened):
    agree(*opened(type=kind, **WIDE), bound=1e-5)  # these random scores are large


@pytest.mark.parametrize(
    "numbers",
    [
        {"feed_forward": 70, "width": 52, "vocab": 333, "type": "F16"},
        {"heads": 7, "kv_heads": 1, "head_width": 32},
        {"heads": 6, "kv_heads": 6, "architecture": "gemma3"},
        {"layers": 1},
    ],
    ids=str,
)
def test_odd_sizes(numbers, opened):
    agree(*opened(**numbers))


@pytest.mark.parametrize("architecture", models.supported())
def test_chunks_pages_and_room_change_nothing_to_speak_of(architecture, opened):
    _, model = opened(architecture=architecture)
    whole, random = logits(model, IDS), np.random.default_rng(0)
    for chunk in (1, 3, 33):
        got = logits(model, IDS, chunk, random.permutation(model.pages))
        assert nmse(got, whole) < 1e-6


@pytest.mark.parametrize("architecture", models.supported())
def test_batch_mates_change_nothing_to_speak_of(architecture, opened):
    """Prompts, pieces of prompts and single tokens of several sequences in each step."""
    _, model = opened(options={"pages": 60}, architecture=architecture)
    random = np.random.default_rng(1)
    texts = [random.integers(0, 320, size).tolist() for size in (70, 33, 17, 90, 2)]
    alone = [logits(model, text) for text in texts]
    pages, done = np.split(random.permutation(60)[:50], 5), [0] * 5
    while waiting := [s for s, text in enumerate(texts) if done[s] < len(text)]:
        takes = {
            s: texts[s][done[s] : done[s] + int(random.choice([1, 1, 5, 12]))] for s in waiting
        }
        parts = [Part(ids, pages[s], done[s]) for s, ids in takes.items()]
        rows = model.forward(batch_of(*parts))
        for s, ids in takes.items():
            want = alone[s][done[s] : done[s] + len(ids)]
            assert nmse(rows[: len(ids)], want) < 1e-5
            rows, done[s] = rows[len(ids) :], done[s] + len(ids)


def test_only_the_wanted_rows_in_their_order(opened):
    _, model = opened()
    whole, pages = logits(model, IDS[:60]), np.arange(16)
    for wanted in ([59], [0], [3, 4, 17, 40, 58], []):
        got = model.forward(batch_of(Part(IDS[:60], pages, 0, wanted)))
        np.testing.assert_allclose(got, whole[wanted], atol=1e-4)


@pytest.mark.parametrize("architecture", models.supported())
def test_hidden_rows_beside_logits(architecture, opened):
    file, model = opened(architecture=architecture)
    want = Interpreter(models.record(file), file, rows8=False).hidden(IDS)
    for chunk in (64, 1, 9):
        assert nmse(hidden(model, IDS, chunk), want) < ROUNDED
    pages, logits_of = np.arange(16), logits(model, IDS)
    got = model.forward(batch_of(Part(IDS[:40], pages, 0, [3, 39], [0, 1, 5, 30])))
    np.testing.assert_allclose(got, logits_of[[3, 39]], atol=1e-4)
    assert model.hidden().shape == (4, model.width)
    assert nmse(model.hidden(), want[[0, 1, 5, 30]]) < ROUNDED


def test_a_softcap_bends_logits_and_scores(opened):
    """Programs of no architecture that is here yet: attention's own softcap."""
    file, model = opened()
    program = models.record(file)
    for i, op in enumerate(program.ops):
        if op.attention:
            capped = dataclasses.replace(op.attention, softcap=0.5, scale=1.0)
            program.ops[i] = dataclasses.replace(op, attention=capped)
    program.ops[-1] = dataclasses.replace(program.ops[-1], scale=2.0)
    other = TorchModel(file, program, EXACT, context=256, pages=16, max_rows=64)
    exact = Interpreter(program, file, rows8=False).logits(IDS)
    assert nmse(logits(other, IDS), exact) < ROUNDED < nmse(logits(model, IDS), exact)


def test_memory_is_the_files_blocks_pages_and_buffers(opened):
    file, model = opened(type="Q4_K", **WIDE, vocab=2048)
    weights, pages, buffers = model.runner.bytes
    assert weights == sum(info.nbytes for info in file.tensors.values())
    assert pages == 2 * 17 * 16 * 2 * (32 + 32) * 2  # layers, pages and a spare, ..., bytes
    assert buffers < 64 * 20 * 256 * 4 + 64 * 2048 * 4


@pytest.mark.parametrize("name", sorted(BAD.keys() - {"tables too wide"}))
def test_a_bad_batch_is_refused_and_leaves_no_trace(name, opened):
    options = {"context": CONTEXT, "pages": PAGES, "max_rows": ROWS}
    _, model = opened(options=options, layers=1)
    want = model.forward(good())
    fields = {key: i32(value) for key, value in BAD[name].items()}
    with pytest.raises(BadRequest):
        model.forward(dataclasses.replace(good(), **fields))
    np.testing.assert_array_equal(model.forward(good()), want)
    tables = i32([[0, -5], [4, 5]])  # the pages that are not needed are not looked at
    np.testing.assert_array_equal(model.forward(dataclasses.replace(good(), tables=tables)), want)


def test_what_torch_does_not_know_is_named(opened, tmp_path):
    file, _ = opened()
    ops = models.record(file).ops
    program = Program([*ops[:-1], Op("ssm_scan", (0,), 64), ops[-1]])
    with pytest.raises(Unsupported, match="'ssm_scan'"):
        TorchModel(file, program, EXACT, context=256, pages=16)
