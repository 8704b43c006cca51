"""llama-server's own form of an answer, which /completion and /infill share."""

import dataclasses
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from typing import Any

from starlette.responses import Response

from localllm.sampling import Sampling
from localllm.server import ask, fields
from localllm.server.choice import token_logprobs
from localllm.server.constrain import mask_for
from localllm.server.dialect import Tools
from localllm.server.endpoint import Call, Field
from localllm.server.pump import Reply, merged
from localllm.server.running import Run, running
from localllm.server.running import answer as running_answer
from localllm.server.stream import PING, event

MOST_ANSWERS = 16
LIMITS = (
    Field("n_predict", fields.LIMIT, "Tokens an answer may have; -1: to its end or the context's."),
    Field("max_tokens", fields.LIMIT, "Another name of `n_predict`."),
    Field("n_probs", fields.number(0, 100, "integer"),
          "Give `completion_probabilities`: each token's and of so many of the likeliest."),
    Field("return_tokens", fields.FLAG, "Give the ids of the answer too."),
    Field("response_fields", {"type": "array", "items": fields.TEXT, "maxItems": 64},
          "Give only these members, `a/b` for one inside another, each under that name. Not of a "
          "stream."),
    Field("n_cmpl", fields.number(1, MOST_ANSWERS, "integer"),
          "How many answers; more than one come as a list."),
    Field("n", fields.number(1, MOST_ANSWERS, "integer"), "Another name of `n_cmpl`."),
    fields.STOPS,
    *fields.STREAM,
    *fields.SHAPE,
    *fields.SAMPLING,
    *fields.ENGINE,
    fields.ignored("n_indent", fields.ANY, "Nothing is cut from an answer."),
    *fields.LLAMA_IGNORED,
    *fields.IGNORED,
)  # fmt: skip
Prompt = Callable[[Any], list[int]]  # an LLM -> the ids of the prompt


class Native:
    """One request of this kind; `prompt` makes its ids in a thread."""

    def __init__(self, call: Call, prompt: Prompt):
        self.call, self.body, self._prompt = call, call.body, prompt
        self.answers = int(self.body.get("n_cmpl", self.body.get("n", 1)))
        self.shown: dict[str, Any] = {}
        self._made: Counter[int] = Counter()  # tokens of each answer so far

    def ask(self, llm: Any) -> list[Reply]:
        ids, asked = self._prompt(llm), ask.options(self.call, llm)
        asked["max_tokens"] = ask.most_tokens(self.body, "n_predict", "max_tokens")
        if self.body.get("n_probs"):
            asked["logprobs"] = int(self.body["n_probs"])
        self.shown, mask = settings(llm, asked), mask_for(self.body, llm, Tools())
        return ask.submit_all(self.call, llm, [ids], self.answers, asked, mask)

    def piece(self, index: int, delta: Any, tokenizer: Any) -> dict[str, Any]:
        """What one delta is to a streaming client; counts the tokens of its answer."""
        self._made[index] += len(delta.ids)
        said = {"index": index, "content": delta.text, "tokens": list(delta.ids), "stop": False}
        said["tokens_predicted"] = self._made[index]
        if delta.logprobs and self.body.get("n_probs"):
            said["completion_probabilities"] = token_logprobs(delta.logprobs, tokenizer)
        if delta.progress and self.body.get("return_progress"):
            done, total = delta.progress
            said["prompt_progress"] = {"processed": done, "total": total}
        return said

    def end(self, run: Run, index: int, content: str) -> dict[str, Any]:
        """The last event of a stream, or the whole answer."""
        reply, reason = run.replies[index], run.finish(index)
        usage = reply.usage
        stopped = "limit" if reason == "length" else "word" if reply.stop else "eos"
        return {
            "index": index,
            "content": content,
            "stop": True,
            "stop_type": "none" if reason == "cancelled" else stopped,
            "stopping_word": reply.stop or "",
            "model": self.call.record.model,
            "tokens_predicted": usage["completion_tokens"],
            "tokens_evaluated": usage["prompt_tokens"],
            "tokens_cached": usage["cached_tokens"],
            "truncated": False,
            "generation_settings": self.shown,
            "timings": run.timings(index),
        }


def settings(llm: Any, asked: dict[str, Any]) -> dict[str, Any]:
    """The sampling in force, defaults of the model included, under llama-server's names."""
    names = {f.name for f in dataclasses.fields(Sampling)}
    knobs = {name: value for name, value in asked.items() if name in names}
    chosen = dataclasses.asdict(llm.defaults.changed(knobs))
    chosen["logit_bias"] = [[id, max(bias, -9999.0)] for id, bias in chosen["logit_bias"].items()]
    limit = asked.get("max_tokens")
    return {"n_ctx": llm.context, "n_predict": -1 if limit is None else limit} | chosen


async def answer(call: Call, prompt: Prompt) -> Response:
    """Answer a native request, as it comes or whole."""
    return await running_answer(call, Native(call, prompt), whole, events)


async def whole(native: Native) -> Any:
    """The answer in one piece; several as a list."""
    async with running(native.call, native.ask, native.answers) as run:
        pieces: list[list[dict[str, Any]]] = [[] for _ in run.replies]
        async for batch in run.batches():
            for index, delta in batch:
                pieces[index].append(native.piece(index, delta, run.llm.tokenizer))
        found = []
        for index, parts in enumerate(pieces):
            said = native.end(run, index, "".join(part["content"] for part in parts))
            said["tokens"] = [id for part in parts for id in part["tokens"]]
            if not native.body.get("return_tokens"):
                said["tokens"] = []
            if native.body.get("n_probs"):
                key = "completion_probabilities"
                said[key] = [one for part in parts for one in part.get(key, ())]
            wanted = native.body.get("response_fields")
            found.append(chosen(said, wanted) if wanted else said)
        return found[0] if len(found) == 1 else found


def chosen(said: dict[str, Any], paths: list[str]) -> dict[str, Any]:
    """The members that are at these paths, under the paths as their names."""
    found = {}
    for path in paths:
        *folders, name = path.split("/")
        inside: Any = said
        for folder in folders:
            inside = inside.get(folder) if isinstance(inside, dict) else None
        if isinstance(inside, dict) and name in inside:
            found[path] = inside[name]
    return found


async def events(native: Native) -> AsyncGenerator[bytes, None]:
    """One event a delta, one with `stop: true` an answer; no [DONE], as llama-server has it."""
    async with running(native.call, native.ask, native.answers) as run:
        yield PING
        async for batch in run.batches():
            lines = [
                event(native.piece(i, d, run.llm.tokenizer)) for i, d in merged(batch) if worth(d)
            ]
            yield b"".join(lines) or PING
        for index in range(len(run.replies)):
            yield event(native.end(run, index, ""))


def worth(delta: Any) -> bool:
    """Is there anything in it for a client?"""
    return bool(delta.text or delta.ids or delta.progress)
