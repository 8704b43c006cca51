"""What the control groups of this process leave it: CPU time and memory (Linux, v1 and v2).

Files and their meaning: https://docs.kernel.org/admin-guide/cgroup-v2.html and
https://docs.kernel.org/admin-guide/cgroup-v1/memory.html
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

Number = TypeVar("Number", int, float)
UNLIMITED = 1 << 60  # v1 says "no limit" with a number near 2**63


@dataclass(frozen=True)
class Limits:
    """The tightest limits on the way from this process's group to the root; None is no limit."""

    cpus: float | None = None  # CPUs' worth of time: quota / period
    memory: int | None = None  # bytes the group may hold
    free: int | None = None  # bytes it can still take, page cache counted as free


def limits(root: Path = Path("/")) -> Limits:
    """Read the limits; `root` is where /proc and /sys are (tests record them elsewhere)."""
    cpus: list[float | None] = []
    memory: list[int | None] = []
    free: list[int | None] = []
    for folder in _folders(root):
        cpus.append(_quota(folder))
        limit = _memory_limit(folder)
        memory.append(limit)
        free.append(None if limit is None else max(0, limit - _memory_used(folder)))
    return Limits(_least(cpus), _least(memory), _least(free))


def _least(values: Iterable[Number | None]) -> Number | None:
    """The smallest of the values that are there."""
    return min((value for value in values if value is not None), default=None)


def _folders(root: Path) -> Iterator[Path]:
    """Every folder of every hierarchy, from this process's group up to the mount."""
    mounts = list(_mounts(root))
    for line in _lines(root / "proc/self/cgroup"):
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        for kind, controllers, top, point in mounts:
            wanted = kind == "cgroup2" if not names else set(names.split(",")) & controllers
            if not wanted:
                continue
            inside = path.removeprefix(top.rstrip("/")) if path.startswith(top) else ""
            mount = root / point.lstrip("/")
            folder = mount / inside.strip("/")
            while folder != mount and mount in folder.parents:
                yield folder
                folder = folder.parent
            yield mount


def _mounts(root: Path) -> Iterator[tuple[str, set[str], str, str]]:
    """(cgroup or cgroup2, controllers, group at the mount, mount point) of each hierarchy."""
    for line in _lines(root / "proc/self/mountinfo"):
        left, _, right = line.partition(" - ")
        fields, system = left.split(), right.split()
        if len(fields) >= 5 and len(system) >= 3 and system[0] in ("cgroup", "cgroup2"):
            yield system[0], set(system[2].split(",")), fields[3], fields[4]


def _quota(folder: Path) -> float | None:
    """CPUs' worth of time this folder allows."""
    words = _text(folder / "cpu.max").split()
    if len(words) == 2 and words[0] != "max":
        return int(words[0]) / int(words[1])
    quota = _number(folder / "cpu.cfs_quota_us")
    period = _number(folder / "cpu.cfs_period_us")
    return quota / period if quota and period and quota > 0 else None


def _memory_limit(folder: Path) -> int | None:
    """Bytes this folder allows: the hard limit, or the one above which it is slowed down."""
    names = ("memory.max", "memory.high", "memory.limit_in_bytes")
    found = [_number(folder / name) for name in names]
    return min((n for n in found if n is not None and n < UNLIMITED), default=None)


def _memory_used(folder: Path) -> int:
    """Bytes in use that the kernel cannot drop: all but clean pages of files."""
    used = _number(folder / "memory.current") or _number(folder / "memory.usage_in_bytes") or 0
    stat = dict(line.split()[:2] for line in _lines(folder / "memory.stat") if " " in line)
    total = "total_" if "total_inactive_file" in stat else ""  # v1 counts the children there
    files = sum(int(stat.get(f"{total}{name}_file", 0)) for name in ("active", "inactive"))
    dirty = int(stat.get("file_dirty", 0)) + int(stat.get("file_writeback", 0))
    return max(0, used - max(0, files - dirty))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _lines(path: Path) -> list[str]:
    return _text(path).splitlines()


def _number(path: Path) -> int | None:
    """The number a file holds; None when there is no such file, or it says "max"."""
    text = _text(path).strip()
    return int(text) if text.lstrip("-").isdigit() else None
