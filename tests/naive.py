"""Plain NumPy twins of the kernels, in f64 where it matters: slow, and plain to see."""

import numpy as np

from quant.target import TARGET

BLOCK = 32  # columns that share a scale of int8 rows


# ---- rows and products --------------------------------------------------------------------------


def int8_rows(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(T, n) f32 -> whole numbers (T, n / 32, 32) of -127 to 127 and scales (T, n / 32) f32."""
    blocks = x.astype("f4").reshape(len(x), -1, BLOCK)
    largest = np.abs(blocks).max(2)
    small = largest <= np.float32(1e-30)
    inverse = np.where(small, np.float32(0), np.float32(127) / np.where(small, 1, largest))
    return np.rint(blocks * inverse[..., None].astype("f4")), largest * np.float32(1 / 127)


def rounded(x: np.ndarray) -> np.ndarray:
    """(T, n) as int8 rows hold it, f64; zeros fill up the last block."""
    padded = np.pad(x, ((0, 0), (0, -x.shape[1] % BLOCK)))
    q, scale = int8_rows(padded)
    return (q * scale[..., None].astype("f8")).reshape(padded.shape)[:, : x.shape[1]]


def panel(x: np.ndarray, slots: int) -> np.ndarray:
    """Up to `slots` rows of f32 as the bytes of one panel (see quant.rows); free slots are 0xFF."""
    q, scale = int8_rows(x)
    tokens, blocks = scale.shape
    kind = np.dtype(
        [("q", "i1", (slots, BLOCK)), ("scale", "<f4", slots), ("sum", "<f4", slots),
         ("first", "<i4", slots), ("last", "<i4", slots)]
    )  # fmt: skip
    out = np.full(blocks * kind.itemsize, 255, np.uint8).view(kind)
    halves = -128 * q.reshape(tokens, blocks, 2, 16).sum(3)
    out["q"][:, :tokens] = q.transpose(1, 0, 2)
    out["scale"][:, :tokens] = scale.T
    out["sum"][:, :tokens] = (scale * halves.sum(2).astype("f4")).T
    out["first"][:, :tokens], out["last"][:, :tokens] = halves[..., 0].T, halves[..., 1].T
    if TARGET.narrow:
        sums = (halves // -128).astype("<i2").view("<i4")[..., 0]
        out["first"][:, :tokens] = sums.T
    return out.view(np.uint8)


def panels(x: np.ndarray, slots: int = 8) -> np.ndarray:
    """(T, n) f32 as panels one after the other."""
    return np.concatenate([panel(x[t : t + slots], slots) for t in range(0, len(x), slots)])


def product(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    """(rows, n) and (T, n) -> (T, rows) f64."""
    return x.astype("f8") @ w.astype("f8").T


# ---- element by element -------------------------------------------------------------------------


def rms_norm(x: np.ndarray, gain: np.ndarray, epsilon: float) -> np.ndarray:
    """Each row over the root of its mean square."""
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon) * gain


def layer_norm(x: np.ndarray, gain: np.ndarray, shift: np.ndarray, epsilon: float) -> np.ndarray:
    """Each row less its mean, over its deviation."""
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon) * gain + shift


def silu(x: np.ndarray) -> np.ndarray:
    """x times its logistic function."""
    return x / (1 + np.exp(-x))


def gelu(x: np.ndarray) -> np.ndarray:
    """The tanh form (Hendrycks and Gimpel, arXiv 1606.08415)."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def rope(x: np.ndarray, positions: np.ndarray, rope) -> np.ndarray:
    """(T, heads, dims), the pairs of dims that `rope` names turned as complex numbers."""
    n = len(rope.speeds)
    if rope.pairs == "neighbours":
        a, b = slice(0, 2 * n, 2), slice(1, 2 * n, 2)
    else:
        a, b = slice(0, n), slice(n, 2 * n)
    angles = np.outer(positions, rope.speeds)[:, None, :]
    turned = (x[..., a] + 1j * x[..., b]) * np.exp(1j * angles) * rope.magnitude
    out = x.copy()
    out[..., a], out[..., b] = turned.real, turned.imag
    return out


# ---- attention ----------------------------------------------------------------------------------


def sixteen_bits(x: np.ndarray, level: int) -> np.ndarray:
    """(T, heads, dims) as pages hold it: whole numbers up to `level` and a scale for each head."""
    largest = np.maximum(np.abs(x).max(-1, keepdims=True), 1e-30)
    return np.rint(x / largest * level) * largest / level


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, a) -> np.ndarray:
    """q (T, heads, dims), k and v (T, kv_heads, dims) of one sequence -> (T, heads, v_dims)."""
    group = a.heads // a.kv_heads
    k, v = k.repeat(group, 1), v.repeat(group, 1)
    scores = np.einsum("thd,shd->hts", q, k) * a.scale
    if a.softcap:
        scores = a.softcap * np.tanh(scores / a.softcap)
    t, s = np.arange(len(q))[:, None], np.arange(len(k))
    seen = (s <= t) & (s > t - a.window) if a.window else s <= t
    scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("hts,shd->thd", weights, v)
