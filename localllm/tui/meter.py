"""Numbers for people: speed, waiting time, and how full the context is."""

from collections.abc import Mapping
from typing import Any

WARN_AT = 0.85  # share of the context from which on it is mentioned


def speed(stats: Mapping[str, Any]) -> str:
    """What an answer cost: '41 tokens · 23.4 t/s · first after 0.21 s · prompt 12'."""
    parts = []
    if tokens := stats.get("completion_tokens"):
        parts.append(f"{tokens:,} token{'s' * (tokens != 1)}")
    if rate := stats.get("predicted_per_second"):
        parts.append(f"{rate:.1f} t/s")
    if wait := stats.get("ttft_ms"):
        parts.append(f"first after {wait / 1000:.2f} s")
    if prompt := stats.get("prompt_tokens"):
        cached = stats.get("cached_tokens") or 0
        parts.append(f"prompt {prompt:,}" + (f" ({cached:,} cached)" if cached else ""))
    if stats.get("finish_reason") in ("length", "cancelled"):
        parts.append({"length": "cut at the limit", "cancelled": "stopped"}[stats["finish_reason"]])
    return " · ".join(parts)


def context(used: int, size: int | None) -> str:
    """'3 210 / 8 192 (39 %)' with commas."""
    if not size:
        return f"{used:,} tokens"
    return f"{used:,} / {size:,} ({100 * used / size:.0f} %)"


def share(used: int, size: int) -> str:
    """'39 % of 8,192', where there is little room."""
    return f"{100 * used / size:.0f} % of {size:,}"


def is_tight(used: int, size: int | None) -> bool:
    """Is the context nearly full?"""
    return size is not None and size > 0 and used >= WARN_AT * size


def seconds(left: float) -> str:
    """'4 s', '2 min 05 s', '1 h 10 min'."""
    whole = max(0, round(left))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def progress(done: int, total: int, elapsed: float, width: int = 20) -> str:
    """'reading the prompt ━━━━──── 512 / 2,048 · 3 s left'; elapsed seconds give the ETA."""
    share = min(1.0, done / total) if total else 0.0
    bar = "━" * round(width * share) + "─" * (width - round(width * share))
    eta = f" · {seconds(elapsed / share - elapsed)} left" if share > 0 else ""
    return f"reading the prompt {bar} {done:,} / {total:,}{eta}"


def size(nbytes: float) -> str:
    """'98 MB', '1.1 GB': decimal units, as model pages use them."""
    for unit, digits in (("B", 0), ("kB", 0), ("MB", 0), ("GB", 1)):
        if nbytes < 1000:
            return f"{nbytes:.{digits}f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.1f} TB"
