"""Steps of one shape captured once and replayed: one launch instead of some hundred."""

import logging
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from localllm.backends.torch.batch import Numbers, Shape

log = logging.getLogger(__name__)

AFTER = 2  # times a shape must have come before it is captured
MOST = 64  # graphs that are kept
Run = Callable[[Shape, Tensor, Tensor], None]  # a step over these integers and turns


class Capture(Protocol):
    """Records what a function launches; what comes back launches it again."""

    def __call__(self, run: Callable[[], None]) -> Callable[[], None]: ...


class CudaCapture:
    """CUDA graphs that share one pool of memory."""

    def __init__(self) -> None:
        self.pool = torch.cuda.graph_pool_handle()

    def __call__(self, run: Callable[[], None]) -> Callable[[], None]:
        """Once for real on a stream of its own, as torch wants it, then recorded."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            run()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            run()
        return graph.replay


class Graphs:
    """Runs steps: those of one row for each sequence from a graph, once they have come again."""

    def __init__(self, run: Run, device: str, capture: Capture | None):
        self.step, self.device, self.capture = run, device, capture
        self.seen: dict[Shape, int] = {}
        self.kept: dict[Shape, tuple[Tensor, Tensor, Callable[[], None]]] = {}

    def run(self, numbers: Numbers) -> None:
        """Run one step."""
        integers, turns = torch.from_numpy(numbers.integers), torch.from_numpy(numbers.turns)
        shape = numbers.shape
        if shape not in self.kept and self._worth(shape):
            self._record(shape, integers.to(self.device), turns.to(self.device))
        if shape in self.kept:
            there, turned, replay = self.kept[shape]
            there.copy_(integers)
            turned.copy_(turns)
            replay()
        else:
            self.step(shape, integers.to(self.device), turns.to(self.device))

    def _worth(self, shape: Shape) -> bool:
        if self.capture is None or not shape.decodes or len(self.kept) >= MOST:
            return False
        self.seen[shape] = self.seen.get(shape, 0) + 1
        return self.seen[shape] > AFTER

    def _record(self, shape: Shape, integers: Tensor, turns: Tensor) -> None:
        """Keep a graph of the shape; where something cannot be captured, go on without any."""
        assert self.capture is not None
        try:
            replay = self.capture(lambda: self.step(shape, integers, turns))
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            log.warning("CUDA graphs are not used: %s", error)
            self.capture = None
        else:
            self.kept[shape] = (integers, turns, replay)
