"""Measures what a person waits for at the terminal, and what the chat's screen costs.

    python benchmarks/terminal.py [--model smollm2]

The model must be installed, and its kernels compiled by an earlier run. Times are the least of some
runs: what others do on the machine only adds to them. The chat's first frame needs a Unix terminal.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localllm.reply import Delta
from localllm.tui.app import ChatApp
from localllm.tui.doors import Doors
from localllm.tui.history import History
from localllm.tui.pane import Pane

RUNS = 5
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


def until_first_byte(*words: str) -> float:
    """Seconds until a command prints the first byte of its result."""
    since = time.perf_counter()
    with subprocess.Popen(
        [*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    model = parser.parse_args().model
    ask = ("run", model, "Hello", "-n", "8", "--temperature", "0", "--local")
    measured = {
        "localllm list": min(whole("list") for _ in range(RUNS)),
        f"localllm run {model}, to the first token": min(
            until_first_byte(*ask) for _ in range(RUNS)
        ),
    }
    if os.name != "nt":
        measured["localllm chat, to the first frame"] = min(
            until_first_frame() for _ in range(RUNS)
        )
    for name, seconds in measured.items():
        print(f"{name:48} {seconds:.2f} s", flush=True)
    name = f"the chat's UI thread at {RATE} tokens/s"
    print(f"{name:48} {screen_share():.0%} of a core, {HISTORY:,} lines of history")


if __name__ == "__main__":
    main()
