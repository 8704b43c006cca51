"""How every kernel is compiled, and where its machine code is kept.

Numba's own cache checks only the file that a function stands in, never its helpers: so the
folder's name hashes every source a kernel could come from, Numba's version and the processor.
The cache is pickles: the folder belongs to the user alone. A helper must reach a kernel as a
module global, for a function that Numba finds in a closure or an argument is never cached;
`stamp` makes one copy of a template for each set of helpers.
"""

import hashlib
import importlib
import os
import shutil
import stat
import subprocess
import sys
import types as python_types
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import llvmlite
import numba
from numba import types

from quant.target import TARGET, features

INLINE = {"forceinline": True, "error_model": "numpy"}
KEEP = 3  # folders of machine code: this one and the two used before it


def inline(function):
    """A helper that becomes part of every kernel that calls it."""
    return numba.njit(**INLINE)(function)


def stamp(template, name: str, **helpers):
    """A copy of a Python function that sees `helpers` as its globals, under a name of its own."""
    copy = python_types.FunctionType(
        template.__code__, {**template.__globals__, **helpers}, name, template.__defaults__
    )
    copy.__qualname__, copy.__module__ = name, template.__module__
    return copy


class Kernel:
    """A function of address-sized integers that native code calls by address.

    `signature` counts its arguments; it returns nothing. Compiled, or taken from the cache, when
    its address is first asked for.
    """

    registry: dict[str, "Kernel"] = {}

    def __init__(self, function: Callable, arguments: int, home: str):
        self.function, self.arguments, self.home = function, arguments, home
        self.name = function.__qualname__
        self._compiled = None
        assert self.name not in Kernel.registry, f"two kernels are called {self.name}"
        Kernel.registry[self.name] = self

    @property
    def compiled(self):
        """The ctypes-callable result of `numba.cfunc`."""
        if self._compiled is None:
            signature = types.void(*[types.intp] * self.arguments)
            cached = bool(numba.config.CACHE_DIR)
            self._compiled = numba.cfunc(signature, cache=cached, error_model="numpy")(
                self.function
            )
            _note(self.name)
        return self._compiled

    @property
    def address(self) -> int:
        """Where the machine code stands."""
        return self.compiled.address


def kernel(arguments: int, home: str = ""):
    """Decorate a function of that many integers as a Kernel; `home` is the module to import."""
    return lambda function: Kernel(function, arguments, home or function.__module__)


def native(signature: str):
    """Decorate a function that Python calls: compiled on first use, cached, without the GIL."""

    def decorate(function):
        return _Native(function, signature)

    return decorate


class _Native:
    def __init__(self, function: Callable, signature: str):
        self.function, self.signature, self._compiled = function, signature, None
        self.__doc__ = function.__doc__

    def __call__(self, *arguments):
        if self._compiled is None:
            cached = bool(numba.config.CACHE_DIR)
            self._compiled = numba.njit(
                self.signature, cache=cached, nogil=True, error_model="numpy"
            )(self.function)
        return self._compiled(*arguments)


# ---- the folder of machine code ---------------------------------------------------------------


def fingerprint(sources: Iterable[Path]) -> str:
    """A hash of the sources, the compiler's version and the processor compiled for."""
    digest = hashlib.blake2b(digest_size=12)
    for source in sorted(sources):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    where = (numba.__version__, llvmlite.__version__, TARGET.name, *sorted(features()))
    digest.update(repr((where, sys.version_info[:2])).encode())
    return digest.hexdigest()


def cache_in(root: Path, packages: Sequence[Path]) -> Path:
    """Keep machine code in a folder of `root` named after the sources in `packages`; return it.

    Without a folder that is the user's alone nothing is cached: everything still works.
    """
    sources = [file for package in packages for file in package.rglob("*.py")]
    folder = root / fingerprint([*sources, *Path(__file__).parent.rglob("*.py")])
    if _private(root) and _private(folder):
        numba.config.CACHE_DIR = str(folder)
        os.utime(folder)
        _prune(root, folder)
    return folder


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
    others.sort(key=lambda folder: folder.stat().st_mtime, reverse=True)
    for folder in others[KEEP - 1 :]:
        shutil.rmtree(folder, ignore_errors=True)


def _note(name: str) -> None:
    """Remember that a kernel's machine code is in the folder."""
    if numba.config.CACHE_DIR:
        (Path(numba.config.CACHE_DIR) / f"{name}.done").touch()


def is_cached(name: str) -> bool:
    """Whether the machine code of that kernel is there already."""
    folder = numba.config.CACHE_DIR
    return bool(folder) and (Path(folder) / f"{name}.done").exists()


# ---- compiling many kernels ---------------------------------------------------------------------


def compile_all(kernels: Sequence[Kernel], processes: int, progress=None) -> None:
    """Have all kernels ready: those not cached are compiled by several processes at once.

    progress(stage, done, total) is called as kernels are finished.
    """
    missing = [k for k in kernels if k._compiled is None and not is_cached(k.name)]
    helpers = []
    if numba.config.CACHE_DIR and len(missing) > 2 and processes > 1:
        shares = [missing[i::processes] for i in range(processes)]
        helpers = [_spawn(share) for share in shares[1:]]
    else:
        shares = [missing]
    try:
        for k in shares[0]:
            k.compiled  # noqa: B018  compiles
            if progress:
                progress("compile", sum(is_cached(m.name) for m in missing), len(missing))
        for helper in helpers:
            helper.wait()
    finally:
        for helper in helpers:
            helper.kill()
    for k in kernels:
        k.compiled  # noqa: B018  loads, or compiles what a helper could not
    if progress and missing:
        progress("compile", len(missing), len(missing))


def _spawn(share: Sequence[Kernel]) -> subprocess.Popen:
    """A process that compiles these kernels into the same folder."""
    words = [f"{k.home}:{k.name}" for k in share]
    command = [sys.executable, "-m", "quant.jit", numba.config.CACHE_DIR, *words]
    paths = [p or os.getcwd() for p in sys.path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip


def main(arguments: Sequence[str]) -> None:
    """Compile the kernels named `module:kernel` into the folder that comes first."""
    from quant.jit import Kernel as Registered  # `python -m` runs this file as __main__

    numba.config.CACHE_DIR = arguments[0]
    for word in arguments[1:]:
        home, name = word.split(":")
        importlib.import_module(home)
        Registered.registry[name].compiled  # noqa: B018  compiles


if __name__ == "__main__":
    main(sys.argv[1:])
