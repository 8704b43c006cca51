"""The kernel that draws tokens, against the sampler in Python."""

import numpy as np
import pytest
import tiny
from fake_model import Run, finish

from localllm import models, wishes
from localllm.engine.engine import Engine
from localllm.engine.sampler import Sampler
from localllm.gguf import GGUF
from localllm.kernels import draw
from localllm.kernels.fields import BATCH, BATCH_FIELDS, DRAWN, SCRATCH, WISHES
from localllm.request import Request
from localllm.sampling import Sampling
from quant.simd import LANES

pytestmark = pytest.mark.usefixtures("kept_kernels")
SETTINGS = (
    {},
    {"temperature": 0},
    {"temperature": 2.5, "top_p": 1.0},
    {"top_k": 1},
    {"top_k": 128, "min_p": 0.0, "top_p": 0.999},
    {"top_k": 7, "top_p": 0.3, "min_p": 0.2},
    {"top_k": 40, "min_p": 1.0},
)


def drawn(logits: np.ndarray, rows: list[np.ndarray]) -> list[int]:
    """What is drawn from logits (n, vocab) f32 by those wishes."""
    logits, wish = logits.copy(), np.array(rows, np.float32)
    peaks = logits.reshape(len(logits), -1, LANES).max(axis=2)
    batch, args = np.zeros(BATCH_FIELDS, np.int64), np.zeros(draw.TILES + 1, np.int64)
    scratch, out = np.zeros(1 << 14, np.uint8), np.zeros(len(logits), np.int64)
    batch[WISHES], args[BATCH], args[SCRATCH] = (x.ctypes.data for x in (wish, batch, scratch))
    args[draw.LOGITS], args[draw.STRIDE] = logits.ctypes.data, logits.strides[0]
    args[draw.PEAKS], args[draw.PEAKS_STRIDE] = peaks.ctypes.data, peaks.strides[0]
    args[draw.TILES], batch[DRAWN] = peaks.shape[1], out.ctypes.data
    draw.draw(args.ctypes.data, 0, len(logits), 0)
    return out.tolist()


def sampler(seed: int = 1, vocab: int = 4096, ends=(), **settings) -> Sampler:
    asked = Request([1], Sampling(**settings), end_ids=frozenset(ends))
    return Sampler(asked, vocab, seed)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("vocab", [4096, 40 * LANES, LANES])
def test_it_draws_what_the_sampler_picks(settings, vocab):
    dice = np.random.default_rng(vocab)
    logits = dice.normal(size=(60, vocab)).astype(np.float32) * 3
    logits[::3] = np.round(logits[::3])  # many that are equal
    samplers = [sampler(seed, vocab, **settings) for seed in range(60)]
    rows = [s.wish(n + 1).copy() for n, s in enumerate(samplers)]
    pasts = [np.zeros(n + 1, np.int32) for n in range(60)]
    want = [s.pick(row.copy(), p)[0] for s, row, p in zip(samplers, logits, pasts, strict=True)]
    assert drawn(logits, rows) == want


def test_what_must_not_come_does_not():
    logits = np.random.default_rng(0).normal(size=(1, 4096)).astype(np.float32)
    best = np.argsort(-logits[0])[:3].tolist()
    held = sampler(temperature=0, ignore_eos=True, ends=best[:2])
    assert drawn(logits, [held.wish(5)]) == best[2:]
    free = sampler(temperature=0, ends=best[:2])
    assert drawn(logits, [free.wish(5)]) == best[:1]
    late = sampler(temperature=0, min_tokens=3, ends=best[:1])
    assert [drawn(logits, [late.wish(n)])[0] for n in (3, 4)] == [best[1], best[0]]


@pytest.mark.parametrize("number", [np.nan, -np.inf, np.inf])
def test_no_token_comes_of_what_is_no_number(number):
    logits = np.zeros((3, 4096), np.float32)
    logits[1] = number
    rows = [sampler().wish(1).copy() for _ in range(3)]
    rows[2][wishes.TOP] = 0
    first, bad, unasked = drawn(logits, rows)
    assert 0 <= first < 40 and bad == unasked == -1


def test_a_row_is_drawn_from_by_itself():
    dice = np.random.default_rng(3)
    logits = dice.normal(size=(len(SETTINGS), 4096)).astype(np.float32) * 4
    rows = [sampler(n, **settings).wish(9).copy() for n, settings in enumerate(SETTINGS)]
    alone = [drawn(logits[n : n + 1], rows[n : n + 1])[0] for n in range(len(rows))]
    assert drawn(logits, rows) == alone
    assert drawn(logits[::-1], rows[::-1]) == alone[::-1]


@pytest.mark.parametrize(
    "settings",
    [
        {"top_k": 0}, {"top_k": 200}, {"typical_p": 0.9}, {"repeat_penalty": 1.1},
        {"logit_bias": {3: 1.0}}, {"mirostat": 2}, {"dynatemp_range": 0.5},
        {"samplers": ("temperature", "top_k")}, {"temperature": 0, "presence_penalty": 1.0},
    ],
    ids=str,
)  # fmt: skip
def test_other_settings_are_the_samplers(settings):
    assert sampler(**settings).wish(3) is None


def test_answers_that_the_model_draws(tmp_path, monkeypatch):
    """Alone or together, beside one that needs the sampler and one that wants logits."""
    with GGUF.open(tiny.write(tmp_path / "m.gguf", text=False, layers=1)) as file:
        model = models.load(file, device="cpu", threads=2, context=256, pages=64, max_rows=32)
        asked = [
            Request(list(range(2, 6 + n)), Sampling(seed=n, **settings), max_tokens=12, **more)
            for n, (settings, more) in enumerate(
                [({}, {}), ({"temperature": 0}, {}), ({"top_k": 0}, {}), ({"top_k": 3}, {}),
                 ({"temperature": 0}, {"logit_rows": True}), ({}, {"end_ids": frozenset([7])})]
            )
        ]  # fmt: skip
        alone = [answers(model, request)[0] for request in asked]
        assert answers(model, *asked) == alone
        picked = []
        pick = Sampler.pick
        monkeypatch.setattr(
            Sampler, "pick", lambda s, row, past: (picked.append(s), pick(s, row, past))[1]
        )
        assert answers(model, *asked) == alone
        assert len(picked) == 24 and len(set(picked)) == 2
        model.draws = False  # then all are picked in Python, and the same
        assert answers(model, *asked) == alone
        model.close()


def answers(model, *asked: Request) -> list[list[int]]:
    engine = Engine(model)
    runs = [Run(engine, request) for request in asked]
    finish(engine, *runs)
    return [run.ids for run in runs]
