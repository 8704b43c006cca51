"""Measures many requests at once, on one model in one process, and prints a table of ratios.

    python benchmarks/serve.py [MODEL ...] [--only NAME ...] [--repeats N]

Needs `pip install '.[bench,test]'` and a machine that does nothing else meanwhile. Every row is a
ratio of things measured in turns, the median of `--repeats`; NAME is one of the table's rows. No
tokens are guessed, so that a stream is what it is beside others: `drafts.py` measures guesses.
"""

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localllm.bench.grid import Case
from localllm.bench.peer import Peers
from localllm.llm import LLM
from localllm.server.lifetime import run
from localllm.server.pool import Known
from localllm.server.pump import PACE
from localllm.server.settings import Settings
from localllm.server.site import Site

MODELS = ["smollm2", "qwen2.5-coder:1.5b"]
CHATS, TOKENS, DOCUMENT, LONG = 8, 128, 2000, 4000
CLIENT = Path(__file__).with_name("client.py")
OPEN = {"ignore_eos": True, "seed": 1}  # an answer as long as is asked for


@dataclass
class Row:
    """One number: what it is, its value, what it should be, and what it was made from."""

    name: str
    value: float
    goal: str
    notes: str


class Stream:
    """An answer that a thread of its own reads: when each token came."""

    def __init__(self, reply: Any):
        self.reply, self.times = reply, list[float]()
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self) -> None:
        for delta in self.reply:
            self.times += [time.perf_counter()] * len(delta.ids)

    def wait(self) -> "Stream":
        self.thread.join()
        return self


class Bench:
    """One open model and what is measured on it."""

    def __init__(self, llm: LLM, repeats: int):
        self.llm, self.repeats = llm, repeats
        words = llm.tokenize(" lorem ipsum dolor sit amet consectetur adipiscing elit" * 800)
        self._words, self._fresh = words, iter(range(1, 10**6))

    def text(self, tokens: int) -> list[int]:
        """So many ids that no prompt before began with."""
        head = self.llm.tokenize(f"{next(self._fresh)}. ")
        return (head + self._words)[:tokens]

    def ask(self, ids: list[int], tokens: int = 1, pace: float = 0.0) -> Stream:
        return Stream(self.llm.generate(ids, max_tokens=tokens, pace=pace, **OPEN))

    def first(self, ids: list[int]) -> tuple[float, dict[str, int]]:
        """Seconds to the first token, and the usage."""
        since = time.perf_counter()
        stream = self.ask(ids).wait()
        return stream.times[0] - since, stream.reply.usage

    def median(self, measure: Callable[[], float]) -> float:
        return statistics.median(measure() for _ in range(self.repeats))

    # ---- the rows ------------------------------------------------------------------------------

    def together(self) -> Iterator[Row]:
        """Eight chats beside one stream, both read as the server reads them, and beside
        llama.cpp's eight sequences in a batch."""
        threads = self.llm.model.team.lanes if hasattr(self.llm.model, "team") else 1
        case = Case("tg", TOKENS // 2, depth=32, batch=CHATS)
        peers = Peers(self.llm.path, case.length, CHATS, threads, "f16")
        ours, alone, theirs = [], [], []
        for _ in range(self.repeats):
            for streams, rates in ((1, alone), (CHATS, ours)):
                asked = [self.text(32) for _ in range(streams)]
                rates.append(rate([self.ask(ids, TOKENS, PACE) for ids in asked]))
            theirs.append(max(peer_rate(side, case) for side in peers.sides))
        peers.close()
        one, eight, peer = map(statistics.median, (alone, ours, theirs))
        goals = (4, 2) if self.llm.name == "smollm2" else (3, 1.5)
        notes = f"{eight:.0f} t/s, one stream {one:.0f}"
        yield Row("8 chats / one stream", eight / one, f">= {goals[0]}", notes)
        yield Row("8 chats / llama.cpp's 8", eight / peer, f">= {goals[1]}", f"{peer:.0f} t/s")

    def prefix(self) -> Iterator[Row]:
        """The first token of a second request with the same beginning."""
        pairs = []
        for _ in range(self.repeats):
            document = self.text(DOCUMENT)
            cold, _ = self.first(document)
            warm, usage = self.first(document + self.llm.tokenize(" And now?"))
            pairs.append((warm / cold, cold, warm, usage["cached_tokens"]))
        share, cold, warm, cached = sorted(pairs)[len(pairs) // 2]
        notes = f"{1000 * warm:.0f} of {1000 * cold:.0f} ms, {cached} tokens cached"
        yield Row(f"first token, {DOCUMENT} tokens shared", share, "<= 0.05", notes)

    def turns(self) -> Iterator[Row]:
        """A chat of ten turns: the last turn's first token beside the second's."""
        ids, seconds, fresh = self.text(200), [], []
        for _ in range(10):
            ids = ids + self._words[:40]
            since = time.perf_counter()
            stream = self.ask(ids, 40).wait()
            seconds.append(stream.times[0] - since)
            fresh.append(len(ids) - stream.reply.usage["cached_tokens"])
            ids = ids + self.llm.tokenize(stream.reply.text)
        each = [1000 * s / n for s, n in zip(seconds, fresh, strict=True)]
        late, early = statistics.median(each[-3:]), statistics.median(each[1:4])
        notes = f"new tokens {fresh[1:]}, ms {[round(1000 * s) for s in seconds[1:]]}"
        yield Row("ms a new token, turns 8-10 / 2-4", late / early, "~ 1", notes)

    def branches(self) -> Iterator[Row]:
        """Eight questions on one document at once, beside one pass over it."""
        ratios = []
        for _ in range(self.repeats):
            cold, _ = self.first(self.text(DOCUMENT))
            document, since = self.text(DOCUMENT), time.perf_counter()
            asked = [document + self.llm.tokenize(f" Question {n}?") for n in range(CHATS)]
            streams = [stream.wait() for stream in [self.ask(ids) for ids in asked]]
            seconds = max(stream.times[0] for stream in streams) - since
            computed = sum(len(ids) for ids in asked)
            computed -= sum(stream.reply.usage["cached_tokens"] for stream in streams)
            ratios.append((seconds / cold, computed))
        ratio, computed = sorted(ratios)[len(ratios) // 2]
        notes = f"{computed} prompt tokens computed for {CHATS} x {len(asked[0])}"
        yield Row(f"{CHATS} branches / one pass", ratio, "~ 1", notes)

    def gap(self) -> Iterator[Row]:
        """A running stream's gaps while a long prompt comes in, beside those before; where a
        model is so small that steps have several tokens, of a stream without these."""
        assert self.llm.model is not None
        ahead, self.llm.model.ahead = self.llm.model.ahead, 0
        stream = self.ask(self.text(32), 2000)
        while len(stream.times) < 64:
            time.sleep(0.01)
        began = time.perf_counter()
        seconds, usage = self.first(self.text(LONG))
        ended = began + seconds
        stream.reply.cancel()
        times, self.llm.model.ahead = stream.wait().times, ahead
        gaps = [(b, b - a) for a, b in itertools.pairwise(times)]
        before = statistics.median([gap for at, gap in gaps if at < began][16:])
        during = sorted(gap for at, gap in gaps if began < at <= ended)
        worst = during[min(len(during) - 1, int(0.99 * len(during)))]
        notes = (
            f"{1000 * worst:.0f} of {1000 * before:.1f} ms, {len(during)} tokens meanwhile; "
            f"{usage['prompt_tokens'] / seconds:.0f} t/s of prompt"
        )
        yield Row(f"p99 gap / median, {LONG} tokens of prompt", worst / before, "<= 4", notes)

    def streaming(self) -> Iterator[Row]:
        """The `openai` client in another process beside the Python API: the best of each, for a
        few percent are less than what memory and neighbours take from a run now and then."""
        pairs = []
        with serving(self.llm) as url:
            tokens = max(TOKENS, int(1.5 * self._from_api(TOKENS)))
            for n in range(self.repeats):
                measures = [
                    lambda: self._from_api(tokens),
                    lambda: self._from_client(url, tokens),
                ]
                rates = [measure() for measure in measures[:: -1 if n % 2 else 1]]
                api, client = rates[:: -1 if n % 2 else 1]
                pairs.append((api, client))
        api, client = map(max, zip(*pairs, strict=True))
        goal = "<= 0.06" if self.llm.name == "smollm2" else "<= 0.01"
        middle = statistics.median(1 - theirs / mine for mine, theirs in pairs)
        notes = f"{client:.1f} of {api:.1f} t/s; the median of pairs {middle:.3f}"
        yield Row("streaming costs, of the Python API", 1 - client / api, goal, notes)

    def _from_api(self, tokens: int) -> float:
        asked = [{"role": "user", "content": "Tell me a long story."}]
        stream = Stream(self.llm.chat(asked, max_tokens=tokens, **OPEN)).wait()
        return (tokens - 1) / (stream.times[-1] - stream.times[0])

    def _from_client(self, url: str, tokens: int) -> float:
        command = [sys.executable, CLIENT, url, self.llm.name, str(tokens)]
        said = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        return float(said["tokens"] / said["seconds"])


NAMES = ("together", "prefix", "turns", "branches", "gap", "streaming")


def rate(streams: list[Stream]) -> float:
    """Tokens a second while all of them run."""
    for stream in streams:
        stream.wait()
    since = max(stream.times[0] for stream in streams)
    until = min(stream.times[-1] for stream in streams)
    count = sum(since < at <= until for stream in streams for at in stream.times)
    return count / (until - since)


def peer_rate(side: Any, case: Case) -> float:
    side.prepare(case)
    return case.total / side.run(case)


class One:
    """A library of one open model, which the server closes only in name."""

    def __init__(self, llm: LLM):
        self.llm, self.known = llm, Known(llm.name, 1, 1)

    def names(self) -> dict[str, Known]:
        return {self.llm.name: self.known}

    def find(self, name: str) -> Known | None:
        return self.names().get(name)

    def open(self, name: str, progress: Callable[[str, int, int], None]) -> Any:
        return Kept(self.llm)

    def bytes(self, name: str) -> int:
        return 1


class Kept:
    """An open model without its `close`."""

    def __init__(self, llm: LLM):
        self._llm = llm

    def __getattr__(self, name: str) -> Any:
        return getattr(self._llm, name)

    def close(self) -> None:
        """It stays open."""


@contextmanager
def serving(llm: LLM) -> Iterator[str]:
    """A server of the model in this process; its URL."""
    ready, urls, sites = threading.Event(), list[str](), list[Site]()

    def announce(url: str) -> None:
        urls.append(url)
        ready.set()

    where = (Settings(port=0), One(llm), [llm.name], announce, sites.append)
    thread = threading.Thread(target=run, args=where)
    thread.start()
    ready.wait()
    try:
        yield urls[0]
    finally:
        sites[0].stop()
        thread.join()


def main() -> None:
    """Measure, and print a table as it grows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--only", nargs="*", default=NAMES, choices=NAMES)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    print("| model | number | measured | goal | |\n| --- | --- | ---: | ---: | --- |", flush=True)
    for model in asked.models:
        with LLM.open(model, context=8192, drafts=False) as llm:
            bench = Bench(llm, asked.repeats)
            bench.first(bench.text(600))  # every kernel has run once
            for name in asked.only:
                for row in getattr(bench, name)():
                    cells = (model, row.name, f"{row.value:.3g}", row.goal, row.notes)
                    print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
