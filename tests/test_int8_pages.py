"""What int8 pages hold of K, against plain NumPy, and what making up for errors wins."""

import numpy as np
import pytest
from recorded import Tensors, logits, model_of

from localllm.backends.cpu import learn
from localllm.batch import PAGE
from localllm.kernels.pages8 import BLOCK, k_bytes
from localllm.kernels.rotation import rotation_matrix, rotation_size
from localllm.program import Attention

pytestmark = pytest.mark.usefixtures("kept_kernels")
TOKENS = 40
HEADS = 2


def model_with(dims: int, rows: np.ndarray):
    """A model whose second layer's K are these rows (TOKENS, HEADS x dims), token t being row t;
    nobody reads its first."""
    first, a = (Attention(n, HEADS, HEADS, dims, dims, dims**-0.5) for n in range(2))
    rows = np.pad(rows, ((0, HEADS * dims), (0, 0)))  # as many ids as dims, or more
    tensors = Tensors(embd__weight=rows, same__weight=np.eye(len(rows), HEADS * dims))
    tensors.add("k.weight", np.eye(HEADS * dims))
    m = tensors.recorder()
    x = m.embed("embd")
    k = m.linear(x, "k")
    m.attend(k, k, k, first)
    m.logits(m.attend(k, k, k, a), "same")
    return model_of(tensors, m.program, kv_type="q8_0", sample=lambda: [0])  # learns nothing


def of_pages(model, dims: int) -> np.ndarray:
    """(TOKENS, HEADS, dims rounded up to 32) of K as the first pages of a model hold it."""
    padded, size, pool = -(-dims // 32) * 32, k_bytes(dims), model.lowered.pool
    out = np.zeros((48, HEADS, padded))
    for head in range(HEADS):
        first = pool.offsets[1] + head * pool.head_bytes(model.program.layers[1])
        for page in range(3):
            raw = pool.memory[first + page * size :][:size]
            whole = raw[: padded * PAGE].view(np.int8).reshape(padded // 2, PAGE, 2)
            brain = raw[padded * PAGE :].view(np.uint16).reshape(-1, PAGE).astype(np.uint32) << 16
            scales = brain.view(np.float32).repeat(BLOCK, 0).T
            rows = slice(page * PAGE, page * PAGE + PAGE)
            out[rows, head] = whole.swapaxes(0, 1).reshape(PAGE, padded) * scales
    return out[:TOKENS]


def rounded(x: np.ndarray, feedback: np.ndarray) -> np.ndarray:
    """The same in NumPy: rows (T, n) in blocks, each on top of what those before it lost."""
    x, out = x.copy(), np.zeros_like(x)
    for begin in range(0, x.shape[-1], BLOCK):
        block = slice(begin, begin + BLOCK)
        scale = np.abs(x[:, block]).max(-1, keepdims=True) / 127
        above = (scale * (1 + 2**-7)).astype(np.float32).view(np.uint32) & 0xFFFF0000
        scale = np.maximum(above.view(np.float32), 1e-30)
        out[:, block] = np.rint(x[:, block] / scale) * scale
        x = x + (x[:, block] - out[:, block]) @ feedback[block]
    return out


@pytest.mark.parametrize("dims", [16, 24, 64, 80, 128])
def test_k_is_what_was_rounded(dims):
    rng, padded = np.random.default_rng(dims), -(-dims // 32) * 32
    rows = rng.normal(size=(TOKENS, HEADS * dims)) * 10 ** rng.uniform(-3, 3, (TOKENS, 1))
    rows[3] = 0
    feedback = np.zeros((HEADS, padded, padded))
    for end in range(BLOCK, dims, BLOCK):
        feedback[:, end - BLOCK : end, end:dims] = rng.normal(size=(HEADS, BLOCK, dims - end)) / 4
    model = model_with(dims, rows)
    try:
        model.lowered.shapes[0].feedback[:] = feedback
        logits(model, np.arange(TOKENS))
        got = of_pages(model, dims)
    finally:
        model.close()
    turn = rotation_matrix(padded, rotation_size(dims))
    for head in range(HEADS):
        x = np.zeros((TOKENS, padded))
        x[:, :dims] = rows.astype(np.float32)[:, head * dims : (head + 1) * dims]
        want = rounded(x @ turn, feedback[head])
        off = np.abs(got[:, head] - want) > 1e-4 * np.abs(x).max(-1, keepdims=True)
        assert off.mean() < 0.02  # a number between two may go either way, and others with it
        steps = np.abs(got[:, head] - want) / np.maximum(np.abs(want).max(-1, keepdims=True), 1e-30)
        assert steps.max() < 3 / 127


@pytest.mark.parametrize(
    ("windows", "wide"), [([0, 0, 0], {0}), ([8, 8, 0, 8, 0], {0, 2}), ([0, 8, 9], {0, 1})]
)
def test_layers_that_keep_16_bits(windows, wide):
    """The first layer, and the first whose window is of the other sort."""
    tensors = Tensors(embd__weight=np.eye(16))
    m = tensors.recorder()
    x = m.embed("embd")
    for n, window in enumerate(windows):
        x = m.attend(x, x, x, Attention(n, 1, 1, 16, 16, 0.25, window))
    for a in m.program.layers:
        assert a.pages_of("f16") == "f16"
        assert a.pages_of("q8_0") == ("f16" if a.layer in wide else "q8_0")


def test_errors_that_are_made_up_for():
    """Where dims of Q go together, the products of Q with what is held are nearer for it."""
    rng = np.random.default_rng(4)
    mixed = rng.normal(size=(8, 64)) + rng.normal(size=(8, 1)) / 4
    q = rng.normal(size=(400, 8)) @ mixed + rng.normal(size=(400, 64)) / 4
    k = rng.normal(size=(400, 64))
    feedback = learn.feedback_of((q[:200].T @ q[:200] / 200)[None])[0]
    assert not np.tril(feedback).any()
    plain = (q[200:] @ (rounded(k, 0 * feedback) - k).T) ** 2
    made = (q[200:] @ (rounded(k, feedback) - k).T) ** 2
    assert made.mean() < 0.6 * plain.mean()
    alone = learn.feedback_of(np.eye(64)[None])
    assert np.abs(alone).max() == 0
