"""Integer dot products of register tiles: the one place that knows how each processor makes them.

Token t finds its operand in memory at `address + t * stride`, as in `tiles`.
"""

from llvmlite import ir
from numba import types
from numba.core.extending import intrinsic

from quant.llvm.tiles import each, i32_of, place_of
from quant.llvm.vectors import (
    I16,
    I64,
    at,
    call,
    const,
    i16v,
    i32v,
    shuffle,
    u8v,
)
from quant.target import LANES, TARGET

_I, _B, _W = i32v.llvm, u8v.llvm, i16v.llvm
_BITS = 32 * LANES


def _vnni(b, acc, weights, x):
    return call(b, f"llvm.x86.avx512.vpdpbusd.{_BITS}", _I, acc, weights, x)


def _pairs(b, products, factor):
    """Sums of neighbouring i16 as i32, times `factor`."""
    return call(b, "llvm.x86.avx2.pmadd.wd", _I, products, const(_W, factor))


def _narrow(b, weights, x):
    """Sums of two products as i16, for weights so small that they fit."""
    return call(b, "llvm.x86.avx2.pmadd.ub.sw", _W, weights, x)


def _avx2(b, acc, weights, x):
    """Nibble by nibble."""
    low, high = b.and_(weights, const(_B, 15)), b.lshr(weights, const(_B, 4))
    sums = _pairs(b, _narrow(b, low, x), 1), _pairs(b, _narrow(b, high, x), 16)
    return b.add(acc, b.add(*sums))


def _sdot(b, acc, weights, x):
    return call(b, "llvm.aarch64.neon.sdot.v4i32.v16i8", _I, acc, weights, x)


def _add_fours(b, acc, products):
    """acc + the sum of each four i16."""
    for k in range(4):
        part = shuffle(b, products, products, range(k, 4 * LANES, 4))
        acc = b.add(acc, b.sext(part, _I))
    return acc


def _plain(b, acc, weights, x):
    wide = ir.VectorType(I16, 4 * LANES)
    products = b.mul(b.sext(weights, wide), b.sext(x, wide))
    return _add_fours(b, acc, products)


_dot = {"avx2": _avx2, "neon-dotprod": _sdot, "plain": _plain}.get(TARGET.name, _vnni)


def _bytes_of(b, address, stride, t):
    return b.bitcast(i32_of(b, address, stride, t), _B)


@intrinsic
def dot_rows(context, tiles, weights, address, stride):
    """tiles[t] += weights x the 4 int8 of token t, lane by lane. Weights are whole bytes, signed
    or not as `TARGET.signed` says."""

    def generate(ctx, b, sig, args):
        def one(t, acc):
            return _dot(b, acc, args[1], _bytes_of(b, args[2], args[3], t))

        return each(b, tiles, one, args[0])

    return tiles(tiles, u8v, types.intp, types.intp), generate


@intrinsic
def dot_four_rows(context, tiles, first, second, third, fourth, address, stride):
    """The same for four vectors of weights and the 16 int8 of token t. Where an instruction takes
    its 4 int8 from a lane, a token's 16 are loaded once."""

    def generate(ctx, b, sig, args):
        tile, *weights, address, stride = args
        if TARGET.name == "neon-dotprod":

            def one(t, acc):
                x = b.load(at(b, place_of(b, address, stride, t), _I), align=1)
                for lane, w in enumerate(weights):
                    acc = _dot(b, acc, w, b.bitcast(shuffle(b, x, x, [lane] * LANES), _B))
                return acc

            return each(b, tiles, one, tile)
        for k, w in enumerate(weights):
            x = b.add(address, ir.Constant(I64, 4 * k))
            tile = each(
                b, tiles, lambda t, i, w=w, x=x: _dot(b, i, w, _bytes_of(b, x, stride, t)), tile
            )
        return tile

    return tiles(tiles, u8v, u8v, u8v, u8v, types.intp, types.intp), generate


def _kept(b, x):
    """x itself, which LLVM may not see through: sums stay in the order they are written in."""
    return b.asm(ir.FunctionType(x.type, [x.type]), "", "=x,0", [x], side_effect=False)


@intrinsic
def dot_narrow_rows(context, sums, weights, others, address, distance, stride):
    """sums[t] += weights x the 4 int8 of token t + others x the 4 that lie `distance` further, two
    i16 a lane: for weights so small that these do not overflow."""

    def generate(ctx, b, sig, args):
        _, w, v, x, distance, stride = args
        y = b.add(x, distance)

        def one(t, acc):
            first = _narrow(b, w, _bytes_of(b, x, stride, t))
            return _kept(b, b.add(acc, b.add(first, _narrow(b, v, _bytes_of(b, y, stride, t)))))

        return each(b, sums, one, args[0])

    return sums(sums, u8v, u8v, types.intp, types.intp, types.intp), generate


@intrinsic
def dot_wide_rows(context, ints, weights, others, pairs, address, distance, stride):
    """ints[t] += the same sums, times `pairs` of i16: widened at once."""

    def generate(ctx, b, sig, args):
        _, w, v, pairs, x, distance, stride = args
        y, factors = b.add(x, distance), b.bitcast(pairs, _W)

        def one(t, acc):
            first = _narrow(b, w, _bytes_of(b, x, stride, t))
            both = b.add(first, _narrow(b, v, _bytes_of(b, y, stride, t)))
            return _kept(b, _halves(b, acc, both, factors))

        return each(b, ints, one, args[0])

    return ints(ints, u8v, u8v, i32v, types.intp, types.intp, types.intp), generate


@intrinsic
def dot_sums(context, ints, sums, pairs):
    """ints[t] += the two i16 in each lane of sums[t] times those of `pairs`."""

    def generate(ctx, b, sig, args):
        y = b.bitcast(args[2], _W)
        return each(b, ints, lambda t, i: _halves(b, i, b.extract_value(args[1], t), y), args[0])

    return ints(ints, sums, i32v), generate


def _halves(b, acc, x, y):
    """acc + x . y for pairs of i16."""
    if TARGET.name in ("avx512-vnni", "avx512vl-vnni", "avx-vnni"):
        return call(b, f"llvm.x86.avx512.vpdpwssd.{_BITS}", _I, acc, x, y)
    if TARGET.name == "avx2":
        return b.add(acc, call(b, "llvm.x86.avx2.pmadd.wd", _I, x, y))
    for k in range(2):
        p, q = (b.sext(shuffle(b, v, v, range(k, 2 * LANES, 2)), _I) for v in (x, y))
        acc = b.add(acc, b.mul(p, q))
    return acc


@intrinsic
def dot_pairs(context, tiles, pairs, address, stride):
    """tiles[t] += the pairs of i16 in each lane times the pair of token t."""

    def generate(ctx, b, sig, args):
        x = b.bitcast(args[1], _W)

        def one(t, acc):
            return _halves(b, acc, x, b.bitcast(i32_of(b, args[2], args[3], t), _W))

        return each(b, tiles, one, args[0])

    return tiles(tiles, i32v, types.intp, types.intp), generate


def _unsigned(b, acc, x, y):
    """acc + x . y for four bytes a lane, x being 0 to 255 and y -127 to 127."""
    if not TARGET.signed:
        return _dot(b, acc, x, y)
    if TARGET.name == "neon-dotprod":  # (x - 128) . y + 2 (64 . y)
        shift = _sdot(b, _sdot(b, acc, const(_B, 64), y), const(_B, 64), y)
        return _sdot(b, shift, b.xor(x, const(_B, 0x80)), y)
    wide = ir.VectorType(I16, 4 * LANES)
    products = b.mul(b.zext(x, wide), b.sext(y, wide))
    return _add_fours(b, acc, products)


@intrinsic
def dot_unsigned(context, tiles, y, address, stride):
    """tiles[t] += the four bytes 0 to 255 of token t times four bytes -127 to 127 a lane."""

    def generate(ctx, b, sig, args):
        def one(t, acc):
            return _unsigned(b, acc, b.bitcast(i32_of(b, args[2], args[3], t), _B), args[1])

        return each(b, tiles, one, args[0])

    return tiles(tiles, u8v, types.intp, types.intp), generate
