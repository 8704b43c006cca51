"""The thread choice on recorded machines, and what control groups leave a process."""

import os
from pathlib import Path

import pytest

from localllm import cgroup, machine
from localllm.machine import Cpu, choose_threads, read_cpus


def sysfs(root: Path, cores: list[tuple[int, int]], files: dict[str, str] | None = None) -> Path:
    """A /sys as recorded: one (package, core) for each CPU, and further files."""
    tree = {"sys/devices/system/cpu/online": f"0-{len(cores) - 1}"}
    for number, (package, core) in enumerate(cores):
        folder = f"sys/devices/system/cpu/cpu{number}/topology"
        tree |= {f"{folder}/physical_package_id": f"{package}", f"{folder}/core_id": f"{core}"}
    return write(root, tree | (files or {}))


def write(root: Path, tree: dict[str, str]) -> Path:
    for name, text in tree.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return root


def capacities(values: list[int]) -> dict[str, str]:
    return {f"sys/devices/system/cpu/cpu{i}/cpu_capacity": str(v) for i, v in enumerate(values)}


RYZEN_5950X = [(0, core) for core in range(16)] * 2  # siblings are n and n + 16
CORE_I7_12700 = [(0, 4 * (cpu // 2)) for cpu in range(16)] + [(0, 36 + cpu) for cpu in range(4)]
EPYC_TWO_SOCKETS = [(socket, core) for socket in (0, 1) for core in range(32)] * 2
PIXEL_8 = [(0, cpu) for cpu in range(9)]


@pytest.mark.parametrize(
    ("cores", "files", "allowed", "quota", "threads"),
    [
        pytest.param([(0, 0), (0, 1)], {}, None, None, 2, id="a small virtual machine"),
        pytest.param(RYZEN_5950X, {}, None, None, 16, id="SMT: one thread a core"),
        pytest.param(RYZEN_5950X, {}, {0, 16}, None, 1, id="both siblings of one core"),
        pytest.param(RYZEN_5950X, {}, {0, 1, 2, 17}, None, 3, id="affinity over siblings"),
        pytest.param(CORE_I7_12700, {"sys/devices/cpu_atom/cpus": "16-19"}, None, None, 8, id="P"),
        pytest.param(
            CORE_I7_12700, {"sys/devices/cpu_atom/cpus": "16-19"}, set(range(16, 20)), None, 4,
            id="only the efficient cores are allowed",
        ),
        pytest.param(EPYC_TWO_SOCKETS, {}, None, None, 62, id="two sockets, same core numbers"),
        pytest.param(EPYC_TWO_SOCKETS, {}, None, 3.7, 3, id="a quota rounds down"),
        pytest.param(EPYC_TWO_SOCKETS, {}, None, 0.5, 1, id="half a CPU is one thread"),
        pytest.param(RYZEN_5950X, {}, None, 100.0, 16, id="a quota above the cores"),
        pytest.param(
            PIXEL_8, capacities([270] * 4 + [760] * 4 + [1024]), None, None, 5, id="big.LITTLE"
        ),
        pytest.param([(0, 0)] * 2, {}, {99}, None, 1, id="an affinity that names no such CPU"),
    ],
)  # fmt: skip
def test_threads_on_recorded_machines(tmp_path, cores, files, allowed, quota, threads):
    chosen = choose_threads(read_cpus(sysfs(tmp_path, cores, files)), allowed, quota)
    assert chosen.count == threads


def test_the_reason_names_what_was_left_out(tmp_path):
    root = sysfs(tmp_path, CORE_I7_12700, {"sys/devices/cpu_atom/cpus": "16-19"})
    why = choose_threads(read_cpus(root), quota=2).why
    assert "8 fast cores" in why and "4 slow ones" in why and "SMT" in why and "quota of 2" in why


def test_a_machine_without_topology_counts_each_cpu(tmp_path):
    root = write(tmp_path, {"sys/devices/system/cpu/online": "0-1,4"})
    assert [cpu.id for cpu in read_cpus(root)] == [0, 1, 4]
    assert choose_threads(read_cpus(root)).count == 3


def test_synthetic_cpus_when_there_is_no_sysfs(tmp_path):
    assert read_cpus(tmp_path)  # counted by the system instead
    assert choose_threads([Cpu(0, (0, 0)), Cpu(1, (0, 1), 0.2)]).count == 1


V2 = {
    "proc/self/cgroup": "0::/box/job",
    "proc/self/mountinfo": "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate",
    "sys/fs/cgroup/box/job/cpu.max": "max 100000",
    "sys/fs/cgroup/box/cpu.max": "150000 100000",
    "sys/fs/cgroup/box/job/memory.max": "4000",
    "sys/fs/cgroup/box/job/memory.current": "3000",
    "sys/fs/cgroup/box/job/memory.stat": "inactive_file 900\nactive_file 200\nfile_dirty 100",
    "sys/fs/cgroup/box/memory.max": "max",
}
V1 = {
    "proc/self/cgroup": "5:cpu,cpuacct:/docker/ab\n4:memory:/docker/ab\n1:name=systemd:/docker/ab",
    "proc/self/mountinfo": (
        "33 32 0:29 /docker/ab /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
        "34 32 0:30 /docker/ab /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"
    ),
    "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "250000",
    "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "5000",
    "sys/fs/cgroup/memory/memory.usage_in_bytes": "4500",
    "sys/fs/cgroup/memory/memory.stat": "inactive_file 1\ntotal_inactive_file 1500\ntotal_x 1",
}


def test_cgroup_v2_takes_the_tightest_limit_on_the_way_up(tmp_path):
    assert cgroup.limits(write(tmp_path, V2)) == cgroup.Limits(1.5, 4000, 2000)


def test_cgroup_v1_inside_a_container(tmp_path):
    assert cgroup.limits(write(tmp_path, V1)) == cgroup.Limits(2.5, 5000, 2000)


def test_no_limit_is_none(tmp_path):
    unlimited = {
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
    }
    assert cgroup.limits(write(tmp_path, V1 | unlimited)) == cgroup.Limits()
    assert cgroup.limits(tmp_path / "nowhere") == cgroup.Limits()


def test_this_machine():
    assert 1 <= machine.threads().count <= os.cpu_count()
    assert 0 < machine.available_memory() <= machine.total_memory()
    assert machine.cpu_name()
