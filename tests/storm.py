"""Many clients at once, well and badly behaved, over a real server: what they get is compared with
what each request gets alone."""

import asyncio
import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

CHAT, TEXT, EMBED = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
TIMEOUT = 300.0  # seconds: longer is a hang
FROZEN = 5.0  # seconds without any progress of the process itself
BAD = (b"{", b'{"messages": 3}', b"[]", b"\xff", b"", b'{"messages": []}', b'{"input": {}}')
LETTERS = "Write the alphabet. "


def requests() -> list[tuple[str, dict[str, Any]]]:
    """(path, body) of all that is asked: greedy and seeded, short and long, several kinds."""
    asked = [(CHAT, chat(f"Count from {i}.", temperature=0)) for i in range(4)]
    asked += [(CHAT, chat(f"Invent a name with {i}.", seed=i, n=1 + i % 2)) for i in range(4)]
    asked += [(CHAT, chat(LETTERS * (20 + 40 * i) + "Now.", temperature=0)) for i in range(3)]
    asked += [(TEXT, {"prompt": f"The {i}th of", "max_tokens": 9, "seed": i}) for i in range(3)]
    asked += [
        (EMBED, {"input": [f"text {i}", LETTERS * (i + 1)], "pooling": kind})
        for i in range(2)
        for kind in ("mean", "last")
    ]
    return asked


def chat(text: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 12} | more


def told(answer: dict[str, Any]) -> str:
    """What an answer says, the part that must always be the same."""
    if "choices" not in answer:
        return json.dumps([one["embedding"] for one in answer["data"]])
    texts = [c["message"]["content"] if "message" in c else c["text"] for c in answer["choices"]]
    return json.dumps(texts)


def alone(url: str) -> dict[int, str]:
    """What each of the requests gets when nobody else asks."""
    found = {}
    for number, (path, body) in enumerate(requests()):
        answer = httpx.post(url + path, json=body | {"cache_prompt": False}, timeout=TIMEOUT)
        answer.raise_for_status()
        found[number] = told(answer.json())
    return found


@dataclass
class Storm:
    """Visitors of one server until a time; `counts` of how their requests went."""

    url: str
    right: dict[int, str]
    seconds: float
    visitors: int = 64
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    frozen: float = 0.0  # the longest that the whole process stood still, seconds

    def run(self) -> Counter[str]:
        asyncio.run(self._run())
        return self.counts

    async def _run(self) -> None:
        self.end = time.monotonic() + self.seconds
        # The server lets an idle connection go after 5 seconds: no request may meet that moment.
        limits = httpx.Limits(max_connections=self.visitors, keepalive_expiry=1)
        async with httpx.AsyncClient(
            base_url=self.url, timeout=TIMEOUT, limits=limits
        ) as self.client:
            watch = asyncio.ensure_future(self._watch())
            await asyncio.gather(*(self._visitor(random.Random(i)) for i in range(self.visitors)))
            watch.cancel()

    async def _watch(self) -> None:
        """A process that is stopped for longer than the server's time limits loses connections."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.5)
            self.frozen = max(self.frozen, time.monotonic() - before - 0.5)

    async def _visitor(self, dice: random.Random) -> None:
        kinds: tuple[Callable[[random.Random], Awaitable[str]], ...] = (
            self._whole, self._whole, self._stream, self._leave, self._give_up, self._bad,
            self._break_off, self._look,
        )  # fmt: skip
        while time.monotonic() < self.end:
            kind = dice.choice(kinds)
            try:
                self.counts[await kind(dice)] += 1
            except httpx.TransportError as error:
                self.counts["broken"] += 1
                if self.frozen < FROZEN:
                    self.wrong.append(f"{kind.__name__}: {error!r}")

    def _pick(self, dice: random.Random) -> tuple[int, str, dict[str, Any]]:
        number = dice.randrange(len(self.right))
        path, body = requests()[number]
        return number, path, body | {"cache_prompt": dice.random() < 0.9}

    def _judge(self, number: int, got: str) -> str:
        if got == self.right[number]:
            return "right"
        self.wrong.append(f"{requests()[number]}: {got[:200]} not {self.right[number][:200]}")
        return "wrong"

    async def _whole(self, dice: random.Random) -> str:
        number, path, body = self._pick(dice)
        answer = await self.client.post(path, json=body)
        if answer.status_code == 429:
            return "refused"
        answer.raise_for_status()
        return self._judge(number, told(answer.json()))

    async def _stream(self, dice: random.Random) -> str:
        number, path, body = self._pick(dice)
        if path == EMBED:
            return await self._whole(dice)
        return self._judge(number, json.dumps(await self._read(path, body)))

    async def _leave(self, dice: random.Random) -> str:
        """In the middle of a stream of something that nobody asked before."""
        fresh = f"{dice.random()} {LETTERS * dice.randrange(60)}"
        body = chat(fresh, seed=1) | {"max_tokens": 200}
        await self._read(CHAT, body, dice.randrange(1, 6))
        return "left"

    async def _give_up(self, dice: random.Random) -> str:
        """While waiting for a whole answer, perhaps during the prompt."""
        _, path, body = self._pick(dice)
        try:
            await self.client.post(path, json=body, timeout=dice.uniform(0.01, 0.6))
        except httpx.TimeoutException:
            return "gave up"
        return "in time"

    async def _bad(self, dice: random.Random) -> str:
        headers = {"Content-Type": "application/json"}
        where, raw = dice.choice((CHAT, EMBED, TEXT)), dice.choice(BAD)
        answer = await self.client.post(where, content=raw, headers=headers)
        return "bad" if answer.status_code == 400 else "wrong"

    async def _break_off(self, dice: random.Random) -> str:
        """A connection that ends in the middle of its head or body."""
        host, _, port = self.url.removeprefix("http://").partition(":")
        body = json.dumps(chat("x" * 500)).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        raw = head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(raw[: dice.randrange(1, len(raw))])
        await writer.drain()
        await asyncio.sleep(dice.uniform(0, 0.1))
        writer.close()
        return "broke off"

    async def _look(self, dice: random.Random) -> str:
        path = dice.choice(("/health", "/slots", "/metrics", "/v1/models", "/props"))
        answer = await self.client.get(path)
        return "looked" if answer.status_code == 200 else "wrong"

    async def _read(self, path: str, body: dict[str, Any], most: int = 10**9) -> list[str]:
        """The texts of a streamed answer, or of its first `most` events."""
        texts = [""] * body.get("n", 1)
        async with self.client.stream("POST", path, json=body | {"stream": True}) as answer:
            answer.raise_for_status()
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    for choice in json.loads(line[6:])["choices"]:
                        new = choice.get("text") or choice.get("delta", {}).get("content") or ""
                        texts[choice["index"]] += new
                    most -= 1
                if not most:
                    break
        return texts


def descriptors() -> int:
    """How many this process has open, where the system tells."""
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


def readers() -> list[str]:
    """The threads that read replies."""
    return [thread.name for thread in threading.enumerate() if "reply" in thread.name]


def resident() -> int:
    """Bytes of memory that this process holds, 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
