"""A file's tensors as the kernels read them: matrices as tiles, vectors as padded f32."""

import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np

from localllm.backends.cpu.memory import LINE, Arena, aligned
from localllm.backends.cpu.team import Table, Team
from localllm.errors import BadFile, Unsupported
from localllm.gguf import GGUF
from localllm.kernels import pack
from localllm.kernels.fields import BATCH_FIELDS, ONCE, round_up
from localllm.models.spec import vector
from quant.format import Format
from quant.formats import format_of, supported
from quant.simd import LANES

GROUP = 128 << 20  # bytes that are repacked before the file's pages are given back
PIECE = 16 << 20  # the same where somebody waits
Progress = Callable[[int, int], None]  # done, all


@dataclass(frozen=True, slots=True)
class Matrix:
    """Tiles of LANES rows at `address`, one after the other; `fields` say which are there yet."""

    format: Format
    rows: int
    columns: int
    address: int
    fields: np.ndarray  # as `localllm.kernels.pack` has them

    @property
    def tiles(self) -> int:
        """How many, the last one filled up with zeros."""
        return -(-self.rows // LANES)

    @property
    def tile_bytes(self) -> int:
        """Bytes of one."""
        return self.format.tile_bytes(self.columns)


class Weights:
    """Takes tensors from a file when they are asked for, each once.

    Matrices can be used at once: tiles that are not repacked yet are repacked for each use.
    late: the file's blocks of those that have such tiles, by name.
    """

    def __init__(self, gguf: GGUF, matrices: Iterable[str], embedding: str, lanes: int):
        self.gguf, names = gguf, list(matrices)
        self.formats = {name: self._format(name) for name in [*names, embedding] if name}
        sizes = [self._size(name) for name in names]
        self.arena = Arena(sum(round_up(size, 64) for size in sizes))
        rooms = [self.formats[name].tile_bytes(self._shape(name)[1]) for name in names]
        self.room = aligned(lanes * round_up(max(rooms), LINE)).reshape(lanes, -1)
        self.loaded: dict[str, Matrix] = {}
        self.late: dict[str, np.ndarray] = {}
        self.vectors: dict[str, np.ndarray] = {}

    def _format(self, name: str) -> Format:
        kind = self.gguf.tensors[f"{name}.weight"].type
        if kind not in supported():
            raise Unsupported(
                f"{name}.weight has blocks of type {kind}, which localllm cannot run yet.",
                f"It runs {', '.join(supported())}.",
            )
        return format_of(kind)

    def _shape(self, name: str) -> tuple[int, int]:
        rows, columns = self.gguf.tensors[f"{name}.weight"].shape
        return rows, columns

    def _size(self, name: str) -> int:
        rows, columns = self._shape(name)
        return -(-rows // LANES) * self.formats[name].tile_bytes(columns)

    def matrix(self, name: str) -> Matrix:
        """A matrix, and where it stands once it is repacked."""
        if name not in self.loaded:
            rows, columns = self._shape(name)
            form = self.formats[name]
            if columns % max(form.weights, form.step):
                raise BadFile(f"{name}.weight has {columns} columns, no multiple of a block.")
            address = self.arena.take(self._size(name))
            self.late[name] = self.gguf.blocks(f"{name}.weight")
            fields = self._fields(form, self.late[name], address, columns)
            self.loaded[name] = Matrix(form, rows, columns, address, fields)
        return self.loaded[name]

    def _fields(self, form: Format, blocks: np.ndarray, address: int, columns: int) -> np.ndarray:
        """A matrix as the kernels read it, its last tile filled up with zeros if it needs any."""
        whole, many, stride = len(blocks) // LANES, columns // form.weights, blocks.shape[1]
        if whole * LANES < len(blocks):
            rest = np.zeros((LANES, stride), np.uint8)
            rest[: len(blocks) - whole * LANES] = blocks[whole * LANES :]
            target = address + whole * form.tile_bytes(columns)
            form.repack(rest.ctypes.data, target, many, stride, 0, 1)
        values = {
            pack.WHOLE: whole, pack.REPACK: form.repack.address, pack.SOURCE: blocks.ctypes.data,
            pack.TARGET: address, pack.BLOCKS: many, pack.STRIDE: stride,
            pack.ROOM: self.room.ctypes.data, pack.ROOM_BYTES: self.room.shape[1],
        }  # fmt: skip
        return np.array([values.get(field, 0) for field in range(pack.MATRIX_FIELDS)], np.int64)

    def pack(self, team: Team, progress: Progress, seconds: float = math.inf) -> None:
        """Repack what is late by all lanes, no more than about so long; progress(done, all).

        Much in one native call: whoever waits for Python's lock meanwhile has it to himself.
        """
        end, size = time.monotonic() + seconds, GROUP if seconds == math.inf else PIECE
        while self.late:
            progress(len(self.loaded) - len(self.late), len(self.loaded))
            runs = self._next(size)
            counts = np.zeros(BATCH_FIELDS, np.int64)
            counts[ONCE] = 1
            args = _arguments(runs)
            row = (pack.pack.address, args.ctypes.data, sum(r.tiles for r in runs), ONCE, False)
            team.run(Table([row], team.lanes), counts)
            for run in runs:
                run.matrix.fields[pack.READY] += run.tiles
            self._forget()
            if time.monotonic() > end:
                break
        progress(len(self.loaded) - len(self.late), len(self.loaded))

    def pack_until(self, done: Future) -> None:
        """Repack on this thread alone, until others are done with what they do meanwhile."""
        stop = np.zeros(1, np.int64)
        done.add_done_callback(lambda _: stop.fill(1))
        args = _arguments(self._next(sys.maxsize))
        pack.pack_until(args.ctypes.data, stop.ctypes.data)
        self._forget()

    def _next(self, size: int) -> list["_Run"]:
        """The tiles to repack next, about `size` bytes of them."""
        runs: list[_Run] = []
        for matrix in map(self.loaded.__getitem__, self.late):
            first, whole = (int(matrix.fields[f]) for f in (pack.READY, pack.WHOLE))
            tiles = min(max(size // matrix.tile_bytes, 0 if runs else 1), whole - first)
            if tiles:
                runs.append(_Run(matrix, first, tiles))
            size -= tiles * matrix.tile_bytes
            if size <= 0:
                break
        return runs

    def _forget(self) -> None:
        """Give back the file's pages of what is repacked."""
        for name in list(self.late):
            fields = self.loaded[name].fields
            if fields[pack.READY] == fields[pack.WHOLE]:
                self.gguf.release(f"{name}.weight")
                del self.late[name]

    def vector(self, name: str) -> int:
        """The address of an F32 tensor, zeros behind it up to a multiple of 32; 0 if not there."""
        if name not in self.vectors:
            info = self.gguf.tensors.get(name)
            if info is None:
                return 0
            size = math.prod(info.shape)
            padded = aligned(round_up(size, 32) * 4).view(np.float32)
            padded[:size] = vector(self.gguf, name, size)
            self.vectors[name] = padded
        return self.vectors[name].ctypes.data

    def rows(self, name: str) -> tuple[Format, np.ndarray]:
        """A matrix as the file has it: (rows, bytes a row) u8."""
        return self.formats[name], self.gguf.blocks(f"{name}.weight")


@dataclass(frozen=True, slots=True)
class _Run:
    """Tiles of a matrix to be repacked together."""

    matrix: Matrix
    first: int
    tiles: int


def _arguments(runs: Sequence[_Run]) -> np.ndarray:
    """Runs as the kernels read them."""
    fields = [x for r in runs for x in (r.matrix.fields.ctypes.data, r.first, r.tiles)]
    args = np.array([0] * pack.FIRST_RUN + fields, np.int64)
    args[pack.RUNS] = len(runs)
    return args
