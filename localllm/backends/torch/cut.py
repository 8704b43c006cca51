"""Cuts a program in two where a single value goes on: the first layers here, the rest elsewhere."""

from dataclasses import replace

from localllm.errors import Unsupported
from localllm.program import Op, Program


def cut(program: Program, layers: int) -> tuple[Program, Program]:
    """The part with the first `layers` attentions, and the rest, whose `embed` stands for what
    the first part gives. Raises Unsupported where more than one value would have to cross."""
    place = _place(program.ops, layers)
    if place is None:
        raise Unsupported(
            f"This model cannot be cut after layer {layers}.",
            "Run all of it on one device: --gpu-layers 0, or more than it has.",
        )
    end, value = place
    first = Program(program.ops[: value + 1])
    embed = replace(program.ops[0], width=program.ops[value].width, weight="")
    moved = {value: 0} | {i: i - end for i in range(end + 1, len(program.ops))}
    rest = [_moved(op, moved, layers) for op in program.ops[end + 1 :]]
    return first, Program([embed, *rest])


def _moved(op: Op, places: dict[int, int], layers: int) -> Op:
    """An operation of the rest, its inputs and its layer of KV counted from there."""
    a = op.attention and replace(op.attention, layer=op.attention.layer - layers)
    return replace(op, inputs=tuple(places[j] for j in op.inputs), attention=a)


def _place(ops: list[Op], layers: int) -> tuple[int, int] | None:
    """The last operation of the first part, and the one value that is used behind it."""
    last_uses = {j: i for i, op in enumerate(ops) for j in op.inputs}
    attends = [i for i, op in enumerate(ops) if op.kind == "attend"]
    if not 0 < layers < len(attends):
        return None
    for end in range(attends[layers] - 1, attends[layers - 1], -1):
        alive = [j for j in range(end + 1) if last_uses.get(j, j) > end]
        if len(alive) == 1:
            return end, alive[0]
    return None
