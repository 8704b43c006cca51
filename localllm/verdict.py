"""What a machine's figures mean in words: what limits tokens/s, what would help, what is wrong."""

import os
from collections.abc import Iterator
from typing import Any

from localllm.units import size

BUSY = 0.25  # share of the cores that others may use before it is worth a word
ROOM = 1 << 30  # bytes of disk under which a pull is likely to fail
SLOW_DISK = 150e6  # bytes a second under which loading is felt
ALONE = 0.85  # share of the bandwidth that one thread may have before a second one is of no use
STALE = 200 << 20  # bytes of kernels nobody uses any more


def verdict(report: dict[str, Any]) -> Iterator[str]:
    """Sentences about speed, from what doctor.examine has measured."""
    bandwidth = report["bandwidth"]
    yield (
        f"Generation is limited by reading the weights: at {bandwidth / 1e9:.0f} GB/s, a file of "
        f"1 GB gives at most {bandwidth / 1e9:.0f} tokens/s, one of 100 MB ten times that."
    )
    helps = ["a smaller model, or one of fewer bits (Q4_K_M rather than Q8_0)"]
    if report["threads"] > 1 and report["bandwidth_one_thread"] > ALONE * bandwidth:
        helps.append("faster memory; more threads would not, for one has nearly all of it")
    yield f"What helps there: {', '.join(helps)}."
    best = max(report["multiply_adds"].values())
    yield (
        f"Prompts are limited by arithmetic: {best / 1e9:.0f} G multiply-adds/s are about "
        f"{best / 1e9:.0f} tokens/s for a model of 1B parameters; only more or newer cores help."
    )


def remarks(report: dict[str, Any]) -> Iterator[str]:
    """What is slow or will fail here, and what to do about it."""
    if report["instructions"] == "plain":
        yield "No vector instructions that the kernels know: expect a tenth of the usual speed."
    elif report["instructions"] == "avx2":
        yield "AVX2 without VNNI: prompts take about half as long again as on newer processors."
    quota = report["quota"]
    if quota is not None and quota < report["cores"]:
        yield f"A cgroup grants {quota:g} CPUs: more threads than that stand still in turns."
    if report["busy"] > BUSY:
        yield (
            f"Other programs use {report['busy']:.0%} of the processor: a team of threads waits "
            "for its slowest one, so generation suffers most."
        )
    if report["gpu"] and not report["torch"]:
        yield f"{report['gpu']} is not used: `pip install torch` lets models run on it."
    if report["memory_available"] < report["memory"] // 4:
        yield f"Only {size(report['memory_available'])} of memory are free."
    rate = report["disk_rate"]
    if rate is not None and rate < SLOW_DISK:
        yield f"The disk gives {size(rate)}/s: 1 GB of model takes {1e9 / rate:.0f} s to load."
    if report["disk_free"] < ROOM:
        yield f"Only {size(report['disk_free'])} of disk are free for models."
    if report["stale"] > STALE:
        old = size(report["stale"])
        yield f"{old} of old kernels lie beside {report['kernels']}; they may be deleted."
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        yield "NUMBA_DISABLE_JIT is set: nothing can run."
    if not report["cache_writable"]:
        yield f"{report['kernels']} cannot be written: kernels are compiled anew at every start."
