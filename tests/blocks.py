"""Blocks of weights, and a format's kernels called on them as a model calls them."""

from dataclasses import dataclass

import naive
import numpy as np

from quant.format import Format
from quant.rows import PANEL
from quant.simd import LANES

SCALES = {  # where a block has its f16 scales
    "Q4_0": (0,), "Q5_0": (0,), "Q8_0": (0,), "Q4_1": (0, 2), "Q5_1": (0, 2),
    "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,),
}  # fmt: skip
GUARD = 0x5A  # what memory that no kernel may touch holds


def random_blocks(form: Format, rows: int, columns: int, rng, bytes_of=range(256)) -> np.ndarray:
    """(rows, bytes a row) u8: any bytes at all of these, but for scales that are small numbers."""
    count = rows * columns // form.weights
    if not form.integer:
        numbers = rng.normal(size=count).astype("<f4")
        if form.name == "BF16":
            return (numbers.view("<u4") >> 16).astype("<u2").view("u1").reshape(rows, -1)
        return numbers.astype(f"<f{form.bytes}").view("u1").reshape(rows, -1)
    blocks = rng.choice(np.array(bytes_of, np.uint8), (count, form.bytes))
    for at in SCALES[form.name]:
        scale = rng.uniform(-0.02, 0.02, count).astype("<f2")
        blocks[:, at : at + 2] = scale[:, None].view("u1")
    return blocks.reshape(rows, -1)


@dataclass
class Tiles:
    """A matrix of (rows, columns) repacked by its format's kernel; rows a multiple of LANES."""

    form: Format
    rows: int
    columns: int
    memory: np.ndarray

    @classmethod
    def of(cls, form: Format, blocks: np.ndarray, columns: int) -> "Tiles":
        """Repack (rows, bytes a row)."""
        rows, stride = blocks.shape
        memory = np.full(blocks.size + 64, GUARD, np.uint8)
        form.repack(
            blocks.ctypes.data, memory.ctypes.data, stride // form.bytes, stride, 0, rows // LANES
        )
        assert (memory[blocks.size :] == GUARD).all(), "a tile is larger than its blocks"
        return cls(form, rows, columns, memory)

    def times(self, x: np.ndarray) -> np.ndarray:
        """(T, columns) f32 -> (T, rows) f32: all tokens at once, through panels of 8."""
        source = naive.panels(x) if self.form.integer else np.ascontiguousarray(x, "f4")
        pitch = source.size // -(-len(x) // PANEL) if self.form.integer else 4 * self.columns
        return self._run(source, pitch, len(x))

    def times_one(self, x: np.ndarray) -> np.ndarray:
        """(columns,) f32 -> (rows,) f32: a single token, in a panel of one slot."""
        x = np.ascontiguousarray(x[None], "f4")
        if not self.form.integer:
            return self._run(x, 4 * self.columns, 1)[0]
        return self._run(naive.panel(x, 1), 0, 1)[0]

    def _run(self, source: np.ndarray, pitch: int, count: int) -> np.ndarray:
        tiles, padded = self.rows // LANES, count + count % 2
        out = np.full((tiles, padded + 8, LANES), GUARD, np.float32)
        for k in range(tiles):
            self.form.product(
                self.memory.ctypes.data + k * self.form.tile_bytes(self.columns),
                source.ctypes.data, self.columns // self.form.step, pitch, count,
                out[k].ctypes.data,
            )  # fmt: skip
        assert (out[:, padded:] == GUARD).all(), "rows behind the last were written"
        return out[:, :count].transpose(1, 0, 2).reshape(count, self.rows)
