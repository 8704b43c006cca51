"""What threads of native code share: atomic words, pauses, a clock, and calls by address."""

import sys

from llvmlite import ir
from numba import types
from numba.core.extending import intrinsic

from quant.llvm.vectors import I32, I64, at, call, nothing
from quant.target import TARGET

ORDER = "seq_cst"


@intrinsic
def atomic_add(context, address, value):
    """Add to a word; what stood there before."""

    def generate(ctx, b, sig, args):
        return b.atomic_rmw("add", at(b, args[0], I64), args[1], ORDER)

    return types.int64(types.intp, types.int64), generate


@intrinsic
def atomic_load(context, address):
    """A word, with all that was written before it."""
    return (
        types.int64(types.intp),
        lambda ctx, b, sig, args: b.load_atomic(at(b, args[0], I64), ORDER, 8),
    )


@intrinsic
def atomic_store(context, address, value):
    """Set a word, after all that was written before."""

    def generate(ctx, b, sig, args):
        b.store_atomic(args[1], at(b, args[0], I64), ORDER, 8)
        return nothing(ctx)

    return types.void(types.intp, types.int64), generate


@intrinsic
def publish(context, address, value):
    """Set a word that only its owner sets, after all that was written before."""

    def generate(ctx, b, sig, args):
        b.store_atomic(args[1], at(b, args[0], I64), "release", 8)
        return nothing(ctx)

    return types.void(types.intp, types.int64), generate


@intrinsic
def compare_exchange(context, address, old, new):
    """Put new where old stands; what stood there."""

    def generate(ctx, b, sig, args):
        result = b.cmpxchg(at(b, args[0], I64), args[1], args[2], ORDER, ORDER)
        return b.extract_value(result, 0)

    return types.int64(types.intp, types.int64, types.int64), generate


@intrinsic
def pause(context):
    """Tell the core that this is a spin loop."""

    def generate(ctx, b, sig, args):
        if TARGET.x86:
            call(b, "llvm.x86.sse2.pause", ir.VoidType())
        return nothing(ctx)

    return types.void(), generate


@intrinsic
def give_way(context):
    """Let another thread have the core, where the system has a call for it."""

    def generate(ctx, b, sig, args):
        if sys.platform != "win32":
            call(b, "sched_yield", I32)
        return nothing(ctx)

    return types.void(), generate


@intrinsic
def ticks(context):
    """A clock that counts at a steady rate."""
    name = "llvm.readcyclecounter" if TARGET.x86 else "llvm.readsteadycounter"
    return types.int64(), lambda ctx, b, sig, args: call(b, name, I64)


def _caller(count):
    kind = ir.FunctionType(ir.VoidType(), [I64] * count)

    def generate(ctx, b, sig, args):
        b.call(at(b, args[0], kind), args[1:])
        return nothing(ctx)

    return types.void(types.intp, *[types.intp] * count), generate


@intrinsic
def call4(context, address, p, q, r, s):
    """Call the kernel at that address with four numbers."""
    return _caller(4)


@intrinsic
def call6(context, address, p, q, r, s, t, u):
    """Call the kernel at that address with six numbers."""
    return _caller(6)
