"""What int8 pages must know of a layer's K, learned from a sample of text.

A few dims of K can be a hundred times larger than the rest, and nearly the same for every token.
Taking one vector from every K changes no softmax, for each row of scores loses one number; and a
scale that is moved from K to Q changes no product. What rounding some dims costs, later dims can
make up for, since those of Q go together (LDLQ; QuIP, arXiv 2307.13304). All this is fixed when
the model is loaded, so that no bit of an answer depends on what else was asked.
"""

from dataclasses import dataclass

import numpy as np

from localllm.backends.cpu.memory import Rows
from localllm.kernels.fields import round_up
from localllm.kernels.pages8 import BLOCK
from localllm.kernels.rotation import rotation_matrix
from localllm.program import Attention, Rope

SAMPLE = 128  # tokens
POSITIONS = 4096  # over which the offset, which turns with the position, is averaged
LEAST = 1e-3  # of a layer's mean, that a ratio of K to Q counts as
DOUBT = 0.1  # times Q's mean square is added to each dim's: a sample is not all there is


@dataclass(slots=True)
class Shape:
    """What becomes of one layer's K and Q after RoPE: (K - centre) * inverse, Q * factor.

    The three are (kv_heads, dims rounded up to 32) f32; `feedback` is (kv_heads, dims, dims), see
    `pages8.store_k`. They are read by the layer's `heads` step, whose number is `step` and whose
    inputs stand at `q` and `k`.
    """

    step: int
    attention: Attention
    q: Rows
    k: Rows
    rope: Rope | None
    gains: tuple[np.ndarray | None, np.ndarray | None]  # of the norms of heads of Q and K
    epsilon: float
    rotation: int  # how many dims turn together
    centres: np.ndarray
    inverses: np.ndarray
    factors: np.ndarray
    feedback: np.ndarray

    def read(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Copies of the step's inputs: (count, heads, dims) Q and (count, kv_heads, dims) K."""
        a = self.attention
        of_q = self._heads(self.q, count, a.heads, self.gains[0])
        return of_q, self._heads(self.k, count, a.kv_heads, self.gains[1])

    def _heads(self, rows: Rows, count: int, heads: int, gain) -> np.ndarray:
        dims = self.attention.k_dims
        x = rows.view(count)[:, : heads * dims].reshape(count, heads, dims).astype(np.float64)
        if gain is None:
            return x
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.epsilon) * gain

    def learn(self, q: np.ndarray, k: np.ndarray) -> None:
        """Fill all that in from a sample's Q and K before RoPE, position 0 first.

        q (T, heads, dims), k (T, kv_heads, dims). A sample of a single token teaches nothing.
        """
        if len(k) < 2:
            return
        a, first, second = self.attention, *self._pairs()
        speeds = np.array(self.rope.speeds if self.rope else ())
        size = self.rope.magnitude if self.rope else 1.0
        k, turns = k[1:], size * np.exp(1j * np.outer(np.arange(1, len(k)), speeds))

        def pooled(squares):
            both = squares[..., first] + squares[..., second]
            squares[..., first], squares[..., second] = both, both
            return squares

        # The first token's K is like no other's, and was left out.
        centre = self._turned(k.mean(0), size * _mean_turn(speeds))
        if a.softcap:  # then the scores of a row do not move together
            centre[:] = 0
        spread = self._turned(k, turns[:, None]) - centre
        of_q = (q * q).reshape(len(q), a.kv_heads, -1, a.k_dims).mean((0, 2))
        ratio = pooled((spread * spread).mean(0)) / np.maximum(pooled(of_q), 1e-30)
        ratio = np.sqrt(ratio)
        ratio /= np.maximum(ratio.mean(-1, keepdims=True), 1e-30)
        factor = np.sqrt(np.maximum(ratio, LEAST))
        self.centres[:, : a.k_dims] = centre
        self.factors[:, : a.k_dims], self.inverses[:, : a.k_dims] = factor, 1 / factor
        turn = factor[:, :, None] * rotation_matrix(a.k_dims, self.rotation)
        products = turn.swapaxes(1, 2) @ self._products(q) @ turn
        self.feedback[:, : a.k_dims, : a.k_dims] = feedback_of(products)

    def _turned(self, x: np.ndarray, turns: np.ndarray) -> np.ndarray:
        """`x`, its pairs of dims as complex numbers times `turns`."""
        first, second = self._pairs()
        y, z = x.copy(), (x[..., first] + 1j * x[..., second]) * turns
        y[..., first], y[..., second] = z.real, z.imag
        return y

    def _products(self, q: np.ndarray) -> np.ndarray:
        """(kv_heads, dims, dims): the mean product of each two dims of Q, over the heads of a
        group, the sample and POSITIONS: at each step twice as many."""
        a = self.attention
        x = q[1:].reshape(len(q) - 1, a.kv_heads, -1, a.k_dims)
        products = np.einsum("tkgi,tkgj->kij", x, x) / (x.shape[0] * x.shape[2])
        speeds = np.array(self.rope.speeds if self.rope else ())
        for step in 2 ** np.arange(np.log2(POSITIONS)):
            turns = np.exp(1j * step * speeds)
            across = self._turned(products, turns).swapaxes(1, 2)
            products = (products + self._turned(across, turns).swapaxes(1, 2)) / 2
        return products

    def _pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Which dims RoPE turns with which."""
        turning = np.arange(2 * len(self.rope.speeds) if self.rope else 0)
        if self.rope and self.rope.pairs == "neighbours":
            return turning[::2], turning[1::2]
        return turning[: len(turning) // 2], turning[len(turning) // 2 :]


def _mean_turn(speeds: np.ndarray) -> np.ndarray:
    """The mean over POSITIONS of e**(i position speed): a geometric series, 1 for what stands."""
    angle = 1j * np.where(speeds, speeds, 1)
    return np.where(speeds, np.expm1(POSITIONS * angle) / (POSITIONS * np.expm1(angle)), 1)


def feedback_of(products: np.ndarray) -> np.ndarray:
    """How much of an error in a dim of K (rows) each dim of later blocks (columns) is to make up
    for, so that the mean square of errors times Q is least; from `_products`."""
    dims = products.shape[-1]
    mean = np.trace(products, axis1=1, axis2=2)[:, None, None] / dims
    products = products + DOUBT * np.maximum(mean, 1e-30) * np.eye(dims)
    feedback = np.zeros_like(products)
    for end in range(BLOCK, dims, BLOCK):
        block = slice(end - BLOCK, end)
        made = np.linalg.solve(products[:, end:, end:], products[:, end:, block])
        feedback[:, block, end:] = made.swapaxes(1, 2)
    return feedback


def empty(step: int, attention: Attention, q: Rows, k: Rows, **more) -> Shape:
    """A shape that changes nothing yet."""
    size = attention.kv_heads, round_up(attention.k_dims, 32)
    ones = np.ones(size, np.float32)
    parts = {"centres": 0 * ones, "inverses": ones, "factors": ones.copy()}
    parts["feedback"] = np.zeros((*size, size[1]), np.float32)
    return Shape(step, attention, q, k, **more, **parts)
