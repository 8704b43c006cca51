"""What the hardware gives: memory read bandwidth, and multiply-adds of a format's own loop."""

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from localllm import machine
from localllm.kernels.again import again
from localllm.kernels.read import read_memory
from quant.formats import format_of
from quant.jit import Kernel
from quant.rows import PANEL, SLOT_BYTES
from quant.simd import BYTES, LANES

READ = 1 << 29  # bytes that one measurement of bandwidth reads: more than any cache holds
COLUMNS, TOKENS = 1024, 256  # a tile and panels that stay in a core's own cache
ROUNDS = 5


class Memory:
    """A stretch of memory, to read at any moment: its speed changes by the minute."""

    def __init__(self, threads: int):
        share = min(READ, machine.available_memory() // 8) // threads // (4 * BYTES) * 4 * BYTES
        self._bytes = np.ones(threads * share, np.uint8)
        starts = range(self._bytes.ctypes.data, self._bytes.ctypes.data + threads * share, share)
        self._calls = [partial(read_memory, start, share) for start in starts]
        read_memory(starts[0], 4 * BYTES)  # compiled before it is timed

    def bandwidth(self) -> float:
        """Bytes a second that all threads read together, now: the best of three passes."""
        return self._bytes.nbytes / min(_together(self._calls) for _ in range(3))


def product_rate(name: str, threads: int) -> float:
    """Multiply-adds a second of one block format's loop, its operands in the cores' caches."""
    product = format_of(name).product
    calls = [_product_call(name, product) for _ in range(threads)]
    _together(calls)
    seconds = statistics.median(_together(calls) for _ in range(ROUNDS))
    return threads * REPEATS * COLUMNS * LANES * TOKENS / seconds


REPEATS = 200
AHEAD = 4096  # bytes behind a tile that a product may ask for: not memory that others write to


def _product_call(name: str, product: Kernel) -> Callable[[], None]:
    """One thread's share: a tile of weights times the tokens of many panels, again and again."""
    form = format_of(name)
    weights = np.zeros(form.tile_bytes(COLUMNS) + AHEAD, np.uint8)
    pitch = COLUMNS // 32 * SLOT_BYTES * PANEL if form.integer else 4 * COLUMNS
    rows = TOKENS // PANEL if form.integer else TOKENS
    tokens, out = np.zeros(rows * pitch, np.uint8), np.zeros((TOKENS, LANES), np.float32)
    where = (weights.ctypes.data, tokens.ctypes.data, COLUMNS // form.step, pitch, TOKENS)

    def call(kept=(weights, tokens, out)) -> None:
        again(REPEATS, product.address, *where, out.ctypes.data)

    return call


def _together(calls: Sequence[Callable[[], object]]) -> float:
    """Seconds that all calls take at once, a thread each."""
    if len(calls) == 1:
        since = time.perf_counter()
        calls[0]()
        return time.perf_counter() - since
    with ThreadPoolExecutor(len(calls)) as pool:
        list(pool.map(lambda _: time.sleep(0.001), calls))  # the threads are there
        since = time.perf_counter()
        list(pool.map(lambda call: call(), calls))
        return time.perf_counter() - since
