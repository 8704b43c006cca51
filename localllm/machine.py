"""What this machine offers a model: cores worth a thread, memory that is free, its name."""

import platform
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from localllm import cgroup

MOST_THREADS = 62  # of a team: who of it sleeps are bits of a word
SLOW = 0.5  # a core below this share of the fastest one's speed holds the others up


@dataclass(frozen=True)
class Cpu:
    """One logical CPU: which core it is on, and how fast that is beside the others."""

    id: int
    core: tuple[int, int]  # package, core
    speed: float = 1.0


@dataclass(frozen=True)
class Threads:
    """How many threads a model gets, and why."""

    count: int
    why: str


def choose_threads(
    cpus: Sequence[Cpu], allowed: Collection[int] | None = None, quota: float | None = None
) -> Threads:
    """One thread for each fast physical core within affinity and cgroup quota.

    A second thread on a core shares its vector units, a slow core makes the fast ones wait, and
    a team that is throttled in mid-step stands still together: so none of these gets a thread.
    """
    usable = [cpu for cpu in cpus if allowed is None or cpu.id in allowed] or list(cpus)
    best = max(cpu.speed for cpu in usable)
    cores = {cpu.core for cpu in usable}
    fast = {cpu.core for cpu in usable if cpu.speed >= SLOW * best}
    why = [f"{len(fast)} {'fast' if len(fast) < len(cores) else 'physical'} cores"]
    if len(fast) < len(cores):
        why.append(f"{len(cores) - len(fast)} slow ones left out")
    if len(usable) > len(cores):
        why.append(f"{len(usable)} CPUs by SMT")
    if len(usable) < len(cpus):
        why.append(f"affinity allows {len(usable)} of {len(cpus)} CPUs")
    count = len(fast)
    if quota is not None and quota < count:
        count = max(1, int(quota))
        why.append(f"cgroup quota of {quota:g} CPUs")
    if count > MOST_THREADS:
        count = MOST_THREADS
        why.append(f"{MOST_THREADS} at most")
    return Threads(count, ", ".join(why).replace("1 physical cores", "1 physical core"))


def threads() -> Threads:
    """The choice for this process on this machine."""
    return choose_threads(read_cpus(), _affinity(), cgroup.limits().cpus)


def _affinity() -> set[int] | None:
    """The CPUs this process may run on, where the system has such a thing."""
    try:
        return set(psutil.Process().cpu_affinity())
    except (AttributeError, OSError, psutil.Error):
        return None


def read_cpus(root: Path = Path("/")) -> list[Cpu]:
    """Every CPU that is online: from /sys on Linux, from what the system counts elsewhere."""
    if sys.platform == "darwin" and root == Path("/"):
        return _synthetic(
            _sysctl("hw.perflevel0.physicalcpu"), _sysctl("hw.perflevel1.physicalcpu")
        )
    return _linux_cpus(root) or _synthetic(psutil.cpu_count(logical=False))


def _synthetic(fast: int | None, slow: int | None = 0) -> list[Cpu]:
    """CPUs by number alone, each a core of its own."""
    fast, slow = fast or psutil.cpu_count() or 1, slow or 0
    return [Cpu(i, (0, i), 1.0 if i < fast else SLOW / 2) for i in range(fast + slow)]


def _linux_cpus(root: Path) -> list[Cpu]:
    """Cores, and speeds: Arm's cpu_capacity, or the kernel's list of Intel's efficient cores."""
    devices = root / "sys/devices"
    slow = _ranges(_read(devices / "cpu_atom/cpus"))
    cpus = []
    for number in _ranges(_read(devices / "system/cpu/online")):
        folder = devices / f"system/cpu/cpu{number}"
        package = _read(folder / "topology/physical_package_id")
        core = _read(folder / "topology/core_id")
        capacity = _read(folder / "cpu_capacity")
        speed = SLOW / 2 if number in slow else int(capacity) / 1024 if capacity else 1.0
        place = (int(package), int(core)) if package and core else (-1, number)
        cpus.append(Cpu(number, place, speed))
    return cpus


def _ranges(text: str) -> list[int]:
    """ "0-3,8" as numbers, the way /sys writes sets of CPUs."""
    numbers: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _sysctl(name: str) -> int | None:
    try:
        done = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return int(done.stdout) if done.stdout.strip().isdigit() else None


def available_memory() -> int:
    """Bytes a model may take now: free in the machine and, where there is one, in its cgroup."""
    free = cgroup.limits().free
    machine = psutil.virtual_memory().available
    return machine if free is None else min(machine, free)


def total_memory() -> int:
    """Bytes the machine, or the cgroup of this process, has in all."""
    limit = cgroup.limits().memory
    machine = psutil.virtual_memory().total
    return machine if limit is None else min(machine, limit)


def cpu_name() -> str:
    """The processor's name for humans."""
    for line in _read(Path("/proc/cpuinfo")).splitlines():
        if line.lower().startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
