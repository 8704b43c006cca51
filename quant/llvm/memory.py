"""Vectors and numbers in memory: loads, stores, prefetches, room on the stack (see `quant.simd`).

Addresses are plain integers. Vectors need no alignment; single numbers and parts of
lanes need their own, 4 bytes at most."""

from llvmlite import ir
from numba import types
from numba.core.extending import intrinsic

from quant.llvm.vectors import (
    F16,
    F32,
    I8,
    I16,
    I32,
    I64,
    at,
    call,
    const,
    f32v,
    i16v,
    i32v,
    nothing,
    shuffle,
    splat,
    u8v,
)
from quant.target import BYTES, LANES, TARGET

_F, _I, _B, _W = f32v.llvm, i32v.llvm, u8v.llvm, i16v.llvm

# ---- whole vectors ------------------------------------------------------------------------------


def _loader(result, memory, convert=lambda b, x: x):
    @intrinsic
    def load(context, address):
        def generate(ctx, b, sig, args):
            return convert(b, b.load(at(b, args[0], memory), align=1))

        return result(types.intp), generate

    return load


def _storer(value, convert=lambda b, x: x):
    @intrinsic
    def store(context, address, vector):
        def generate(ctx, b, sig, args):
            x = convert(b, args[1])
            b.store(x, at(b, args[0], x.type), align=1)
            return nothing(ctx)

        return types.void(types.intp, value), generate

    return store


def _half_to_float(b, bits, half=ir.VectorType(F16, LANES), whole=_I, result=_F):
    """f16 to f32: by the processor where it can, else by moving the bits (no infinities)."""
    if TARGET.name != "plain":
        return b.fpext(b.bitcast(bits, half), result)
    wide = b.zext(bits, whole)
    magnitude = b.shl(b.and_(wide, const(whole, 0x7FFF)), const(whole, 13))
    scaled = b.fmul(b.bitcast(magnitude, result), const(result, 2.0**112))
    sign = b.shl(b.and_(wide, const(whole, 0x8000)), const(whole, 16))
    return b.bitcast(b.or_(b.bitcast(scaled, whole), sign), result)


def _brain_to_float(b, bits):
    return b.bitcast(b.shl(b.zext(bits, _I), const(_I, 16)), _F)


_NARROW8, _NARROW16 = ir.VectorType(I8, LANES), ir.VectorType(I16, LANES)

load_f32 = _loader(f32v, _F)
load_f16 = _loader(f32v, _NARROW16, _half_to_float)
load_bf16 = _loader(f32v, _NARROW16, _brain_to_float)
load_i32 = _loader(i32v, _I)
load_u8 = _loader(i32v, _NARROW8, lambda b, x: b.zext(x, _I))
load_i8 = _loader(i32v, _NARROW8, lambda b, x: b.sext(x, _I))
load_bytes = _loader(u8v, _B)
load_byte_pairs = _loader(
    i32v, ir.VectorType(I8, 2 * LANES), lambda b, x: b.bitcast(b.sext(x, _W), _I)
)  # int8 to pairs of 16 bits
store_f32 = _storer(f32v)
store_i32 = _storer(i32v)
store_bytes = _storer(u8v)
store_eight = _storer(f32v, lambda b, x: shuffle(b, x, x, range(min(LANES, 8))))
store_eight_ints = _storer(i32v, lambda b, x: shuffle(b, x, x, range(min(LANES, 8))))
store_low_bytes = _storer(i32v, lambda b, x: b.trunc(x, _NARROW8))
store_low_halves = _storer(i32v, lambda b, x: b.trunc(x, _NARROW16))


@intrinsic
def column(context, address, stride):
    """The four bytes at `address` of each of LANES rows that lie `stride` bytes apart."""

    def generate(ctx, b, sig, args):
        x = ir.Constant(_I, ir.Undefined)
        for row in range(LANES):
            place = b.add(args[0], b.mul(args[1], ir.Constant(I64, row)))
            x = b.insert_element(x, b.load(at(b, place, I32), align=1), ir.Constant(I32, row))
        return b.bitcast(x, _B)

    return u8v(types.intp, types.intp), generate


# ---- parts of lanes -----------------------------------------------------------------------------


@intrinsic(prefer_literal=True)
def store_part(context, address, x, width, index):
    """Store part `index` of each lane, parts being `width` bits: LANES bytes or 16-bit numbers."""
    size, number = width.literal_value, index.literal_value

    def generate(ctx, b, sig, args):
        part = ir.VectorType(ir.IntType(size), LANES)
        y = b.trunc(b.lshr(b.bitcast(args[1], _I), const(_I, size * number)), part)
        b.store(y, at(b, args[0], part), align=1)
        return nothing(ctx)

    return types.void(types.intp, u8v, width, index), generate


def _masked_store(b, address, x, keep):
    """Store the elements of a vector that `keep`, a list of i1, names; touch no others."""
    name = f"llvm.masked.store.v{x.type.count}i{x.type.element.width}.p0"
    align = ir.Constant(I32, x.type.element.width // 8)
    call(b, name, ir.VoidType(), x, at(b, address, x.type), align, keep)


def _part_storer(size, narrow):
    """Stores the low `size` bits of each lane as part `which` of that lane in memory. The other
    parts are not touched, for another thread may be writing them."""
    parts = 32 // size

    @intrinsic
    def store(context, address, vector, which):
        def generate(ctx, b, sig, args):
            if TARGET.name == "avx512-vnni":
                number = b.trunc(args[2], I32)
                places = splat(b, b.mul(number, ir.Constant(I32, size)))
                whole = ir.VectorType(narrow, parts * LANES)
                moved = b.bitcast(b.shl(args[1], places), whole)
                here = ir.Constant(
                    ir.VectorType(I32, whole.count), [k % parts for k in range(whole.count)]
                )
                keep = b.icmp_signed("==", here, splat(b, number, whole.count))
                _masked_store(b, args[0], moved, keep)
                return nothing(ctx)
            first = b.add(args[0], b.mul(args[2], ir.Constant(I64, size // 8)))
            for lane in range(LANES):
                part = b.trunc(b.extract_element(args[1], ir.Constant(I32, lane)), narrow)
                place = b.add(first, ir.Constant(I64, 4 * lane))
                b.store(part, at(b, place, narrow), align=size // 8)
            return nothing(ctx)

        return types.void(types.intp, i32v, types.intp), generate

    return store


store_halves = _part_storer(16, I16)
store_quarters = _part_storer(8, I8)


# ---- single numbers -----------------------------------------------------------------------------


def _scalar(kind, number):
    align = min(kind.width, 32) // 8 if isinstance(kind, ir.IntType) else 4

    @intrinsic
    def get(context, address):
        def generate(ctx, b, sig, args):
            return b.load(at(b, args[0], kind), align=align)

        return number(types.intp), generate

    @intrinsic
    def put(context, address, value):
        def generate(ctx, b, sig, args):
            b.store(args[1], at(b, args[0], kind), align=align)
            return nothing(ctx)

        return types.void(types.intp, number), generate

    return get, put


get_i64, put_i64 = _scalar(I64, types.int64)
get_i32, put_i32 = _scalar(I32, types.int32)
get_i16, put_i16 = _scalar(I16, types.int16)
get_u8, put_u8 = _scalar(I8, types.uint8)
get_f32, put_f32 = _scalar(F32, types.float32)


@intrinsic
def get_f16(context, address):
    """An f16, as f32."""

    def generate(ctx, b, sig, args):
        return _half_to_float(b, b.load(at(b, args[0], I16), align=2), F16, I32, F32)

    return types.float32(types.intp), generate


@intrinsic
def get_bf16(context, address):
    """A bfloat16, as f32."""

    def generate(ctx, b, sig, args):
        wide = b.zext(b.load(at(b, args[0], I16), align=2), I32)
        return b.bitcast(b.shl(wide, const(I32, 16)), F32)

    return types.float32(types.intp), generate


@intrinsic(prefer_literal=True)
def stack(context, vectors):
    """The address of room for that many vectors on this call's stack, aligned to a cache line."""

    def generate(ctx, b, sig, args):
        with b.goto_entry_block():  # `cgutils.alloca_once` would clear it, byte by byte
            room = b.alloca(ir.ArrayType(I8, vectors.literal_value * BYTES))
        room.align = 64
        return b.ptrtoint(room, I64)

    return types.intp(vectors), generate


# ---- ahead of time ------------------------------------------------------------------------------


def _prefetch(locality, doc):
    @intrinsic
    def function(context, address):
        def generate(ctx, b, sig, args):
            byte, flags = I8.as_pointer(), [ir.Constant(I32, k) for k in (0, locality, 1)]
            call(b, "llvm.prefetch.p0", ir.VoidType(), b.inttoptr(args[0], byte), *flags)
            return nothing(ctx)

        return types.void(types.intp), generate

    function.__doc__ = doc
    return function


prefetch = _prefetch(3, "Ask for a cache line that will be read soon.")
prefetch_early = _prefetch(2, "Ask for a line that will be read later: as far as the second cache.")


@intrinsic
def in_order(context):
    """The compiler moves no load across: what is read from memory in order is fetched ahead."""

    def generate(ctx, b, sig, args):
        b.fence("acq_rel", targetscope="singlethread")
        return nothing(ctx)

    return types.void(), generate
