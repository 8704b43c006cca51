"""Kernels for Arm, linked into a small C program and run under qemu; needs Debian's cross tools."""

import shutil
import struct
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

GCC, QEMU = "aarch64-linux-gnu-gcc", "qemu-aarch64"
HARNESS = Path(__file__).with_name("harness.c")


def missing() -> str:
    """What is not installed, for the reason of a skip; "" when all is there."""
    return " and ".join(tool for tool in (GCC, QEMU) if not shutil.which(tool))


def link(folder: Path, names: list[str]) -> Path:
    """A program of the harness and the objects of these kernels."""
    declared = "".join(f"extern int kernel_{name}();\n" for name in names)
    table = "".join(f"(kernel)kernel_{name}, " for name in names)
    (folder / "table.h").write_text(f"{declared}static const kernel kernels[] = {{{table}}};\n")
    out = folder / "program"
    objects = [str(folder / f"{name}.o") for name in names]
    # Numba's wrappers for Python are in the objects too; nobody calls them here.
    words = ["-O1", "-static", "-w", f"-I{folder}", "-Wl,--unresolved-symbols=ignore-all"]
    command = [GCC, *words, str(HARNESS), *objects, "-lm", "-o", str(out)]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    return out


@dataclass
class Run:
    """Buffers and calls, gathered and then run at once."""

    names: list[str]
    buffers: list[np.ndarray] = field(default_factory=list)
    calls: list[bytes] = field(default_factory=list)

    def buffer(self, array: np.ndarray) -> int:
        """A buffer with this content; its number."""
        self.buffers.append(np.ascontiguousarray(array))
        return len(self.buffers) - 1

    def call(self, name: str, *arguments: int | tuple[int, int]) -> None:
        """A kernel on numbers, and on (buffer, offset) addresses."""
        pairs = [a if isinstance(a, tuple) else (-1, a) for a in arguments]
        flat = [int(x) for pair in pairs for x in pair]
        head = (self.names.index(name), len(pairs))
        self.calls.append(struct.pack(f"<{2 + len(flat)}q", *head, *flat))

    def go(self, program: Path, cpu: str = "max") -> list[np.ndarray]:
        """What stands in the buffers afterwards, each as the array it was."""
        words = [struct.pack("<q", len(self.buffers))]
        for array in self.buffers:
            words += [struct.pack("<q", array.nbytes), array.tobytes()]
        words += [struct.pack("<q", len(self.calls)), *self.calls]
        command = [QEMU, "-cpu", cpu, str(program)]
        run = subprocess.run(command, input=b"".join(words), capture_output=True, timeout=300)
        assert run.returncode == 0, (run.returncode, run.stderr[-2000:])
        found, at = [], 0
        for array in self.buffers:
            piece = np.frombuffer(run.stdout, array.dtype, array.size, at)
            found.append(piece.reshape(array.shape))
            at += array.nbytes
        return found
