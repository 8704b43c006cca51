"""A program as a table of kernels and argument blocks; the fusions happen here, once.

A norm goes straight to int8 panels; q, k and v are one op, so are gate and up; a product that is
added to the residual is added in place; RoPE, head norms and the writing of pages are one op.
"""

import numpy as np

from localllm.backends.cpu import learn
from localllm.backends.cpu.blocks import Blocks
from localllm.backends.cpu.memory import Rows
from localllm.backends.cpu.rope import RopeTable
from localllm.backends.cpu.steps import Lowered, Panels, Place, Sizes
from localllm.backends.cpu.weights import Matrix, Weights
from localllm.kernels import (
    advance,
    attention,
    draw,
    embed,
    fields,
    heads,
    linear,
    norm,
    states,
)
from localllm.kernels.fields import float_bits, round_up
from localllm.kernels.kinds import KINDS, Kind
from localllm.program import Attention, Op, Program
from quant.rows import PANEL, SLOT_BYTES
from quant.simd import LANES

ACTIVATIONS = {"silu": linear.SILU, "gelu": linear.GELU}


class Lowering(Blocks):
    """One pass over a program's operations."""

    def __init__(self, program: Program, weights: Weights, sizes: Sizes, batch: int):
        super().__init__(program, sizes, batch)
        self.weights = weights
        self.fused: set[int] = set()
        self.last = max(i for i, op in enumerate(self.ops) if op.kind == "attend")

    def run(self) -> Lowered:
        """Lower every operation in order."""
        for i, op in enumerate(self.ops):
            if op.kind == "attend":
                self.layer += 1
            if i not in self.fused:
                getattr(self, f"_{op.kind}")(i, op)
            self._release(i)
        return self.out

    # ---- what a value is needed as ----------------------------------------------------------

    def _reader(self, i: int) -> Matrix:
        return self.weights.matrix(self.ops[i].weight)

    def _needs(self, i: int) -> tuple[bool, bool]:
        """Whether a value is read as rows, and whether as panels."""
        products = [u for u in self.users[i] if self.ops[u].kind in ("linear", "logits")]
        panels = any(self._reader(u).format.integer for u in products)
        rows = any(not self._reader(u).format.integer for u in products)
        rows = rows or any(self.ops[u].kind == "logits" for u in products)  # as hidden rows
        return rows or len(products) < len(self.users[i]), panels

    def _residual(self, i: int) -> int | None:
        """The add that alone uses this value, if its other operand stands and is used up by it."""
        if len(self.users[i]) != 1 or self.ops[self.users[i][0]].kind != "add":
            return None
        add = self.users[i][0]
        (other,) = [source for source in self.ops[add].inputs if source != i] or [i]
        place = self.places.get(other)
        if place is None or place.rows is None or self._last_use(other) > add:
            return None
        return add

    def _other(self, add: int, i: int) -> int:
        return next(source for source in self.ops[add].inputs if source != i)

    # ---- operations ---------------------------------------------------------------------------

    def _embed(self, i: int, op: Op) -> None:
        rows = self.out.embedded = self._rows(op.width)
        self.places[i] = Place(rows)
        if not op.weight:  # rows that are given
            return
        form, blocks = self.weights.rows(op.weight)
        args = self._block(embed.STRIDE + 1)
        args[embed.SOURCE], args[embed.UNPACK] = blocks.ctypes.data, form.unpack_row.address
        args[embed.BLOCKS] = blocks.shape[1] // form.bytes
        args[embed.BLOCK_BYTES], args[embed.COLUMNS] = form.bytes, op.width
        args[embed.FACTOR] = float_bits(op.scale)
        args[embed.TO], args[embed.STRIDE] = _row(rows)
        self._emit("embed", embed.embed, args, 1, kind=fields.TOKENS)

    def _rms_norm(self, i: int, op: Op) -> None:
        source, add = self.places[op.inputs[0]].rows, self._residual(i)
        place, panels = Place(), None
        if add is not None:
            other = self._other(add, i)
            place.rows = self.places[other].rows
            self.places[add] = place
            self.fused.add(add)
        else:
            rows, wants_panels = self._needs(i)
            place.rows = self._rows(op.width) if rows else None
            panels = self._panels(op.width, lanes=not rows) if wants_panels else None
            place.panels = panels
            self.places[i] = place
        self._norm(source, op, place.rows, panels, add is not None)

    def _norm(self, source: Rows, op: Op, rows, panels, add: bool, centre: int = 0) -> None:
        args = self._block(norm.PIECES + 1)
        args[norm.X], args[norm.X_STRIDE] = source.address, source.stride
        args[norm.WIDTH], args[norm.COUNT] = round_up(op.width, 32), op.width
        args[norm.EPSILON], args[norm.CENTRE] = float_bits(op.epsilon), centre
        if op.weight:
            args[norm.GAIN] = self.weights.vector(f"{op.weight}.weight")
            args[norm.SHIFT] = self.weights.vector(f"{op.weight}.bias")
        if panels:
            args[norm.PANELS_OUT] = panels.address
            args[norm.LANE_OUT], args[norm.LANE_BYTES] = panels.lane, panels.lane_bytes
        if rows:
            args[norm.ROWS_OUT], args[norm.OUT_STRIDE], args[norm.ADD] = *_row(rows), add
        args[norm.PIECES] = pieces = min(self.sizes.lanes, -(-op.width // 32))
        alone, kind = panels is not None and rows is None, self._panel_kind
        self._emit("norm", norm.norm, args, pieces, kind=kind, alone=alone)

    def _add(self, i: int, op: Op) -> None:
        """What no product could be added into: a copy, and the other operand on top."""
        x, y = (self.places[source].rows for source in op.inputs)
        place = Place(self._rows(op.width))
        plain = Op("add", (), op.width)
        self._norm(x, plain, place.rows, None, add=False, centre=-1)
        self._norm(y, plain, place.rows, None, add=True, centre=-1)
        self.places[i] = place

    def _linear(self, i: int, op: Op) -> None:
        gate, add = self._gate_of(i), self._residual(i)
        if gate is not None:
            self._gated(gate)
            return
        if add is not None:
            self.places[add] = Place(self.places[self._other(add, i)].rows)
            self.fused.add(add)
            self._product([(i, self.places[add].rows, True)], op.weight.split(".")[-1])
            return
        group = [j for j in self.users[op.inputs[0]] if self._plain(j)]
        for j in group:
            self.places[j] = Place(self._rows(self.ops[j].width))
            self.fused.add(j)
        names = [self.ops[j].weight.split(".")[-1] for j in group]
        self._product([(j, self.places[j].rows, False) for j in group], "+".join(names))

    def _plain(self, j: int) -> bool:
        """Whether a linear operation's rows just stand somewhere."""
        kind, fused = self.ops[j].kind, j in self.fused
        return kind == "linear" and not fused and not self._gate_of(j) and not self._residual(j)

    def _gate_of(self, i: int) -> int | None:
        """The gate whose two operands, this product among them, read the same value."""
        users = self.users[i]
        if len(users) != 1 or self.ops[users[0]].kind != "gate":
            return None
        pair = self.ops[users[0]].inputs
        same = {self.ops[j].inputs for j in pair if self.ops[j].kind == "linear"}
        alone = all(self.users[j] == users for j in pair)
        return users[0] if len(same) == 1 and alone and pair[0] != pair[1] else None

    def _product(self, outputs: list[tuple[int, Rows, bool]], name: str) -> np.ndarray:
        args = self._block(linear.FIRST_SEGMENT + len(outputs) * linear.SEGMENT_FIELDS)
        weights = products = 0
        for k, (j, rows, add) in enumerate(outputs):
            at = linear.FIRST_SEGMENT + k * linear.SEGMENT_FIELDS
            matrix = self._segment(args[at : at + linear.SEGMENT_FIELDS], j)
            args[at + linear.S_Y], args[at + linear.S_Y_STRIDE] = _row(rows)
            args[at + linear.S_ADD] = add
            args[linear.TILES] += matrix.tiles
            weights += matrix.tiles * matrix.tile_bytes
            products += matrix.rows * matrix.columns
        args[linear.SEGMENTS] = len(outputs)
        self._emit(
            name, linear.linear, args, int(args[linear.TILES]), kind=self._chunk_kind,
            bytes=weights, products=products,
        )  # fmt: skip
        return args

    def _segment(self, args: np.ndarray, j: int) -> Matrix:
        """Fill in a segment but for where its results go."""
        op, matrix = self.ops[j], self._reader(j)
        place = self.places[op.inputs[0]]
        args[linear.S_TILES], args[linear.S_TILE_BYTES] = matrix.tiles, matrix.tile_bytes
        args[linear.S_PRODUCT], args[linear.S_W] = matrix.format.product.address, matrix.address
        args[linear.S_BLOCKS] = matrix.columns // matrix.format.step
        args[linear.S_MATRIX] = matrix.fields.ctypes.data
        args[linear.S_BIAS] = self.weights.vector(f"{op.weight}.bias")
        if matrix.format.integer:
            panels = place.panels
            size = panels.blocks * SLOT_BYTES * PANEL
            args[linear.S_X] = panels.address
            args[linear.S_PITCH] = args[linear.S_PANEL] = size
            args[linear.S_LANE_X], args[linear.S_LANE_BYTES] = panels.lane, panels.lane_bytes
        else:
            address, stride = _row(place.rows)
            args[linear.S_X], args[linear.S_PITCH] = address, stride
            args[linear.S_PANEL], args[linear.S_LANE_X] = stride * PANEL, address
        return matrix

    def _gated(self, gate: int) -> None:
        op = self.ops[gate]
        args = self._block(linear.G_STRIDE + 1)
        matrices = []
        for k, j in enumerate(op.inputs):
            at = linear.FIRST_SEGMENT + k * linear.SEGMENT_FIELDS
            matrices.append(self._segment(args[at : at + linear.SEGMENT_FIELDS], j))
            self.fused.add(j)
        self.fused.add(gate)
        rows, panels = self._needs(gate)
        place = Place(
            self._rows(op.width) if rows else None,
            self._panels(op.width, lanes=False) if panels else None,
        )
        self.places[gate] = place
        args[linear.TILES] = -(-op.width // 32)
        args[linear.SEGMENTS], args[linear.ACTIVATION] = 2, ACTIVATIONS[op.activation]
        if place.panels:
            # one panel for a single token and for many: its slots differ, its place does not
            place.panels = Panels(
                place.panels.address, place.panels.blocks, place.panels.address, 0
            )  # fmt: skip
            args[linear.G_PANELS], args[linear.G_BLOCKS] = place.panels.address, op.width // 32
        if place.rows:
            args[linear.G_ROWS], args[linear.G_STRIDE] = _row(place.rows)
        self._emit(
            "+".join(self.ops[j].weight.split(".")[-1] for j in op.inputs), linear.gated, args,
            int(args[linear.TILES]), kind=self._chunk_kind,
            bytes=sum(m.tiles * m.tile_bytes for m in matrices),
            products=sum(m.rows * m.columns for m in matrices),
        )  # fmt: skip

    def _head_norm(self, i: int, op: Op) -> None:
        """Done where attention's inputs are prepared."""

    _rope = _head_norm

    def _source(self, i: int) -> tuple[Rows, Op | None, Op | None]:
        """A value's rows before RoPE and head norm, and these."""
        rope = norm_op = None
        if self.ops[i].kind == "rope":
            rope, i = self.ops[i], self.ops[i].inputs[0]
        if self.ops[i].kind == "head_norm":
            norm_op, i = self.ops[i], self.ops[i].inputs[0]
        return self.places[i].rows, rope, norm_op

    def _pages(self, a: Attention) -> Kind:
        """How this layer's pages hold K and V."""
        return KINDS[a.pages_of(self.sizes.kv_type)]

    def _attend(self, i: int, op: Op) -> None:
        a = op.attention
        common = {
            "HEADS": a.heads, "KV_HEADS": a.kv_heads, "K_DIMS": a.k_dims, "V_DIMS": a.v_dims,
            "POOL": self.out.pool.layer(a.layer), "GROUP_BYTES": self.out.pool.group_bytes,
            "HEAD_BYTES": self.out.pool.head_bytes(a), "K_BYTES": self._pages(a).k_bytes(a.k_dims),
        }  # fmt: skip
        q_out = self._shared("q", (self.sizes.rows + 8) * a.heads * a.k_dims * 2)
        scales = self._shared("scales", (self.sizes.rows + 8) * a.heads * 4)
        self._heads(op, a, {**common, "Q_OUT": q_out, "Q_SCALES": scales})
        last = i == self.last
        if last:
            self._pick(i)
        self._spans(i, a, {**common, "Q": q_out, "Q_SCALES": scales, "LAST": last})
        self.wanted = self.wanted or last

    def _heads(self, op: Op, a: Attention, more: dict[str, int]) -> None:
        args = self._block(heads.V_ROTATION + 1)
        sources = dict(zip("QKV", map(self._source, op.inputs), strict=True))
        for name, (rows, _, _) in sources.items():
            args[getattr(heads, name)], args[getattr(heads, f"STRIDE_{name}")] = _row(rows)
        for name in "QK":
            norm_op = sources[name][2]
            if norm_op is not None:
                gain = self.weights.vector(f"{norm_op.weight}.weight")
                args[getattr(heads, f"{name}_GAIN")] = gain
                args[heads.EPSILON] = float_bits(norm_op.epsilon)
        rope = sources["Q"][1]
        if rope is not None and rope.rope is not None and rope.rope.speeds:
            table = self.out.ropes.get(rope.rope)
            if table is None:
                table = self.out.ropes[rope.rope] = RopeTable(rope.rope, self.sizes.context)
            args[heads.ROPE], args[heads.ROPE_DIMS] = table.address, table.dims
            args[heads.ROPE_KIND] = table.kind
        args[heads.Q_SCALE] = float_bits(a.scale * states.LOG2_E)
        kind = self._pages(a)
        args[heads.LEVEL] = kind.q_level(a.k_dims)
        args[heads.ROTATION] = kind.rotation(a.k_dims)
        args[heads.V_ROTATION] = kind.rotation(a.v_dims)
        if kind.learns:
            self._shape(args, a, sources)
        for name, value in more.items():
            args[getattr(heads, name)] = value
        self._emit("heads", kind.heads, args, a.kv_heads, kind=fields.TOKENS)

    def _shape(self, args: np.ndarray, a: Attention, sources) -> None:
        """What becomes of K, nothing yet, for the model to learn."""
        vectors = self.weights.vectors
        gains = [
            None if op is None else vectors[f"{op.weight}.weight"][: a.k_dims]
            for _, _, op in sources.values()
        ]
        rope = sources["Q"][1]
        shape = learn.empty(
            len(self.out.steps), a, sources["Q"][0], sources["K"][0],
            rope=rope and rope.rope, gains=gains[:2],
            epsilon=next((op.epsilon for _, _, op in sources.values() if op), 0.0),
            rotation=self._pages(a).rotation(a.k_dims),
        )  # fmt: skip
        self.out.shapes.append(shape)
        args[heads.CENTRES] = shape.centres.ctypes.data
        args[heads.INVERSES] = shape.inverses.ctypes.data
        args[heads.FACTORS] = shape.factors.ctypes.data
        args[heads.FEEDBACK] = shape.feedback.ctypes.data

    def _spans(self, i: int, a: Attention, more: dict[str, int]) -> None:
        rows, panels = self._needs(i)
        group, width = a.heads // a.kv_heads, a.heads * a.v_dims
        direct = panels and group * a.v_dims % 32 == 0
        place = Place(
            self._rows(width) if rows or not direct else None,
            self._panels(width, lanes=not rows) if direct else None,
        )
        self.places[i] = place
        args = self._block(states.ROTATION + 1)
        args[states.ROTATION] = self._pages(a).rotation(a.v_dims)
        for tile, kernel in self._pages(a).spans.items():
            args[getattr(states, f"SPAN_{tile}")] = kernel.address
        part = states.part_bytes(a.v_dims, group)
        args[states.PARTS] = self._shared("parts", self.sizes.parts * a.kv_heads * part)
        args[states.WINDOW] = a.window
        args[states.SOFTCAP] = float_bits(a.softcap * states.LOG2_E)
        for name, value in more.items():
            args[getattr(states, name)] = value
        if place.rows:
            args[states.ROWS_OUT], args[states.OUT_STRIDE] = _row(place.rows)
        if place.panels:
            args[states.PANELS_OUT] = place.panels.address
            args[states.LANE_OUT] = place.panels.lane
            args[states.LANE_BYTES] = place.panels.lane_bytes
        alone = place.rows is None
        self._emit("attend", attention.attend, args, a.kv_heads, kind=fields.TASKS)
        self._emit(
            "merge", attention.merge_spans, args, a.kv_heads, kind=fields.MERGES, alone=alone
        )
        if panels and not direct:
            self.wanted = self.wanted or i == self.last
            place.panels = self._panels(width, lanes=False)
            self._norm(place.rows, Op("quantise", (), width), None, place.panels, False, centre=-1)

    def _pick(self, i: int) -> None:
        """Values that live on past the last attention: only the rows that are wanted."""
        for j, place in list(self.places.items()):
            if place.rows is None or self._last_use(j) <= i:
                continue
            width = self.ops[j].width
            rows = self._rows(width)
            args = self._block(linear.P_BYTES + 1)
            args[fields.ROWS] = fields.WANTED
            args[linear.P_FROM], args[linear.P_TO] = place.rows.address, rows.address
            args[linear.P_STRIDE] = args[linear.P_BYTES] = rows.stride
            self._emit("pick", linear.pick, args, 1, kind=fields.WANTED)
            self.places[j] = Place(rows)

    def _logits(self, i: int, op: Op) -> None:
        stride = round_up(op.width, 32) * 4
        self.out.logits = Rows(self._memory(self.sizes.wanted * stride), stride)
        self.out.hidden, self.tail = self.places[op.inputs[0]].rows, True
        args = self._product([(i, self.out.logits, False)], "logits")
        if op.width % LANES == 0 and not op.scale:
            self._draw(op, args[linear.FIRST_SEGMENT :])

    def _draw(self, op: Op, segment: np.ndarray) -> None:
        """Draw tokens from logits as they are, of which `segment` makes a note of the peaks."""
        stride = self.out.logits.stride // LANES
        peaks = Rows(self._memory(self.sizes.wanted * stride), stride)
        segment[linear.S_PEAKS], segment[linear.S_PEAKS_STRIDE] = _row(peaks)
        args = self._block(draw.TILES + 1)
        args[draw.LOGITS], args[draw.STRIDE] = _row(self.out.logits)
        args[draw.PEAKS], args[draw.PEAKS_STRIDE] = _row(peaks)
        args[draw.TILES] = op.width // LANES
        self._emit("draw", draw.draw, args, 1, kind=fields.DRAWS)
        self._emit("advance", advance.advance, self._block(fields.OWN), 1, kind=fields.ONWARD)
        self.out.draws = True


def _row(rows: Rows) -> tuple[int, int]:
    return rows.address, rows.stride
