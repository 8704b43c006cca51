"""Models on a torch device: a batch checked and written down, the calls run, logits."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from localllm.backends.check import check
from localllm.backends.torch.batch import Step, write
from localllm.backends.torch.device import Device
from localllm.backends.torch.graphs import CudaCapture, Graphs
from localllm.backends.torch.lower import Lowering
from localllm.backends.torch.weights import Kernels, Weights
from localllm.batch import LOADING, Batch
from localllm.errors import TooLarge
from localllm.gguf import GGUF
from localllm.program import Program

LOGIT_BYTES = 64 << 20  # of logits that one step may give
MOST_WANTED, MOST_SEQUENCES = 512, 256
Progress = Callable[[str, int, int], None]


class Runner:
    """A program, whole or cut, lowered on a device: batches in, rows of its last value out."""

    def __init__(
        self, gguf: GGUF, program: Program, device: Device, *, rows: int, wanted: int, pages: int,
        kernels: Kernels | None = None, progress: Progress | None = None,
    ):  # fmt: skip
        self.device, self.pages = device, pages
        with memory(device):
            self.weights = Weights(gguf, device, kernels)
            names = dict.fromkeys(op.weight for op in program.ops if op.kind in MATRICES)
            for done, name in enumerate(names):
                if progress:
                    progress(LOADING, done, len(names))
                self.weights.matrix(name)
            self.lowered = Lowering(program, self.weights, rows, wanted, pages).run()
        if progress:
            progress(LOADING, len(names), len(names))
        capture = CudaCapture() if device.kind == "cuda" else None
        self.graphs = Graphs(self._step, device.kind, capture)

    def _step(self, shape, integers: Tensor, turns: Tensor) -> None:
        step = Step(shape, integers, turns, self.lowered.ropes)
        for call in self.lowered.body:
            call(step)
        for call in self.lowered.tail if shape.wanted else ():
            call(step)

    @torch.inference_mode()
    def run(self, batch: Batch, rows: int) -> np.ndarray:
        """The first rows of the result, (rows, width) f32. Raises TooLarge out of memory."""
        with memory(self.device):
            self.graphs.run(write(batch, self.lowered.ropes, self.pages))
            assert self.lowered.result is not None
            return self.lowered.result[:rows].cpu().numpy()

    @torch.inference_mode()
    def hidden(self, rows: slice) -> np.ndarray:
        """Of the rows that the last step's logits were made from, these, (n, width) f32."""
        assert self.lowered.hidden is not None
        return self.lowered.hidden[rows].cpu().numpy()

    @property
    def bytes(self) -> tuple[int, int, int]:
        """Bytes held on the device: weights, pages, buffers."""
        pages = sum(pool.k.nbytes + pool.v.nbytes for pool in self.lowered.pools)
        return self.weights.bytes, pages, sum(b.nbytes for b in self.lowered.buffers)


class TorchModel:
    """The engine's view of a model (see `localllm.batch.Model`), all of it on one device."""

    def __init__(
        self, gguf: GGUF, program: Program, device: Device, *, context: int, pages: int,
        max_rows: int = 512, kernels: Kernels | None = None, progress: Progress | None = None,
    ):  # fmt: skip
        self.gguf, self.architecture = gguf, gguf.architecture
        self.vocab, self.context, self.pages = program.ops[-1].width, context, pages
        self.width = program.hidden_width
        self.max_rows, self.max_sequences = max_rows, MOST_SEQUENCES
        self.draws = self.drafts = False
        self.ahead = 0
        self.max_wanted = most_wanted(self.vocab, max_rows)
        self.device = f"{device.name}, all layers"
        self._hidden = slice(0)  # rows of the batch that was run last
        self.runner = Runner(
            gguf, program, device, rows=max_rows, wanted=self.max_wanted, pages=pages,
            kernels=kernels, progress=progress,
        )  # fmt: skip

    @property
    def parameters(self) -> int:
        """How many numbers the file's tensors hold."""
        return sum(int(np.prod(info.shape)) for info in self.gguf.tensors.values())

    @property
    def trained_context(self) -> int:
        """Tokens of context the model was trained for."""
        return self.gguf.get(".context_length", int)

    def forward(self, batch: Batch) -> np.ndarray:
        """(W, vocab) f32. Raises BadRequest for a bad batch, TooLarge when memory runs out."""
        check(batch, self)
        self._hidden = slice(len(batch.wanted), len(batch.wanted) + len(batch.hidden))
        return self.runner.run(batch, len(batch.wanted))

    def drawn(self) -> np.ndarray:
        """See `localllm.batch.Model`: it draws none."""
        return np.full(0, -1)

    def hidden(self) -> np.ndarray:
        """(H, width) f32 of the batch that was run last."""
        return self.runner.hidden(self._hidden)

    def close(self) -> None:
        """Give the device's memory back."""
        device = self.runner.device
        del self.runner
        give_back(device)


MATRICES = ("embed", "linear", "logits")  # kinds of operation that read a matrix


def most_wanted(vocab: int, rows: int) -> int:
    """Rows of logits that one step may give."""
    return min(int(np.clip(LOGIT_BYTES // (4 * vocab), 8, MOST_WANTED)), rows)


@contextmanager
def memory(device: Device) -> Iterator[None]:
    """Raises TooLarge where the device's memory runs out in here, and gives back what it can."""
    try:
        yield
        return
    except RuntimeError as error:
        text = str(error).lower()
        if not isinstance(error, torch.OutOfMemoryError) and not any(s in text for s in OUT):
            raise
    give_back(device)
    raise TooLarge(
        f"The memory of {device.name} ran out.",
        "Use a shorter context, fewer --gpu-layers, or --device cpu.",
    )


OUT = ("out of memory", "can't allocate memory")  # as torch says it on devices but CUDA


def give_back(device: Device) -> None:
    """Hand memory that no tensor holds any more back to the system."""
    gc.collect()
    if device.kind == "cuda":
        torch.cuda.empty_cache()
    elif device.kind == "mps":
        torch.mps.empty_cache()
