"""Register tiles: a tuple of T vectors, one for each token, that an operation changes together.

Token t finds its operand in memory at `address + t * stride`. LLVM keeps the tuple in registers.
"""

from llvmlite import ir
from numba import types
from numba.core.extending import intrinsic

from quant.llvm.vectors import (
    F32,
    I32,
    I64,
    at,
    call,
    const,
    f32v,
    fma_llvm,
    i16v,
    i32v,
    nothing,
    shuffle,
    splat,
    u8v,
)
from quant.target import LANES

_F, _I, _B, _W = f32v.llvm, i32v.llvm, u8v.llvm, i16v.llvm
_BITS = 32 * LANES


def place_of(b, address, stride, t):
    return b.add(address, b.mul(stride, ir.Constant(I64, t)))


def each(b, kind, build, tiles=None):
    """A tuple of that Numba type, element t being build(t, element t of `tiles`)."""
    out = ir.Constant(ir.ArrayType(kind.dtype.llvm, kind.count), ir.Undefined)
    for t in range(kind.count):
        old = b.extract_value(tiles, t) if tiles is not None else None
        out = b.insert_value(out, build(t, old), t)
    return out


def f32_of(b, address, stride, t):
    return splat(b, b.load(at(b, place_of(b, address, stride, t), F32), align=4))


def i32_of(b, address, stride, t):
    return splat(b, b.load(at(b, place_of(b, address, stride, t), I32), align=4))


# ---- making and storing -----------------------------------------------------------------------


@intrinsic(prefer_literal=True)
def zeros(context, count):
    """`count` vectors of f32 zeros."""
    kind = types.UniTuple(f32v, count.literal_value)
    return kind(count), lambda ctx, b, sig, args: each(b, kind, lambda t, _: const(_F, 0.0))


@intrinsic
def zeros_like(context, tiles):
    """As many vectors of f32 zeros."""
    kind = types.UniTuple(f32v, tiles.count)
    return kind(tiles), lambda ctx, b, sig, args: each(b, kind, lambda t, _: const(_F, 0.0))


@intrinsic
def int_zeros_like(context, tiles):
    """As many vectors of i32 zeros."""
    kind = types.UniTuple(i32v, tiles.count)
    return kind(tiles), lambda ctx, b, sig, args: each(b, kind, lambda t, _: const(_I, 0))


@intrinsic
def narrow_zeros_like(context, tiles):
    """As many vectors of i16 zeros."""
    kind = types.UniTuple(i16v, tiles.count)
    return kind(tiles), lambda ctx, b, sig, args: each(b, kind, lambda t, _: const(_W, 0))


@intrinsic
def ints_at(context, tiles, address, stride):
    """As many vectors: the i32 of token t in every lane."""
    kind = types.UniTuple(i32v, tiles.count)

    def generate(ctx, b, sig, args):
        return each(b, kind, lambda t, _: i32_of(b, args[1], args[2], t))

    return kind(tiles, types.intp, types.intp), generate


@intrinsic
def store_rows(context, tiles, address, stride):
    """Store vector t at address + t * stride."""

    def generate(ctx, b, sig, args):
        for t in range(tiles.count):
            place = at(b, place_of(b, args[1], args[2], t), tiles.dtype.llvm)
            b.store(b.extract_value(args[0], t), place, align=4)
        return nothing(ctx)

    return types.void(tiles, types.intp, types.intp), generate


def _rows_reader(element):
    """As many vectors of that type: vector t from address + t * stride."""

    @intrinsic
    def rows(context, tiles, address, stride):
        kind = types.UniTuple(element, tiles.count)

        def generate(ctx, b, sig, args):
            def one(t, _):
                return b.load(at(b, place_of(b, args[1], args[2], t), element.llvm), align=4)

            return each(b, kind, one)

        return kind(tiles, types.intp, types.intp), generate

    return rows


rows_at, int_rows_at = _rows_reader(f32v), _rows_reader(i32v)


@intrinsic
def larger_rows(context, tiles, address, stride):
    """The larger of tiles[t] and the size of what stands at address + t * stride."""

    def generate(ctx, b, sig, args):
        def one(t, old):
            x = b.load(at(b, place_of(b, args[1], args[2], t), _F), align=4)
            size = call(b, f"llvm.fabs.v{LANES}f32", _F, x)
            return b.select(b.fcmp_ordered(">", old, size), old, size)

        return each(b, tiles, one, args[0])

    return tiles(tiles, types.intp, types.intp), generate


def _across(combine):
    """A row of T numbers in memory: the lanes of each vector combined.

    Lanes i and i + half at each halving, whatever T is. Two vectors share the work of one.
    """

    @intrinsic
    def store(context, address, tiles):
        def generate(ctx, b, sig, args):
            vectors = [b.extract_value(args[1], t) for t in range(tiles.count)]
            width = LANES
            while width > 1:
                pairs = list(zip(vectors[::2], vectors[1::2], strict=False)) or [(vectors[0], None)]
                vectors = [_halve(b, x, y, width, combine) for x, y in pairs]
                width //= 2
            for n, vector in enumerate(vectors):
                place = b.add(args[0], ir.Constant(I64, 4 * vector.type.count * n))
                b.store(vector, at(b, place, vector.type), align=4)
            return nothing(ctx)

        return types.void(types.intp, tiles), generate

    return store


def _halve(b, x, y, width, combine):
    """Rows of `width` lanes in x, then those in y, each halved."""
    count = x.type.count if y is None else 2 * x.type.count
    low = [k for k in range(count) if k % width < width // 2]
    high = [k + width // 2 for k in low]
    y = x if y is None else y
    return combine(b, shuffle(b, x, y, low), shuffle(b, x, y, high))


def _add(b, p, q):
    return b.fadd(p, q) if p.type.element == F32 else b.add(p, q)


store_peaks = _across(lambda b, p, q: b.select(b.fcmp_ordered(">", p, q), p, q))
store_totals = _across(_add)


# ---- floating point ---------------------------------------------------------------------------


@intrinsic
def fma_rows(context, tiles, x, address, stride):
    """tiles[t] += x * the f32 of token t."""

    def generate(ctx, b, sig, args):
        def one(t, acc):
            return fma_llvm(b, args[1], f32_of(b, args[2], args[3], t), acc)

        return each(b, tiles, one, args[0])

    return tiles(tiles, f32v, types.intp, types.intp), generate


@intrinsic
def fma_scaled_rows(context, tiles, ints, scale, address, stride):
    """tiles[t] += ints[t] * the f32 of token t * scale."""

    def generate(ctx, b, sig, args):
        def one(t, acc):
            number = b.sitofp(b.extract_value(args[1], t), _F)
            return fma_llvm(b, b.fmul(number, f32_of(b, args[3], args[4], t)), args[2], acc)

        return each(b, tiles, one, args[0])

    return tiles(tiles, ints, f32v, types.intp, types.intp), generate


@intrinsic
def fma_offset_rows(context, tiles, ints, scale, address, offsets, stride):
    """tiles[t] += (ints[t] * the f32 of token t + its f32 at `offsets`) * scale."""

    def generate(ctx, b, sig, args):
        def one(t, acc):
            x, z = (f32_of(b, args[k], args[5], t) for k in (3, 4))
            number = b.sitofp(b.extract_value(args[1], t), _F)
            return fma_llvm(b, fma_llvm(b, number, x, z), args[2], acc)

        return each(b, tiles, one, args[0])

    return tiles(tiles, ints, f32v, types.intp, types.intp, types.intp), generate


@intrinsic
def fma_int_rows(context, tiles, ints, address, stride):
    """tiles[t] += ints[t] * the f32 of token t."""

    def generate(ctx, b, sig, args):
        def one(t, acc):
            number = b.sitofp(b.extract_value(args[1], t), _F)
            return fma_llvm(b, number, f32_of(b, args[2], args[3], t), acc)

        return each(b, tiles, one, args[0])

    return tiles(tiles, ints, types.intp, types.intp), generate


@intrinsic
def fma_int_tiles(context, tiles, ints, x):
    """tiles[t] += ints[t] * x, lane by lane."""

    def generate(ctx, b, sig, args):
        def one(t, acc):
            return fma_llvm(b, b.sitofp(b.extract_value(args[1], t), _F), args[2], acc)

        return each(b, tiles, one, args[0])

    return tiles(tiles, ints, f32v), generate


@intrinsic
def multiply_rows(context, tiles, address, stride):
    """tiles[t] * the f32 of token t."""

    def generate(ctx, b, sig, args):
        return each(b, tiles, lambda t, x: b.fmul(x, f32_of(b, args[1], args[2], t)), args[0])

    return tiles(tiles, types.intp, types.intp), generate


@intrinsic
def fma_tiles(context, tiles, sums, scale):
    """tiles[t] += sums[t] * scale."""

    def generate(ctx, b, sig, args):
        def one(t, acc):
            return fma_llvm(b, b.extract_value(args[1], t), args[2], acc)

        return each(b, tiles, one, args[0])

    return tiles(tiles, tiles, f32v), generate


@intrinsic
def scale_rows(context, ints, scale, address, stride):
    """ints[t] as f32 * scale * the f32 of token t."""
    kind = types.UniTuple(f32v, ints.count)

    def generate(ctx, b, sig, args):
        def one(t, number):
            scaled = b.fmul(b.sitofp(number, _F), args[1])
            return b.fmul(scaled, f32_of(b, args[2], args[3], t))

        return each(b, kind, one, args[0])

    return kind(ints, f32v, types.intp, types.intp), generate


@intrinsic
def multiply_ints(context, ints, x):
    """ints[t] * x, lane by lane."""

    def generate(ctx, b, sig, args):
        return each(b, ints, lambda t, i: b.mul(i, args[1]), args[0])

    return ints(ints, i32v), generate


@intrinsic
def add_ints(context, ints, others):
    """ints[t] + others[t]."""

    def generate(ctx, b, sig, args):
        return each(b, ints, lambda t, i: b.add(i, b.extract_value(args[1], t)), args[0])

    return ints(ints, others), generate


@intrinsic
def merge_rows(context, tiles, address, stride, old, new):
    """Memory at address + t * stride, times the f32 of token t at `old`, plus tiles[t] times the
    one at `new`."""

    def generate(ctx, b, sig, args):
        for t in range(tiles.count):
            place = at(b, place_of(b, args[1], args[2], t), _F)
            a, z = (f32_of(b, args[k], ir.Constant(I64, 4), t) for k in (3, 4))
            part = b.fmul(b.extract_value(args[0], t), z)
            b.store(fma_llvm(b, b.load(place, align=4), a, part), place, align=4)
        return nothing(ctx)

    return types.void(tiles, types.intp, types.intp, types.intp, types.intp), generate
