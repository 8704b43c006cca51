"""A file's tensors as the kernels read them: matrices as tiles, vectors as padded f32."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from localllm.backends.cpu.memory import Arena, aligned
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


@dataclass(frozen=True, slots=True)
class Matrix:
    """Tiles of LANES rows at `address`, one after the other."""

    format: Format
    rows: int
    columns: int
    address: int

    @property
    def tiles(self) -> int:
        """How many, the last one filled up with zeros."""
        return -(-self.rows // LANES)

    @property
    def tile_bytes(self) -> int:
        """Bytes of one."""
        return self.format.tile_bytes(self.columns)


class Weights:
    """Takes tensors from a file when they are asked for, each once."""

    def __init__(self, gguf: GGUF, matrices: Iterable[str], embedding: str):
        self.gguf, names = gguf, list(matrices)
        self.formats = {name: self._format(name) for name in [*names, embedding]}
        sizes = [self._size(name) for name in names]
        self.arena = Arena(sum(round_up(size, 64) for size in sizes))
        self.loaded: dict[str, Matrix] = {}
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
        """Where a matrix stands, or will once `pack` has run."""
        if name not in self.loaded:
            rows, columns = self._shape(name)
            form = self.formats[name]
            if columns % max(form.weights, form.step):
                raise BadFile(f"{name}.weight has {columns} columns, no multiple of a block.")
            address = self.arena.take(self._size(name))
            self.loaded[name] = Matrix(form, rows, columns, address)
        return self.loaded[name]

    def pack(self, team: Team, progress: Callable[[int, int], None]) -> None:
        """Fill every matrix from the file, and give the file's pages back; progress(done, all).

        Many in one native call: whoever waits for Python's lock meanwhile has it to himself.
        """
        names = list(self.loaded)
        while names:
            progress(len(self.loaded) - len(names), len(self.loaded))
            group, runs = [names.pop(0)], _Runs()
            while names and sum(map(self._size, group)) + self._size(names[0]) <= GROUP:
                group.append(names.pop(0))
            for name in group:
                runs.add(self.loaded[name], self.gguf.blocks(f"{name}.weight"))
            runs.pack(team)
            for name in group:
                self.gguf.release(f"{name}.weight")
        progress(len(self.loaded), len(self.loaded))

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

    def rows(self, name: str, ids: np.ndarray) -> np.ndarray:
        """(T, columns) f32: rows of a matrix, unpacked from the file's own blocks."""
        form, blocks = self.formats[name], self.gguf.blocks(f"{name}.weight")[ids]
        return form.unpack(blocks.reshape(-1, form.bytes)).reshape(len(ids), -1)


class _Runs:
    """Matrices to repack in one walk of a team."""

    def __init__(self) -> None:
        self.fields: list[int] = []  # of every run of tiles, as the kernel reads them
        self.kept: list[np.ndarray] = []  # what they point at
        self.tiles = 0

    def add(self, matrix: Matrix, blocks: np.ndarray) -> None:
        """blocks: (rows, bytes a row) as the file has them; the last tile is filled with zeros."""
        whole = matrix.rows // LANES
        self._add(matrix, blocks, 0, whole)
        if whole < matrix.tiles:
            rest = np.zeros((LANES, blocks.shape[1]), np.uint8)
            rest[: matrix.rows - whole * LANES] = blocks[whole * LANES :]
            self._add(matrix, rest, whole, 1)

    def _add(self, matrix: Matrix, blocks: np.ndarray, tile: int, tiles: int) -> None:
        run = {
            pack.TILES: tiles, pack.REPACK: matrix.format.repack.address,
            pack.SOURCE: blocks.ctypes.data, pack.TARGET: matrix.address + tile * matrix.tile_bytes,
            pack.BLOCKS: matrix.columns // matrix.format.weights, pack.STRIDE: blocks.shape[1],
        }  # fmt: skip
        self.fields += [run[field] for field in range(pack.RUN_FIELDS)]
        self.kept.append(blocks)
        self.tiles += tiles

    def pack(self, team: Team) -> None:
        args = np.array([0] * pack.FIRST_RUN + self.fields, np.int64)
        args[pack.RUNS] = len(self.fields) // pack.RUN_FIELDS
        counts = np.zeros(BATCH_FIELDS, np.int64)
        counts[ONCE] = 1
        row = (pack.pack.address, args.ctypes.data, self.tiles, ONCE, False)
        team.run(Table([row], team.lanes), counts)
