"""A model of which a device holds the first layers, and the CPU backend runs the rest."""

import numpy as np

from localllm.backends.check import check
from localllm.backends.cpu.model import CPUModel
from localllm.backends.torch.cut import cut
from localllm.backends.torch.device import Device
from localllm.backends.torch.model import Progress, Runner, give_back
from localllm.backends.torch.weights import Kernels
from localllm.batch import Batch
from localllm.gguf import GGUF
from localllm.program import Program


class Rest(CPUModel):
    """The part of a program behind the cut: its first rows come from the device."""

    def take(self, rows: np.ndarray) -> None:
        """(T, width) f32 that the next batch begins with."""
        assert self.lowered.embedded is not None
        given = self.lowered.embedded.view(self.max_rows)
        given[: len(rows), : rows.shape[1]] = rows


class SplitModel:
    """The engine's view of a model (see `localllm.batch.Model`): hidden rows cross once."""

    def __init__(
        self, gguf: GGUF, program: Program, device: Device, layers: int, *, lanes: int,
        context: int, pages: int, max_rows: int = 512, kernels: Kernels | None = None,
        progress: Progress | None = None,
    ):  # fmt: skip
        first, rest = cut(program, layers)
        self.gguf, self.architecture = gguf, gguf.architecture
        self.runner = Runner(
            gguf,
            first,
            device,
            rows=max_rows,
            wanted=1,
            pages=pages,
            kernels=kernels,
            progress=progress,
        )
        self.rest = Rest(
            gguf, rest, lanes=lanes, context=context, pages=pages, max_rows=max_rows,
            progress=progress,
        )  # fmt: skip
        self.vocab, self.context, self.pages = self.rest.vocab, context, pages
        self.width = self.rest.width
        self.max_rows, self.max_wanted = self.rest.max_rows, self.rest.max_wanted
        self.max_sequences, self.drafts = self.rest.max_sequences, False
        self.draws, self.ahead = self.rest.draws, 0
        self.device = f"{device.name}, {layers} layers; the rest on {self.rest.device}"

    @property
    def parameters(self) -> int:
        """How many numbers the file's tensors hold."""
        return self.rest.parameters

    @property
    def trained_context(self) -> int:
        """Tokens of context the model was trained for."""
        return self.gguf.get(".context_length", int)

    def forward(self, batch: Batch) -> np.ndarray:
        """(W, vocab) f32. Raises BadRequest for a bad batch, TooLarge when memory runs out."""
        check(batch, self)
        self.rest.take(self.runner.run(batch, len(batch.ids)))
        return self.rest.forward(batch)

    def drawn(self) -> np.ndarray:
        """See `localllm.batch.Model`."""
        return self.rest.drawn()

    def hidden(self) -> np.ndarray:
        """(H, width) f32 of the batch that was run last."""
        return self.rest.hidden()

    def close(self) -> None:
        """Give back the device's memory, and end the team's threads."""
        device = self.runner.device
        del self.runner
        give_back(device)
        self.rest.close()
