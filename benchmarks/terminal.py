"""Measures what a person waits for at the terminal, and what the chat's screen costs.

    python benchmarks/terminal.py [MODEL ...] [--runs N] [--rest SECONDS]

The models must be installed, and their kernels compiled by an earlier run; a model's file is read
before each run of it, so that the system holds it. Of the times of some runs the least and the
median are told: what others do on the machine only adds to them. `--rest` is waited before each:
under some hypervisors memory that was freed long enough ago has to be asked for again.
The chat's first frame needs a Unix terminal. TERMINAL.md holds what was printed.
"""

import argparse
import asyncio
import functools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localllm import catalog
from localllm.reply import Delta
from localllm.tui.app import ChatApp
from localllm.tui.doors import Doors
from localllm.tui.history import History
from localllm.tui.pane import Pane

MODELS = ["smollm2", "qwen2.5-coder:1.5b"]
RATE, SECONDS = 200, 10  # tokens a second of the streamed answer, and how long it is watched
HISTORY = 10_000  # lines of the conversation above it
COMMAND = [sys.executable, "-m", "localllm"]
EXCHANGES = 9  # that hold it: so many are mounted at once
TEXT = "Some words with **bold** ones, `code` and a line that has to be broken here."
WORDS = TEXT.split()


def whole(*words: str) -> float:
    """Seconds that a command takes."""
    since = time.perf_counter()
    subprocess.run([*COMMAND, *words], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - since


def until_first_token(model: str) -> float:
    """Seconds until an answer of a model whose file is in memory begins."""
    words = ("run", model, "Hello", "-n", "8", "--temperature", "0", "--local")
    since = time.perf_counter()
    with subprocess.Popen(
        [*COMMAND, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stdout.read(1)
        taken = time.perf_counter() - since
        process.stdout.read()
    return taken


def until_first_frame() -> float:
    """Seconds until the chat has drawn its first frame on a terminal."""
    import pty  # Unix only

    since = time.perf_counter()
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS="80", LINES="24")
        os.execv(sys.executable, [*COMMAND, "chat"])
    seen = b""
    while b"leaves this machine" not in seen:
        seen += os.read(terminal, 65536)
    taken = time.perf_counter() - since
    os.kill(child, 9)
    os.waitpid(child, 0)
    os.close(terminal)
    return taken


class Steady:
    """A reply of RATE tokens a second, without a model."""

    usage = {"prompt_tokens": 1, "cached_tokens": 0, "completion_tokens": RATE * SECONDS}
    timings = {"predicted_per_second": float(RATE), "ttft_ms": 1.0}
    finish_reason = "stop"

    def __iter__(self) -> Iterator[Delta]:
        begin = time.perf_counter()
        for number in range(RATE * SECONDS):
            time.sleep(max(0.0, begin + number / RATE - time.perf_counter()))
            end = "\n\n" if number % 60 == 59 else " "
            yield Delta(WORDS[number % len(WORDS)] + end, (number,))

    def cancel(self) -> None:
        """It ends by itself."""


@dataclass
class Model:
    """As much of an LLM as the chat asks for."""

    name: str = "steady"
    context: int = 1_000_000
    template: str = "a chat"
    system: None = None
    server: None = None
    defaults: None = None

    def chat(self, messages: Any, **options: Any) -> Steady:
        return Steady()

    def close(self) -> None:
        """There is nothing to close."""


def screen_share() -> float:
    """Share of a core that the UI thread takes while an answer streams below a long history."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chats.db"
        history = History(path)
        lines = [TEXT] * (HISTORY // EXCHANGES // 2)  # with an empty one below each
        exchange = [
            {"role": "user", "content": "Go on."},
            {"role": "assistant", "content": "\n\n".join(lines)},
        ]
        history.keep("long", "steady", exchange * EXCHANGES)
        history.close()
        doors = Doors(lambda *_: Model(), list, lambda *_: None, path, Path(folder), "steady")
        app = ChatApp(doors)
        try:
            return asyncio.run(watch(app))
        finally:
            app.close()


async def watch(app: ChatApp) -> float:
    """Open the conversation, ask, and count the thread's own time while the answer comes."""
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("ctrl+s", "down", "enter")
        await pilot.pause(1)
        assert sum(bubble.size.height for bubble in app.screen.query("Bubble")) > 0.9 * HISTORY
        await pilot.press(*"go", "enter")
        await pilot.pause(1)
        since, spent = time.perf_counter(), time.thread_time()
        await asyncio.sleep(SECONDS - 3)
        share = (time.thread_time() - spent) / (time.perf_counter() - since)
        feed = app.screen.query_one(Pane).talk.feed
        assert feed is not None and feed.tokens > RATE, "the answer did not stream all the while"
        return share


def read(path: Path) -> None:
    """Have the system hold a file."""
    with path.open("rb") as file:
        while file.read(1 << 24):
            pass


def row(name: str, measure: Callable[[], float], asked: Any, path: Path | None = None) -> None:
    """Measure a number of seconds some times; print the least and the median."""
    seconds = []
    for _ in range(asked.runs):
        if path:
            read(path)
        time.sleep(asked.rest)
        seconds.append(measure())
    print(f"| {name} | {min(seconds):.2f} s | {statistics.median(seconds):.2f} s |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rest", type=float, default=0.0)
    asked = parser.parse_args()
    print("| | least | median |\n| --- | ---: | ---: |", flush=True)
    row("`localllm list`", lambda: whole("list"), asked)
    for model in asked.models:
        path = catalog.resolve(model, pull=False).path
        name = f"`localllm run {model}`, to the first token"
        row(name, functools.partial(until_first_token, model), asked, path)
    if os.name != "nt":
        row("`localllm chat`, to the first frame", until_first_frame, asked)
    name = f"the chat's UI thread at {RATE} tokens/s"
    print(f"{name}: {screen_share():.0%} of a core, {HISTORY:,} lines of history")


if __name__ == "__main__":
    main()
