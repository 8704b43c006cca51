"""Compiles kernels for processors that are not here: python crosscompile.py TARGET FOLDER WORD ...

A word is a kernel of a module ("quant.formats.q4_k:q4_k_product") or a format's loop over a tile of
8 tokens ("tile8:Q4_K"). Each becomes FOLDER/name.s and FOLDER/name.o, the function being called
"kernel_name"; its first two arguments are Numba's own (a result, an error), then come integers.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
WIDE = "+avx512f,+avx512bw,+avx512vl,+avx512vnni,+avx2,+fma,+f16c"
TESTS = Path(__file__).parent


class Target(NamedTuple):
    """What LLVM is to compile for, and the level that `quant.target` must choose for it."""

    level: str
    triple: str
    cpu: str
    features: str


TARGETS = {
    "avx512-vnni": Target("avx512-vnni", X86, "x86-64", WIDE),
    "avx512vl-vnni": Target(
        "avx512vl-vnni", X86, "x86-64", "+avx512f,+avx512vl,+avx512vnni,+avx2,+fma,+f16c"
    ),
    "avx-vnni": Target("avx-vnni", X86, "x86-64", "+avxvnni,+avx2,+fma,+f16c"),
    "avx2": Target("avx2", X86, "haswell", "+avx2,+fma,+f16c,+sse4.2,+ssse3"),
    "plain": Target("plain", X86, "x86-64", ""),
    "neon": Target("plain", ARM, "generic", "+neon"),
    "neon-dotprod": Target("neon-dotprod", ARM, "generic", "+neon,+dotprod"),
    "neon-i8mm": Target("neon-dotprod", ARM, "generic", "+neon,+dotprod,+i8mm"),
}


def forced(name: str) -> dict[str, str]:
    """An environment in which Numba compiles for that target."""
    target = TARGETS[name]
    own = {"NUMBA_CPU_NAME": target.cpu, "NUMBA_CPU_FEATURES": target.features}
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
    return {**os.environ, **own, "PYTHONPATH": paths}


def cross(name: str, words: list[str], kept: Path) -> Path:
    """Have the words compiled for a target; the folder they are in, made once for these sources."""
    folder = kept / f"cross-{name}"
    folder.mkdir(exist_ok=True)
    missing = [word for word in words if not (folder / f"{word.split(':')[1]}.o").exists()]
    shares = [share for share in (missing[::2], missing[1::2]) if share]
    command = [sys.executable, str(TESTS / "crosscompile.py"), name, str(folder)]
    runs = [
        subprocess.Popen([*command, *share], env=forced(name), stderr=subprocess.PIPE, text=True)
        for share in shares
    ]
    for run in runs:
        _, errors = run.communicate(timeout=400)
        assert run.returncode == 0, errors[-3000:]
    return folder


# ---- in the process that compiles ---------------------------------------------------------------


def main(name: str, folder: str, *words: str) -> None:
    import llvmlite.binding as llvm

    target = TARGETS[name]
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.get_process_triple = lambda: target.triple  # what Numba compiles for

    from numba.core import cpu

    # Numba links and optimises, but must not make machine code that this process cannot hold. It
    # wants a builtin for each function, of its own.
    cpu.CPUContext.get_executable = lambda self, library, fndesc, env: [].append

    from quant.target import TARGET

    assert TARGET.name == target.level, TARGET.name
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, reloc="pic", codemodel="default"
    )
    for word in words:
        kernel = _kernel(*word.split(":"))
        module = llvm.parse_assembly(_assembly(kernel))
        assert str(module.triple) == target.triple
        out = Path(folder) / word.split(":")[1]
        out.with_suffix(".s").write_text(machine.emit_assembly(module))
        out.with_suffix(".o").write_bytes(machine.emit_object(module))


def _kernel(home: str, name: str):
    import importlib

    if home == "tile8":
        return _tile_of_eight(name)
    importlib.import_module(home)
    from quant.jit import Kernel

    return Kernel.registry[name]


dot = store_rows = zeros = None  # what a stamp fills in
PANEL = ROW = 0


def integers_by_eight(w, x, blocks, out):
    store_rows(dot(zeros(8), w, x, blocks, PANEL), out, ROW)


def floats_by_eight(w, x, columns, pitch, out):
    store_rows(dot(zeros(8), w, x, columns, pitch), out, ROW)


def _tile_of_eight(name: str):
    """The loop that a prompt spends its time in: a format's tile times 8 tokens, all blocks."""
    from quant import products, tiles
    from quant.formats import format_of
    from quant.jit import Kernel
    from quant.later import stamp

    form = format_of(name)
    filled = stamp(
        integers_by_eight if form.integer else floats_by_eight, name,
        dot=form.product.function.__globals__["dot"], store_rows=tiles.store_rows,
        zeros=tiles.zeros, PANEL=products.PANEL, ROW=products.ROW,
    )  # fmt: skip
    return Kernel(filled, 4 if form.integer else 5, __name__)


def _assembly(kernel) -> str:
    """LLVM's text of a kernel with all that it calls, optimised for the target."""
    import numba
    from numba.core.compiler_lock import global_compiler_lock

    from quant.later import bound

    word = numba.types.intp
    signature = numba.types.void(*[word] * kernel.arguments)
    compiled = numba.njit(signature, error_model="numpy")(bound(kernel.function))
    (overload,) = compiled.overloads.values()
    with global_compiler_lock:
        overload.library.finalize()
    symbol = overload.fndesc.llvm_func_name
    return overload.library.get_llvm_str().replace(symbol, f"kernel_{kernel.name}")


if __name__ == "__main__":
    main(*sys.argv[1:])
