"""What int8 pages learn of K, against the same worked out token by token."""

import numpy as np
import pytest

from localllm.backends.cpu import learn
from localllm.backends.cpu.memory import Rows
from localllm.program import Attention, Rope

HEADS, KV_HEADS, DIMS = 4, 2, 48
NOWHERE = Rows(0, 0)


def learned(rope, q, k, **more):
    a = Attention(0, HEADS, KV_HEADS, DIMS, DIMS, DIMS**-0.5, **more)
    how = {"rope": rope, "gains": (None, None), "epsilon": 0.0, "rotation": 16}
    shape = learn.empty(0, a, NOWHERE, NOWHERE, **how)
    shape.learn(q, k)
    return shape


@pytest.fixture
def rows():
    rng = np.random.default_rng(8)
    k = rng.normal(size=(40, KV_HEADS, DIMS)) * rng.uniform(0.1, 4, (KV_HEADS, DIMS))
    return rng.normal(size=(40, HEADS, DIMS)), k + rng.normal(size=(KV_HEADS, DIMS)) * 30


def turned(rope, x, position):
    """RoPE of one token's heads, pair by pair."""
    y, count = x.copy(), len(rope.speeds)
    for n, speed in enumerate(rope.speeds):
        i, j = (2 * n, 2 * n + 1) if rope.pairs == "neighbours" else (n, n + count)
        cos, sin = np.cos(position * speed), np.sin(position * speed)
        y[..., i], y[..., j] = x[..., i] * cos - x[..., j] * sin, x[..., j] * cos + x[..., i] * sin
    return y


@pytest.mark.parametrize("pairs", ["neighbours", "halves"])
@pytest.mark.parametrize("count", [24, 16])
def test_offsets_and_scales(pairs, count, rows):
    """The offset is the mean over all positions; slow dims, which hardly turn, keep theirs."""
    rope = Rope(pairs, tuple(10.0 ** -np.linspace(0, 6, count)))
    q, k = rows
    shape = learned(rope, q, k)
    mean = k[1:].mean(0)
    centre = np.mean([turned(rope, mean, t) for t in range(learn.POSITIONS)], 0)
    np.testing.assert_allclose(shape.centres[:, :DIMS], centre, rtol=1e-5, atol=1e-4)
    partner = np.arange(DIMS)
    for n in range(count):
        i, j = (2 * n, 2 * n + 1) if pairs == "neighbours" else (n, n + count)
        partner[[i, j]] = j, i
    along = np.array([turned(rope, x, t) for t, x in enumerate(k)])[1:] - centre
    of_k = (along**2).mean(0)
    of_q = (q.reshape(40, KV_HEADS, 2, DIMS) ** 2).mean((0, 2))
    ratio = np.sqrt((of_k + of_k[:, partner]) / (of_q + of_q[:, partner]))
    want = np.sqrt(ratio / ratio.mean(-1, keepdims=True))
    np.testing.assert_allclose(shape.factors[:, :DIMS], want, rtol=1e-5)
    np.testing.assert_allclose(shape.inverses[:, :DIMS], 1 / want, rtol=1e-5)


@pytest.mark.parametrize("pairs", ["neighbours", "halves"])
def test_what_dims_of_q_have_in_common(pairs, rows):
    """The mean product of two dims over all positions; the first token is left out."""
    rope, q = Rope(pairs, tuple(10.0 ** -np.linspace(0, 6, 20))), rows[0][:3]
    shape = learned(rope, q, rows[1][:3])
    got = shape._products(q)
    want = np.zeros((KV_HEADS, DIMS, DIMS))
    for position in range(learn.POSITIONS):
        x = turned(rope, q[1:], position).reshape(2, KV_HEADS, 2, DIMS)
        want += np.einsum("tkgi,tkgj->kij", x, x) / 4 / learn.POSITIONS
    np.testing.assert_allclose(got, want, atol=1e-9)
    assert np.array_equal(shape.feedback, np.triu(shape.feedback, 1)) and shape.feedback.any()


def test_a_softcap_leaves_scores_where_they_are(rows):
    assert not learned(None, *rows, softcap=30.0).centres.any()
    assert learned(None, *rows).centres[:, :DIMS].all()


def test_a_sample_of_one_token_teaches_nothing(rows):
    shape = learned(Rope("halves", (1.0, 0.0)), rows[0][:1], rows[1][:1])
    assert not shape.centres.any() and (shape.factors == 1).all() and (shape.inverses == 1).all()
    assert not shape.feedback.any()


def test_a_silent_sample(rows):
    """Zeros give no scale to divide by."""
    shape = learned(None, rows[0] * 0, rows[1] * 0)
    for numbers in (shape.centres, shape.factors, shape.inverses, shape.feedback):
        assert np.isfinite(numbers).all()
