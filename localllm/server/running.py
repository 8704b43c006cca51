"""One request in the engine: it takes its place, holds its model, reads its replies, is counted."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from starlette.responses import Response

from localllm.server.endpoint import Call
from localllm.server.pump import Batch, Pump, Reply, start
from localllm.server.stream import EventStream, json_response

PROMPTS = ("messages", "prompt", "input")  # what is asked goes by these names
T = TypeVar("T")
Ask = Callable[[Any], list[Reply]]  # an LLM -> the replies of one request; runs in a thread


class Run:
    """The replies of a request, and the record of how they went."""

    def __init__(self, call: Call, llm: Any, replies: list[Reply], pump: Pump, each: int):
        self.call, self.llm, self.replies, self.each = call, llm, replies, each
        self._pump = pump

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """See Pump.batches; keeps the record and the metrics of tokens and gaps."""
        record = self.call.record
        last: dict[int, float] = {}
        async for batch in self._pump.batches(self.call.site.settings.ping_seconds):
            counts: Counter[int] = Counter()
            for index, delta in batch:
                counts[index] += len(delta.ids)
            for index, tokens in counts.items():
                if tokens:
                    self._count(index, tokens, last)
            if record.answer is not None:
                record.answer += [delta.text for _, delta in batch]
            yield batch
        self._settle()

    def _count(self, index: int, tokens: int, last: dict[int, float]) -> None:
        """Note tokens of one reply that came together. last: when each reply's came before."""
        record, now = self.call.record, time.monotonic()
        record.first, record.last = record.first or now, now
        record.completion_tokens += tokens
        if index in last:
            gap = self.call.site.metrics.gap.labels(record.model)
            for _ in range(tokens):
                gap.observe((now - last[index]) / tokens)
        last[index] = now

    def finish(self, index: int) -> str:
        """Why a reply ended, in OpenAI's words; a time limit is a kind of length."""
        reason = self.replies[index].finish_reason
        return "length" if reason == "cancelled" and self._pump.late else reason

    def usage(self, reasoning: int = 0) -> dict[str, Any]:
        """OpenAI's usage of all replies together; a prompt they share is counted once.

        reasoning: so many of the answers' tokens were reasoning.
        """
        record = self.call.record
        return {
            "prompt_tokens": record.prompt_tokens,
            "completion_tokens": record.completion_tokens,
            "total_tokens": record.prompt_tokens + record.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": record.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": reasoning},
        }

    def timings(self, index: int = 0) -> dict[str, float]:
        """llama-server's timings of one reply, with our own names beside them."""
        usage, timings = self.replies[index].usage, dict(self.replies[index].timings)
        computed = usage["prompt_tokens"] - usage["cached_tokens"]
        made = usage["completion_tokens"]
        return timings | {
            "cache_n": usage["cached_tokens"],
            "prompt_n": computed,
            "prompt_per_token_ms": timings["prompt_ms"] / max(1, computed),
            "predicted_n": made,
            "predicted_per_token_ms": timings["predicted_ms"] / max(1, made),
        }

    def _settle(self) -> None:
        """Replace what was counted on the way by what the engine says."""
        record, firsts = self.call.record, [r.usage for r in self.replies[:: self.each]]
        record.prompt_tokens = sum(usage["prompt_tokens"] for usage in firsts)
        record.cached_tokens = sum(usage["cached_tokens"] for usage in firsts)
        record.completion_tokens = sum(r.usage["completion_tokens"] for r in self.replies)
        record.finish = self.finish(0)


@asynccontextmanager
async def running(call: Call, ask: Ask, each: int = 1) -> AsyncIterator[Run]:
    """A place in the gate, the model, the replies. Whatever ends the block cancels the rest.

    each: so many replies in a row answer the same prompt.
    """
    site, record = call.site, call.record
    async with site.gate.place(), site.pool.use(call.body.get("model")) as llm:
        record.model, record.running = llm.name, True
        if site.settings.log_prompts:
            record.prompt = next((call.body[k] for k in PROMPTS if k in call.body), None)
            record.answer = []
        replies = await start(site.threads, lambda: ask(llm))
        predict = call.body.get("t_max_predict_ms")
        pump = Pump(replies, site.settings.request_seconds, predict / 1000 if predict else None)
        try:
            yield Run(call, llm, replies, pump, each)
        except (asyncio.CancelledError, GeneratorExit):
            record.finish = "cancelled"
            raise
        except Exception:
            record.finish = "error"
            raise
        finally:
            pump.cancel()


async def answer(
    call: Call, asked: T, whole: Callable[[T], Awaitable[Any]],
    events: Callable[[T], AsyncGenerator[bytes, None]],
) -> Response:  # fmt: skip
    """A request's answer in the form that it wants: as it comes, or whole."""
    if call.body.get("stream"):
        call.record.stream = True
        return await EventStream.begin(events(asked))
    return json_response(await whole(asked))


def together(asks: list[Callable[[], Reply]]) -> list[Reply]:
    """All the replies, or none: when one is refused, those before it are cancelled."""
    replies: list[Reply] = []
    try:
        for ask in asks:
            replies.append(ask())
    except BaseException:
        for reply in replies:
            reply.cancel()
        raise
    return replies
