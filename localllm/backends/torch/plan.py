"""How many layers a device holds: weights, pages and scratch against what is free on it."""

from collections.abc import Callable
from dataclasses import dataclass

from localllm.backends.torch.attention import GATHERED, SCORES, page_bytes
from localllm.backends.torch.cut import cut
from localllm.backends.torch.device import Device
from localllm.backends.torch.model import most_wanted
from localllm.batch import PAGE
from localllm.errors import BadRequest, TooLarge, Unsupported
from localllm.fit import CONTEXTS, QUARTER, SHARE
from localllm.gguf import GGUF
from localllm.program import Program
from localllm.units import size

LEAST = 4096  # tokens of context, before layers give way to more of it
UNPACKED = 12  # bytes that unpacking takes for each weight of a piece
SCORED = 8  # bytes that attention takes for each score


@dataclass(frozen=True)
class Plan:
    """The first `layers` of `total`, and `pages` of KV, need `needs` of `free` bytes."""

    layers: int
    total: int
    pages: int
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
    pages: int, asked: bool, rows: int,
) -> Plan:  # fmt: skip
    """As many layers as were wanted, or with "auto" as fit; and pages.

    pages: that one sequence of the whole context needs. asked: whether just so many are wanted;
    else there are fewer where memory is short, and more, for several sequences, where it is not.
    Raises TooLarge and BadRequest.
    """
    total = len(program.layers)
    if wanted != "auto" and not (isinstance(wanted, int) and wanted >= 0):
        raise BadRequest(f"{wanted!r} layers cannot go to a GPU.", 'Use a number, or "auto".')
    least = pages if asked else min(pages, LEAST // PAGE)

    def needs(layers: int, pages: int) -> int:
        part = program if layers >= total else cut(program, layers)[0]
        return demand(gguf, part, device, pages=pages, rows=rows)

    def planned(layers: int) -> Plan:
        count = pages if asked or free is None else _room(needs, layers, least, pages, free)
        return Plan(min(layers, total), total, count, needs(layers, count), free)

    if wanted == 0:
        return Plan(0, total, pages, 0, free)
    if wanted != "auto":
        chosen = planned(int(wanted))
        if free is not None and chosen.needs > SHARE * free:
            raise TooLarge(
                f"{chosen.layers} layers do not fit on {device.name}: {chosen}.",
                "Use --gpu-layers auto, fewer of them, or a shorter context (--ctx).",
            )
        return chosen
    for layers in range(total, 0, -1):
        try:
            fits = free is None or needs(layers, least) <= SHARE * free
        except Unsupported:  # no cut there
            continue
        if fits:
            return planned(layers)
    return Plan(0, total, pages, 0, free)


def _room(needs: Callable[[int, int], int], layers: int, least: int, most: int, free: int) -> int:
    """Pages that fit: `most`, or what there is room for, but `least`; some contexts' more, where
    they take no more than a part of the memory."""
    part = needs(layers, 1) - needs(layers, 0)
    most = max(most, min(CONTEXTS * most, int(QUARTER * free) // part))
    low, high = least, most  # the largest number that fits is one of them, or lies between
    while low < high:
        middle = (low + high + 1) // 2
        if needs(layers, middle) <= SHARE * free:
            low = middle
        else:
            high = middle - 1
    return low


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
