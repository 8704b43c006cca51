"""How many layers a device holds: weights, pages and scratch against what is free on it."""

from dataclasses import dataclass

from localllm.backends.torch.attention import GATHERED, SCORES, page_bytes
from localllm.backends.torch.cut import cut
from localllm.backends.torch.device import Device
from localllm.backends.torch.model import most_wanted
from localllm.batch import PAGE
from localllm.errors import BadRequest, TooLarge, Unsupported
from localllm.gguf import GGUF
from localllm.program import Program
from localllm.units import size

SHARE = 0.9  # of the free memory that a model may take
UNPACKED = 12  # bytes that unpacking takes for each weight of a piece
SCORED = 8  # bytes that attention takes for each score


@dataclass(frozen=True)
class Plan:
    """The first `layers` of `total` go to a device; they need `needs` of `free` bytes."""

    layers: int
    total: int
    needs: int
    free: int | None  # None: the machine's own memory, which is not ours to plan

    def __str__(self) -> str:
        which = (
            "all layers" if self.layers >= self.total else f"{self.layers} of {self.total} layers"
        )
        room = "" if self.free is None else f", {size(self.needs)} of {size(self.free)} free"
        return which + room


def plan(
    gguf: GGUF, program: Program, device: Device, free: int | None, *, wanted: int | str,
    pages: int, rows: int,
) -> Plan:  # fmt: skip
    """As many layers as were wanted, or with "auto" as fit. Raises TooLarge and BadRequest."""
    total = len(program.layers)
    if wanted != "auto" and not (isinstance(wanted, int) and wanted >= 0):
        raise BadRequest(f"{wanted!r} layers cannot go to a GPU.", 'Use a number, or "auto".')

    def needs(layers: int) -> int:
        part = program if layers >= total else cut(program, layers)[0]
        return demand(gguf, part, device, pages=pages, rows=rows)

    if wanted != "auto":
        chosen = Plan(min(int(wanted), total), total, needs(int(wanted)) if wanted else 0, free)
        if free is not None and chosen.needs > SHARE * free:
            raise TooLarge(
                f"{chosen.layers} layers do not fit on {device.name}: {chosen}.",
                "Use --gpu-layers auto, fewer of them, or a shorter context (--ctx).",
            )
        return chosen
    for layers in range(total, 0, -1):
        try:
            taken = needs(layers)
        except Unsupported:  # no cut there
            continue
        if free is None or taken <= SHARE * free:
            return Plan(layers, total, taken, free)
    return Plan(0, total, 0, free)


def demand(gguf: GGUF, program: Program, device: Device, *, pages: int, rows: int) -> int:
    """Bytes that a program takes on a device: weights, pages, and what a step works in."""
    names = {f"{op.weight}.{kind}" for op in program.ops for kind in ("weight", "bias")}
    held = [gguf.tensors[name] for name in names if name in gguf.tensors]
    numbers = [int(info.shape[-1]) * int(info.shape[0]) for info in held]
    widths = {op.width for op in program.ops if op.kind != "logits"}
    buffers = 4 * 3 * rows * sum(widths)
    if program.ops[-1].kind == "logits":
        vocab = program.ops[-1].width
        buffers += 4 * most_wanted(vocab, rows) * (vocab + 3 * sum(widths))
    layers = program.layers
    keys = max((a.kv_heads * (a.k_dims + a.v_dims) for a in layers), default=0) * PAGE * pages
    scratch = UNPACKED * min(device.chunk, max(numbers)) + SCORED * min(SCORES, rows * PAGE * pages)
    return (
        sum(info.nbytes for info in held) + (pages + 1) * sum(map(page_bytes, layers))
        + buffers + scratch + 2 * min(GATHERED, keys)
    )  # fmt: skip
