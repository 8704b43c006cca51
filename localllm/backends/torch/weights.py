"""A file's tensors on the device: matrices as the file's own blocks, vectors as f32."""

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from localllm.backends.torch.blocks import UNPACK
from localllm.backends.torch.device import Device
from localllm.errors import BadFile, Unsupported
from localllm.gguf import GGUF
from localllm.models.spec import vector
from quant.types import by_name

PIECE = 64 << 20  # bytes that go to the device at a time
FEW = 8  # rows up to which a product is bound by memory


class Kernels(Protocol):
    """What a device may have of its own, for some formats: see `backends.torch.triton`."""

    FORMATS: Mapping[str, object]

    def multiply(self, kind: str, blocks: Tensor, x: Tensor, out: Tensor) -> None: ...
    def unpack(self, kind: str, blocks: Tensor, columns: int, dtype: torch.dtype) -> Tensor: ...


class Matrix:
    """(rows, columns) weights in blocks, (rows, bytes) u8; unpacked in pieces for each product."""

    def __init__(
        self, kind: str, blocks: Tensor, columns: int, device: Device, kernels: Kernels | None
    ):
        self.kind, self.blocks, self.columns, self.exact = kind, blocks, columns, device.exact
        self.block_bytes = by_name(kind).bytes
        self.kernels = kernels if kernels and kind in kernels.FORMATS else None
        self.piece = max(1, device.chunk // columns)  # rows unpacked at once

    def unpack(self, blocks: Tensor, dtype: torch.dtype) -> Tensor:
        """Some rows' blocks, (n, bytes) u8, as (n, columns) numbers."""
        if self.kernels:
            return self.kernels.unpack(self.kind, blocks, self.columns, dtype)
        numbers = UNPACK[self.kind](blocks.view(-1, self.block_bytes), dtype)
        return numbers.view(len(blocks), self.columns)

    def rows(self, ids: Tensor) -> Tensor:
        """(T, columns) f32: the rows of those numbers."""
        return self.unpack(self.blocks[ids], torch.float32)

    def multiply(self, x: Tensor, scale: Tensor | None, out: Tensor) -> None:
        """x (T, columns) times the weights to out (T, rows) f32; `scale` (T, 1) as of `scaled`."""
        for first in range(0, len(self.blocks), self.piece):
            part = self.unpack(self.blocks[first : first + self.piece], x.dtype).t()
            target = out[:, first : first + self.piece]
            if scale is None:
                torch.mm(x, part, out=target)
            else:
                torch.mul(torch.mm(x, part), scale, out=target)


def multiply(x: Tensor, targets: Sequence[tuple[Matrix, Tensor]]) -> None:
    """x (T, columns) f32 times each of some matrices, to (T, rows) f32: by a kernel where rows
    are few and there is one, else by torch."""
    rows: tuple[Tensor, Tensor | None] | None = None
    for matrix, out in targets:
        if matrix.kernels and len(x) <= FEW:
            matrix.kernels.multiply(matrix.kind, matrix.blocks, x, out)
        else:
            rows = rows or ((x, None) if matrix.exact else scaled(x))
            matrix.multiply(*rows, out)


def scaled(x: Tensor) -> tuple[Tensor, Tensor]:
    """(T, n) f32 as f16 of at most 1, and the (T, 1) that it is to be multiplied by: so that no
    activation is too large for f16, whatever the model."""
    scale = x.abs().amax(1, keepdim=True).clamp(min=1e-20)
    return (x / scale).half(), scale


class Weights:
    """Takes tensors from a file when they are asked for, each once."""

    def __init__(self, gguf: GGUF, device: Device, kernels: Kernels | None = None):
        self.gguf, self.device, self.kernels = gguf, device, kernels
        self.matrices: dict[str, Matrix] = {}
        self.vectors: dict[str, Tensor] = {}

    def matrix(self, name: str) -> Matrix:
        """A matrix by its name without ".weight". Raises BadFile and Unsupported."""
        if name not in self.matrices:
            self.matrices[name] = self._matrix(name)
        return self.matrices[name]

    def _matrix(self, name: str) -> Matrix:
        info = self.gguf.tensors[f"{name}.weight"]
        if info.type not in UNPACK:
            raise Unsupported(
                f"{name}.weight has blocks of type {info.type}, which torch devices do not run.",
                f"They run {', '.join(UNPACK)}; try --device cpu.",
            )
        columns = info.shape[-1]
        if columns % by_name(info.type).weights:
            raise BadFile(f"{name}.weight has {columns} columns, no multiple of a block.")
        blocks = self.gguf.blocks(f"{name}.weight")
        there = torch.empty(blocks.shape, dtype=torch.uint8, device=self.device.kind)
        step = max(1, PIECE // blocks.shape[1])
        for first in range(0, len(blocks), step):
            piece = torch.from_numpy(np.array(blocks[first : first + step]))
            there[first : first + step].copy_(piece)
        self.gguf.release(f"{name}.weight")
        return Matrix(info.type, there, columns, self.device, self.kernels)

    def vector(self, name: str) -> Tensor | None:
        """An F32 tensor, (n,) f32, or None where the file has none."""
        info = self.gguf.tensors.get(name)
        if info is None:
            return None
        if name not in self.vectors:
            numbers = vector(self.gguf, name, math.prod(info.shape))
            self.vectors[name] = torch.from_numpy(np.array(numbers)).to(self.device.kind)
        return self.vectors[name]

    @property
    def bytes(self) -> int:
        """Bytes they take on the device."""
        held = [m.blocks for m in self.matrices.values()] + list(self.vectors.values())
        return sum(tensor.nbytes for tensor in held)
