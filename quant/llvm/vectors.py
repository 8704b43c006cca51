"""Vector registers as Numba values: arithmetic, conversions, bytes (see `quant.simd`).

A vector has one 32-bit lane for each of LANES rows: `f32v` and `i32v` hold a number a lane,
`u8v` four bytes a lane. Addresses are plain integers. `+ - * / & | ^` work on equal types.
Only this folder contains LLVM, and knows how processors differ.
"""

import operator

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.extending import intrinsic, models, register_model
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global, signature

from quant.target import BYTES, LANES, TARGET

I8, I16, I32, I64 = (ir.IntType(n) for n in (8, 16, 32, 64))
F16, F32 = ir.HalfType(), ir.FloatType()


class Vector(types.Type):
    """A Numba type that lives in one vector register."""

    def __init__(self, name: str, element: ir.Type, count: int):
        self.llvm = ir.VectorType(element, count)
        super().__init__(name=f"{name}x{count}")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, kind.llvm)


f32v = Vector("f32", F32, LANES)
i32v = Vector("i32", I32, LANES)
i16v = Vector("i16", I16, 2 * LANES)
u8v = Vector("u8", I8, BYTES)
_F, _I, _B, _W = f32v.llvm, i32v.llvm, u8v.llvm, i16v.llvm


# ---- for code generation, here and in `tiles` -----------------------------------------------


def at(b, address, kind):
    """The pointer to that type that an integer address stands for."""
    return b.inttoptr(address, kind.as_pointer())


def const(kind, value):
    """A number, or a vector with it in every lane."""
    return ir.Constant(kind, [value] * kind.count if isinstance(kind, ir.VectorType) else value)


def splat(b, x, count=LANES):
    """A vector with the scalar in every lane."""
    kind = ir.VectorType(x.type, count)
    empty = ir.Constant(kind, ir.Undefined)
    first = b.insert_element(empty, x, ir.Constant(I32, 0))
    return b.shuffle_vector(first, empty, ir.Constant(ir.VectorType(I32, count), [0] * count))


def call(b, name, result, *args, **flags):
    """Call an LLVM intrinsic by its full name."""
    kind = ir.FunctionType(result, [a.type for a in args])
    return b.call(cgutils.get_or_insert_function(b.module, kind, name), args, **flags)


def shuffle(b, x, y, lanes):
    """The lanes of x and y (numbered after those of x) in another order."""
    return b.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, len(lanes)), list(lanes)))


def nothing(context):
    """What an intrinsic without a result generates."""
    return context.get_dummy_value()


# ---- operators ----------------------------------------------------------------------------------


def _operator(symbol, on_integers, on_floats):
    @infer_global(symbol)
    class _Typing(AbstractTemplate):
        def generic(self, args, kws):
            if len(args) == 2 and isinstance(args[0], Vector) and args[0] == args[1]:
                return signature(args[0], *args)
            return None

    @lower_builtin(symbol, Vector, Vector)
    def _lower(context, b, sig, args):
        floats = isinstance(sig.return_type.llvm.element, ir.FloatType)
        return getattr(b, on_floats if floats else on_integers)(*args)


_operator(operator.add, "add", "fadd")
_operator(operator.sub, "sub", "fsub")
_operator(operator.mul, "mul", "fmul")
_operator(operator.truediv, "sdiv", "fdiv")
_operator(operator.and_, "and_", "and_")
_operator(operator.or_, "or_", "or_")
_operator(operator.xor, "xor", "xor")


# ---- values -----------------------------------------------------------------------------------


def _unary(argument, result, build):
    @intrinsic
    def function(context, x):
        return result(argument), lambda ctx, b, sig, args: build(b, *args)

    return function


def _binary(argument, result, build):
    @intrinsic
    def function(context, x, y):
        return result(argument, argument), lambda ctx, b, sig, args: build(b, *args)

    return function


def _f(name):
    return f"llvm.{name}.v{LANES}f32"


def fma_llvm(b, x, y, z):
    """x * y + z, rounded once where the processor can."""
    if TARGET.name == "plain":
        return b.fadd(b.fmul(x, y), z)
    return call(b, _f("fma"), _F, x, y, z)


splat_f32 = _unary(types.float32, f32v, splat)
splat_i32 = _unary(types.int32, i32v, splat)
to_f32 = _unary(i32v, f32v, lambda b, x: b.sitofp(x, _F))
absolute = _unary(f32v, f32v, lambda b, x: call(b, _f("fabs"), _F, x))
_MAGIC = 1.5 * 2**23  # adding it leaves a whole number in the low bits, rounded to nearest even


def _nearest(b, x):
    if TARGET.name != "plain":
        return call(b, _f("rint"), _F, x)
    return b.fsub(b.fadd(x, const(_F, _MAGIC)), const(_F, _MAGIC))


def _to_i32(b, x):
    """To nearest even, for |x| < 2**22. Where only low bits are kept, the addition is enough."""
    shifted = b.bitcast(b.fadd(x, const(_F, _MAGIC)), _I)
    return b.sub(shifted, const(_I, int(np.float32(_MAGIC).view(np.int32))))


nearest = _unary(f32v, f32v, _nearest)
to_i32 = _unary(f32v, i32v, _to_i32)
maximum = _binary(f32v, f32v, lambda b, x, y: b.select(b.fcmp_ordered(">", x, y), x, y))
minimum = _binary(f32v, f32v, lambda b, x, y: b.select(b.fcmp_ordered("<", x, y), x, y))


def _reduce(b, x, combine):
    """Halve the vector until one lane is left: a fixed order on every processor."""
    width = x.type.count
    while width > 1:
        width //= 2
        x = combine(shuffle(b, x, x, range(width)), shuffle(b, x, x, range(width, 2 * width)))
    return b.extract_element(x, ir.Constant(I32, 0))


def _peak(b, x):
    return _reduce(b, x, lambda p, q: b.select(b.fcmp_ordered(">", p, q), p, q))


total = _unary(f32v, types.float32, lambda b, x: _reduce(b, x, b.fadd))
total_i32 = _unary(i32v, types.int32, lambda b, x: _reduce(b, x, b.add))
peak = _unary(f32v, types.float32, _peak)


@intrinsic
def fma(context, x, y, z):
    """x * y + z."""
    return f32v(f32v, f32v, f32v), lambda ctx, b, sig, args: fma_llvm(b, *args)


@intrinsic
def lanes_between(context, x, begin, end, other):
    """x in lanes begin to end - 1, the scalar `other` in the rest; the bounds may lie outside."""

    def generate(ctx, b, sig, args):
        lane = ir.Constant(_I, list(range(LANES)))
        after = b.icmp_signed(">=", lane, splat(b, b.trunc(args[1], I32)))
        before = b.icmp_signed("<", lane, splat(b, b.trunc(args[2], I32)))
        return b.select(b.and_(after, before), args[0], splat(b, args[3]))

    return f32v(f32v, types.intp, types.intp, types.float32), generate


swap_pairs = _unary(f32v, f32v, lambda b, x: shuffle(b, x, x, [k ^ 1 for k in range(LANES)]))


@intrinsic(prefer_literal=True)
def butterfly(context, x, apart):
    """Of each two lanes that far apart: their sum in the first, their difference in the second."""
    distance = apart.literal_value

    def generate(ctx, b, sig, args):
        other = shuffle(b, args[0], args[0], [(k ^ distance) % LANES for k in range(LANES)])
        signs = [-1.0 if k & distance else 1.0 for k in range(LANES)]
        return fma_llvm(b, args[0], ir.Constant(_F, signs), other)

    return f32v(x, apart), generate


@intrinsic
def power_of_two(context, x, n):
    """x * 2**n for whole n that keep it a normal number."""

    def generate(ctx, b, sig, args):
        exponent = b.shl(b.fptosi(args[1], _I), const(_I, 23))
        return b.bitcast(b.add(b.bitcast(args[0], _I), exponent), _F)

    return f32v(f32v, f32v), generate


@intrinsic
def zero_below(context, value, x, limit):
    """value where x >= limit, else 0."""

    def generate(ctx, b, sig, args):
        keep = b.fcmp_ordered(">=", args[1], splat(b, args[2]))
        return b.select(keep, args[0], const(_F, 0.0))

    return f32v(f32v, f32v, types.float32), generate


# ---- bytes ------------------------------------------------------------------------------------


@intrinsic(prefer_literal=True)
def bits(context, x, left, mask):
    """Each byte shifted left (right if negative) within its pair of bytes, then masked."""
    places, kept = left.literal_value, mask.literal_value

    def generate(ctx, b, sig, args):
        y = args[0]
        if places:
            move = b.shl if places > 0 else b.lshr
            y = b.bitcast(move(b.bitcast(y, _W), const(_W, abs(places))), _B)
        return b.and_(y, const(_B, kept))

    return u8v(x, left, mask), generate


@intrinsic(prefer_literal=True)
def splat_byte(context, value):
    """The byte everywhere."""
    return u8v(value), lambda ctx, b, sig, args: const(_B, value.literal_value)


@intrinsic
def shift_right(context, x, places):
    """Each pair of bytes shifted right by a number known at run time."""

    def generate(ctx, b, sig, args):
        count = splat(b, b.trunc(args[1], I16), 2 * LANES)
        return b.bitcast(b.lshr(b.bitcast(args[0], _W), count), _B)

    return u8v(u8v, types.intp), generate


@intrinsic
def spread_bits(context, x, first):
    """Bits first to first + 3 of each lane, one to the lowest bit of each of its four bytes."""

    def generate(ctx, b, sig, args):
        low = b.lshr(b.bitcast(args[0], _I), splat(b, b.trunc(args[1], I32)))
        spread = b.mul(b.and_(low, const(_I, 15)), const(_I, 0x204081))
        return b.bitcast(b.and_(spread, const(_I, 0x01010101)), _B)

    return u8v(u8v, types.intp), generate
