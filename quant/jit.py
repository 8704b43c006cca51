"""How every kernel is compiled, and where its machine code is kept.

Numba compiles a kernel once; what is kept is the object file that LLVM made of it, which LLVM
alone loads again. The folder's name hashes every source a kernel could come from, the compiler's
version and the processor. Machine code is trusted: the folder belongs to the user alone.
"""

import ctypes
import gc
import hashlib
import importlib
import importlib.metadata
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from quant.later import bound
from quant.target import TARGET, features

KEEP = 3  # folders of machine code: this one and the two used before it


class Kernel:
    """A function of address-sized integers: native code calls it by address, Python as it is.

    `arguments` counts them; it returns nothing, or an integer. Compiled, or taken from what is
    kept, when it is first asked for. `home` is the module to import for it.
    """

    registry: dict[str, "Kernel"] = {}

    def __init__(self, function: Callable, arguments: int, home: str, returns: bool = False):
        self.function, self.arguments, self.home = function, arguments, home
        self.name, self.returns = function.__qualname__, returns
        assert self.name not in Kernel.registry, f"two kernels are called {self.name}"
        Kernel.registry[self.name] = self

    def compile(self) -> Any:
        """The result of `numba.cfunc`, made anew."""
        import numba  # only where something is compiled

        word = numba.types.intp
        result = word if self.returns else numba.types.void
        signature = result(*[word] * self.arguments)
        with _no_garbage_collection():
            return numba.cfunc(signature, error_model="numpy")(bound(self.function))

    @cached_property
    def address(self) -> int:
        """Where the machine code stands."""
        kept = _kept(self.name)
        if kept is None:
            compiled = self.compile()
            _, _, (code, _) = compiled._library.serialize_using_object_code()
            kept = compiled.native_name, code
            _keep(self.name, *kept)
        return _load(*kept)

    @cached_property
    def call(self) -> Callable[..., Any]:
        """The kernel as Python calls it, without the interpreter's lock."""
        result = ctypes.c_ssize_t if self.returns else None
        kind = ctypes.CFUNCTYPE(result, *[ctypes.c_ssize_t] * self.arguments)
        return kind(self.address)

    def __call__(self, *arguments: int) -> Any:
        return self.call(*arguments)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Looking for garbage among all that a compiler holds takes a tenth of its time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def kernel(arguments: int, home: str = "", returns: bool = False):
    """Decorate a function of that many integers as a Kernel; `home` is the module to import."""
    return lambda function: Kernel(function, arguments, home or function.__module__, returns)


# ---- loading ----------------------------------------------------------------------------------


# What Numba's wrapper of a kernel calls when the kernel raises. None does: here that is an abort.
RAISING = (
    "numba_gil_ensure", "numba_gil_release", "numba_do_raise", "numba_unpickle",
    "numba_runtime_build_excinfo_struct", "NRT_Free", "NRT_Allocate",
)  # fmt: skip


class _Engine:
    """LLVM's loader of object files; it must live as long as the code."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        library = ctypes.cdll.msvcrt if sys.platform == "win32" else ctypes.CDLL(None)
        abort = ctypes.cast(library.abort, ctypes.c_void_p).value
        for name in RAISING:
            if not llvm.address_of_symbol(name):
                llvm.add_symbol(name, abort)
        machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
        self.empty = llvm.parse_assembly("")
        self.loader = llvm.create_mcjit_compiler(self.empty, machine)


_engine: list[_Engine] = []


def _load(symbol: str, code: bytes) -> int:
    """The address of a symbol of an object file."""
    if not _engine:
        _engine.append(_Engine())
    loader = _engine[0].loader
    loader.add_object_file(llvm.ObjectFileRef.from_data(code))
    loader.finalize_object()
    return loader.get_function_address(symbol)


# ---- the folder of machine code ---------------------------------------------------------------

_folder: list[Path] = []  # where machine code is kept, if anywhere


def fingerprint(sources: Iterable[Path]) -> str:
    """A hash of the sources, the compiler's version and the processor compiled for."""
    digest = hashlib.blake2b(digest_size=12)
    for source in sorted(sources):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    versions = [importlib.metadata.version(name) for name in ("numba", "llvmlite")]
    where = (*versions, TARGET.name, llvm.get_host_cpu_name(), *sorted(features()))
    digest.update(repr((where, sys.version_info[:2])).encode())
    return digest.hexdigest()


def cache_in(root: Path, packages: Sequence[Path]) -> Path:
    """Keep machine code in a folder of `root` named after the sources in `packages`; return it.

    Without a folder that is the user's alone nothing is kept: everything still works.
    """
    sources = [file for package in packages for file in package.rglob("*.py")]
    folder = root / fingerprint([*sources, *Path(__file__).parent.rglob("*.py")])
    if _private(root) and _private(folder):
        use_folder(folder)
        os.utime(folder)
        _prune(root, folder)
    return folder


def use_folder(folder: Path) -> None:
    """Keep machine code in exactly that folder."""
    _folder[:] = [folder]


def _private(folder: Path) -> bool:
    """Make the folder with mode 0700, and say whether it is the user's own and nobody else's."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = folder.lstat()
    except OSError:
        return False
    if not stat.S_ISDIR(found.st_mode):
        return False
    if not hasattr(os, "getuid"):
        return True  # Windows: the user's profile folder is closed to others
    return found.st_uid == os.getuid() and not found.st_mode & 0o022


def _prune(root: Path, current: Path) -> None:
    """Remove the folders of old sources, the longest unused first."""
    others = [f for f in root.iterdir() if f.is_dir() and f != current]
    if len(others) < KEEP:
        return
    others.sort(key=lambda folder: folder.stat().st_mtime, reverse=True)
    for folder in others[KEEP - 1 :]:
        shutil.rmtree(folder, ignore_errors=True)


def _file(name: str) -> Path | None:
    return _folder[0] / f"{name}.o" if _folder else None


def _kept(name: str) -> tuple[str, bytes] | None:
    """The symbol and the object file of a kernel, if they are kept."""
    file = _file(name)
    try:
        symbol, _, code = file.read_bytes().partition(b"\n") if file else (b"", b"", b"")
    except OSError:
        return None
    return (symbol.decode(), code) if code else None


def _keep(name: str, symbol: str, code: bytes) -> None:
    """Keep them, whole or not at all; a full disk costs only the next start."""
    file = _file(name)
    if file is None:
        return
    try:
        with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as part:
            part.write(symbol.encode() + b"\n" + code)
        os.replace(part.name, file)
    except OSError:
        return


def is_cached(name: str) -> bool:
    """Whether the machine code of that kernel is kept."""
    file = _file(name)
    return file is not None and file.exists()


# ---- compiling many kernels ---------------------------------------------------------------------


def compile_all(kernels: Sequence[Kernel], processes: int, progress=None) -> None:
    """Have all kernels ready: those not kept are compiled by several processes at once.

    progress(stage, done, total) is called as kernels are finished.
    """
    missing = [k for k in kernels if "address" not in k.__dict__ and not is_cached(k.name)]
    helpers = []
    if _folder:
        processes = min(processes, -(-len(missing) // 3))  # starting one takes as long as a few
        helpers = [_spawn(_order(missing, n, processes)) for n in range(1, processes)]
    try:
        for k in missing:
            k.address  # noqa: B018  compiles, or loads what a helper has kept
            if progress:
                progress("compiling kernels", sum(is_cached(m.name) for m in missing), len(missing))
    finally:  # what a helper is still at has been done here
        for helper in helpers:
            helper.kill()
    for k in kernels:
        k.address  # noqa: B018  loads, or compiles what a helper could not
    if progress and missing:
        progress("compiling kernels", len(missing), len(missing))


def _order(kernels: Sequence[Kernel], process: int, processes: int) -> list[Kernel]:
    """The way through the kernels of one of several processes. Each passes over what is kept by
    then, and every second one walks backwards: they share the work until they meet."""
    start = len(kernels) * (process // 2) // ((processes + 1) // 2)
    order = [*kernels[start:], *kernels[:start]]
    return order[::-1] if process % 2 else order


def _spawn(share: Sequence[Kernel]) -> subprocess.Popen:
    """A process that compiles these kernels into the same folder."""
    words = [f"{k.home}:{k.name}" for k in share]
    command = [sys.executable, "-m", "quant.jit", str(_folder[0]), *words]
    paths = [p or os.getcwd() for p in sys.path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip


def main(arguments: Sequence[str]) -> None:
    """Compile the kernels named `module:kernel` into the folder that comes first."""
    from quant import jit  # `python -m` runs this file as __main__

    jit.use_folder(Path(arguments[0]))
    for word in arguments[1:]:
        home, name = word.split(":")
        importlib.import_module(home)
        jit.Kernel.registry[name].address  # noqa: B018  compiles


if __name__ == "__main__":
    main(sys.argv[1:])
