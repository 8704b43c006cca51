"""Norms, RoPE, gates and attention over pages, each in a small program, against plain NumPy."""

import numpy as np
import pytest
from interpreter import Interpreter, nmse
from recorded import Tensors, logits, model_of

from localllm.program import Attention, Rope

pytestmark = pytest.mark.usefixtures("kept_kernels")
VOCAB = 96  # rows of the embedding: what the tokens are


def embedding(rng, width: int, spread: float = 1.0) -> Tensors:
    tensors = Tensors()
    tensors.add("embd.weight", rng.normal(size=(VOCAB, width)) * spread)
    return tensors


def show(m, tensors: Tensors, value):
    """End a program with the value itself as the first of its logits; zeros fill up to VOCAB."""
    rows = max(value.width, VOCAB)
    tensors.add("same.weight", np.eye(rows, value.width))
    m.shapes["same.weight"] = (rows, value.width)
    m.logits(value, "same")
    return m.program


def start(tensors: Tensors):
    """A recorder, and the embedding after a layer of attention that nobody reads."""
    width = tensors.tensors["embd.weight"].shape[1]
    tensors.add("k.weight", np.eye(16, width))
    m = tensors.recorder()
    x = m.embed("embd", scale=1.5)
    k = m.linear(x, "k")
    m.attend(k, k, k, numbers(1, 1, 16))
    return m, x


def both(tensors: Tensors, program, ids, chunks=(None,), **options):
    """What the backend gives, in each of these chunks the same bits, and what NumPy gives."""
    model = model_of(tensors, program, **options)
    try:
        got = [logits(model, ids, chunk) for chunk in chunks]
    finally:
        model.close()
    for other in got[1:]:
        np.testing.assert_array_equal(got[0], other)
    return got[0], Interpreter(program, tensors).logits(ids)


# ---- rows --------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [32, 40, 64, 100, 576])
def test_rms_norm(width, rng):
    tensors = embedding(rng, width, spread=3)
    tensors.add("norm.weight", rng.normal(size=width))
    m, x = start(tensors)
    program = show(m, tensors, m.rms_norm(x, "norm", 1e-5))
    got, want = both(tensors, program, rng.integers(0, VOCAB, 19))
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("activation", ["silu", "gelu"])
@pytest.mark.parametrize("wide", [32, 72, 130])
def test_gate(activation, wide, rng):
    tensors = embedding(rng, 64)
    for name in ("gate", "up"):
        tensors.add(f"{name}.weight", rng.normal(size=(wide, 64)) / 4)
        tensors.add(f"{name}.bias", rng.normal(size=wide))
    m, x = start(tensors)
    program = show(m, tensors, m.gate(m.linear(x, "gate"), m.linear(x, "up"), activation))
    got, want = both(tensors, program, rng.integers(0, VOCAB, 150), max_rows=150)
    np.testing.assert_allclose(got, want, rtol=3e-5, atol=3e-5)


def test_additions_that_no_product_can_make(rng):
    tensors = embedding(rng, 64)
    tensors.add("a.weight", rng.normal(size=(64, 64)) / 8)
    m, x = start(tensors)
    y = m.linear(x, "a")
    program = show(m, tensors, m.add(m.add(y, y), m.add(x, y)))
    got, want = both(tensors, program, rng.integers(0, VOCAB, 21))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


# ---- attention ---------------------------------------------------------------------------------


def layer(rng, a: Attention, rope: Rope | None, norms: bool = False, spread: float = 1.0):
    """A program of one attention layer, its q, k and v being parts of the embedding."""
    widths = [a.heads * a.k_dims, a.kv_heads * a.k_dims, a.kv_heads * a.v_dims]
    tensors = embedding(rng, sum(widths), spread)
    whole = np.eye(sum(widths))
    for name, begin, width in zip("qkv", np.cumsum([0, *widths]), widths, strict=False):
        tensors.add(f"{name}.weight", whole[begin : begin + width])
    for name in "qk":
        tensors.add(f"{name}_norm.weight", 1 + rng.normal(size=a.k_dims) / 4)
    m = tensors.recorder()
    x = m.embed("embd")
    q, k, v = (m.linear(x, name) for name in "qkv")
    if norms:
        q = m.head_norm(q, "q_norm", a.heads, 1e-6)
        k = m.head_norm(k, "k_norm", a.kv_heads, 1e-6)
    if rope:
        q, k = m.rope(q, rope, a.heads), m.rope(k, rope, a.kv_heads)
    return tensors, show(m, tensors, m.attend(q, k, v, a))


def speeds(dims: int) -> tuple[float, ...]:
    return tuple(100.0 ** -(np.arange(0, dims, 2) / dims))


def numbers(heads=4, kv_heads=2, dims=32, v_dims=None, **more) -> Attention:
    return Attention(0, heads, kv_heads, dims, v_dims or dims, dims**-0.5, **more)


def holds(tensors, program, ids, chunks=(None, 1, 7), **options):
    got, want = both(tensors, program, ids, chunks, **options)
    assert nmse(got, want) < 1e-6


@pytest.mark.parametrize("group", [1, 2, 3, 4, 7, 8, 12])
def test_heads_that_share_keys(group, rng):
    a = numbers(heads=2 * group, kv_heads=2)
    holds(*layer(rng, a, Rope("halves", speeds(32))), rng.integers(0, VOCAB, 40))


@pytest.mark.parametrize("dims", [16, 24, 48, 64, 80, 96, 128, 256])
def test_widths_of_heads(dims, rng):
    a = numbers(dims=dims)
    holds(*layer(rng, a, Rope("halves", speeds(dims))), rng.integers(0, VOCAB, 37))


@pytest.mark.parametrize(("k_dims", "v_dims"), [(32, 48), (64, 16), (96, 40), (32, 20)])
def test_values_of_another_width_than_keys(k_dims, v_dims, rng):
    a = numbers(dims=k_dims, v_dims=v_dims)
    holds(*layer(rng, a, None), rng.integers(0, VOCAB, 37))


@pytest.mark.parametrize("pairs", ["neighbours", "halves"])
@pytest.mark.parametrize("turned", [6, 16, 32])
@pytest.mark.parametrize("norms", [False, True])
def test_rope_of_all_dims_or_some_after_a_norm_or_none(pairs, turned, norms, rng):
    rope = Rope(pairs, speeds(turned), magnitude=1.0 if norms else 1.25)
    tensors, program = layer(rng, numbers(), rope, norms)
    holds(tensors, program, rng.integers(0, VOCAB, 33), chunks=(None,))


@pytest.mark.parametrize("window", [1, 5, 16, 33, 128, 200])
def test_windows(window, rng):
    tensors, program = layer(rng, numbers(window=window), Rope("halves", speeds(32)))
    holds(tensors, program, rng.integers(0, VOCAB, 300))


def test_softcap(rng):
    tensors, program = layer(rng, numbers(softcap=4.0), None, spread=2)
    holds(tensors, program, rng.integers(0, VOCAB, 60))


def test_scores_far_apart(rng):
    """One key takes all the weight; the rest of a span is nothing beside it."""
    tensors, program = layer(rng, numbers(), None, spread=6)
    got, want = both(tensors, program, rng.integers(0, VOCAB, 200), (None, 1))
    assert np.isfinite(got).all() and nmse(got, want) < 1e-5


@pytest.mark.parametrize("heads", [(2, 1), (9, 3)])
def test_depth_over_several_spans(heads, rng):
    tensors, program = layer(rng, numbers(*heads, dims=64), Rope("neighbours", speeds(64)))
    ids = rng.integers(0, VOCAB, 700)
    got, want = both(tensors, program, ids, (None, 13), context=1024, pages=64)
    assert nmse(got, want) < 1e-6
    assert nmse(got[-100:], want[-100:]) < 1e-6


def test_pages_may_lie_anywhere(rng):
    tensors, program = layer(rng, numbers(), Rope("halves", speeds(32)))
    ids = rng.integers(0, VOCAB, 330)
    model = model_of(tensors, program, pages=40)
    want = logits(model, ids)
    for _ in range(3):
        pages = rng.permutation(40)[:21]
        np.testing.assert_array_equal(logits(model, ids, 50, pages), want)
        np.testing.assert_array_equal(logits(model, ids[:140], 1, pages), want[:140])
    model.close()


def test_a_page_that_was_used_before_leaves_no_trace(rng):
    tensors, program = layer(rng, numbers(), None)
    model = model_of(tensors, program, pages=4)
    ids = rng.integers(0, VOCAB, (2, 40))
    want = logits(model, ids[1][:9])
    logits(model, ids[0])
    np.testing.assert_array_equal(logits(model, ids[1][:9]), want)
    model.close()
