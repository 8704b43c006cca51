"""What a pass cannot do without: bytes to read and multiply-adds, by the file's tensors."""

from collections import Counter
from dataclasses import dataclass
from math import prod

from localllm.bench.grid import Case
from localllm.gguf import GGUF

EMBEDDING, HEAD = "token_embd.weight", "output.weight"


@dataclass(frozen=True)
class Costs:
    """Weights by block format. The layers meet every token, the head only those with logits.

    weight_bytes: read in every pass, whatever its tokens. kv_bytes: of a token of context.
    """

    layers: dict[str, int]
    head: dict[str, int]
    weight_bytes: int
    kv_bytes: int

    def multiply_adds(self, case: Case) -> dict[str, int]:
        """By format, for all of a case's tokens; attention is left out."""
        rows = case.batch if case.kind == "pp" else case.total
        counts = Counter({kind: n * case.total for kind, n in self.layers.items()})
        counts.update({kind: n * rows for kind, n in self.head.items()})
        return dict(counts)

    def bytes_read(self, case: Case) -> int:
        """By the passes of a generation: weights each time, and the context of each sequence."""
        mean = case.depth + case.tokens // 2
        return case.tokens * (self.weight_bytes + case.batch * mean * self.kv_bytes)


def costs(gguf: GGUF, kv_bytes: int) -> Costs:
    """Of a model file; of its experts, those that a token uses."""
    head_name = HEAD if HEAD in gguf.tensors else EMBEDDING
    share = _expert_share(gguf)
    layers: Counter[str] = Counter()
    head: Counter[str] = Counter()
    read = 0.0
    for name, tensor in gguf.tensors.items():
        if name == EMBEDDING and head_name != EMBEDDING:
            continue  # only the rows of the prompt's tokens
        used = share if "_exps." in name else 1.0
        read += tensor.nbytes * used
        if len(tensor.shape) > 1:
            counts = head if name == head_name else layers
            counts[tensor.type] += int(prod(tensor.shape) * used)
    return Costs(dict(layers), dict(head), int(read), kv_bytes)


def _expert_share(gguf: GGUF) -> float:
    experts = gguf.get(".expert_count", int, 0)
    return gguf.get(".expert_used_count", int, 0) / experts if experts else 1.0
