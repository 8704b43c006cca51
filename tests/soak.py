"""A long storm over a real model, with the books checked at its end. Not part of `pytest`.

    python tests/soak.py [SECONDS] [--model smollm2] [--visitors 64]

Client and server are one process, so that memory, threads and descriptors are those of both. Ends
with status 1 when anything was wrong, hung or stayed behind.
"""

import argparse
import logging
import sys
import threading

import httpx
from fakes_server import One, serving, until
from storm import TIMEOUT, Storm, alone, descriptors, readers, resident

from localllm.llm import LLM
from localllm.server.site import THREADS

MORE = 64 << 20  # bytes that memory may grow by after the first quarter: arenas, caches of texts


def main() -> int:
    """Print what happened and what stayed behind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", nargs="?", type=float, default=600)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--visitors", type=int, default=64)
    asked = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    with LLM.open(asked.model, context=2048) as llm:
        close, llm.close = llm.close, lambda: None
        with serving(One(llm), [llm.name]) as site:
            health = f"{site.note.url}/health"
            until(lambda: httpx.get(health, timeout=TIMEOUT).status_code == 200, 60)
            complaints = soak(site, llm, asked.seconds, asked.visitors)
        llm.close = close
    for complaint in complaints:
        print("WRONG:", complaint)
    return int(bool(complaints))


def soak(site, llm, seconds: float, visitors: int) -> list[str]:
    """What was not as it should be."""
    url = site.note.url
    right = alone(url)
    first = Storm(url, right, seconds / 4, visitors)
    print("first quarter:", dict(first.run()))
    before, files, threads = resident(), descriptors(), threading.active_count()
    rest = Storm(url, right, 3 * seconds / 4, visitors)
    print("the rest:", dict(rest.run()), f"frozen for {max(first.frozen, rest.frozen):.0f} s")
    quiet = until(lambda: idle(llm) and not site.records and not readers(), 30)
    stats, after = llm.worker.stats(), resident()
    now = threading.active_count()
    print(f"memory {before >> 20} -> {after >> 20} MiB; threads {threads} -> {now}; "
          f"descriptors {files} -> {descriptors()}; {stats}")  # fmt: skip
    checks = {
        "something still runs, or holds pages": quiet,
        f"memory grew by {(after - before) >> 20} MiB": after - before < MORE,
        "threads stayed behind": now <= threads + THREADS,
        "descriptors stayed behind": until(lambda: descriptors() <= files, 30),
        "pages do not add up": balanced(stats),
        "an answer alone is not what it was before": alone(url) == right,
        "nothing was answered": rest.counts["right"] > 0,
    }
    return [*first.wrong, *rest.wrong, *(what for what, well in checks.items() if not well)]


def idle(llm) -> bool:
    stats = llm.worker.stats()
    return not (stats["running"] or stats["queued"] or stats["pages_used"])


def balanced(stats: dict[str, int]) -> bool:
    return stats["pages"] == stats["pages_used"] + stats["pages_cached"] + stats["pages_free"]


if __name__ == "__main__":
    sys.exit(main())
