"""/v1/completions: go on from a text, from token ids, or fill a gap before a suffix."""

import itertools
import time
from collections.abc import AsyncGenerator
from typing import Any

from starlette.responses import Response

from localllm.errors import BadRequest
from localllm.server import ask, fields, fim
from localllm.server.constrain import mask_for
from localllm.server.dialect import Tools
from localllm.server.echo import Echo
from localllm.server.endpoint import Body, Call, Endpoint, Field
from localllm.server.pump import Reply, merged
from localllm.server.running import Run, answer, running
from localllm.server.schema import WrongField
from localllm.server.stream import DONE, PING, event
from localllm.server.textual import Textual

PROMPT = {
    "anyOf": [
        fields.TEXT,
        {"type": "array", "items": fields.TEXT, "maxItems": fields.CHOICES},
        fields.TOKENS,
        {"type": "array", "items": fields.TOKENS, "maxItems": fields.CHOICES},
    ]
}
BODY = Body(
    (
        fields.MODEL,
        Field("prompt", PROMPT, "A text, texts, token ids, or lists of token ids.", required=True),
        Field("suffix", fields.TEXT, "What comes after the gap, for models that fill gaps."),
        Field("max_tokens", fields.LIMIT, "Tokens an answer may have; -1: to the end of the answer "
              "or of the context. OpenAI's default of 16 is ours too."),
        fields.ANSWERS,
        Field("best_of", fields.number(1, 16, "integer"), "Only the same as `n`."),
        Field("echo", fields.FLAG, "Put the prompt in front of each answer."),
        *fields.STREAM,
        fields.STOPS,
        Field("logprobs", fields.number(0, 20, "integer"),
              "Log-probabilities of each token and of so many of the likeliest at its place; with "
              "`echo`, of the prompt too."),
        fields.FORMAT,
        *fields.SHAPE,
        *fields.SAMPLING,
        *fields.ENGINE,
        fields.ignored("response_fields", fields.ANY, "Only llama-server's own endpoints have it."),
        *fields.LLAMA_IGNORED,
        *fields.IGNORED,
    )
)  # fmt: skip
DEFAULT_TOKENS = 16


class Completion:
    """What both forms of the answer share."""

    def __init__(self, call: Call):
        self.call, self.body = call, call.body
        self.answers = int(self.body.get("n", 1))
        self.id, self.created = f"cmpl-{call.record.id}", int(time.time())
        self.echoes: list[Echo] = []
        self.texts: list[Textual] = []
        if int(self.body.get("best_of", self.answers)) != self.answers:
            raise WrongField("best_of", "Must be the same as n.")
        if "suffix" in self.body and not isinstance(self.body["prompt"], str):
            raise WrongField("suffix", "Needs a prompt that is one text.")

    def ask(self, llm: Any) -> list[Reply]:
        """Tokenize and submit; in a thread."""
        if "suffix" in self.body:
            prompts = [fim.prompt(llm, self.body["prompt"], self.body["suffix"])]
        else:
            prompts = ask.prompts(self.body["prompt"], llm)
        if len(prompts) * self.answers > fields.CHOICES:
            raise BadRequest(f"A request may have {fields.CHOICES} answers in all.")
        asked = ask.options(self.call, llm)
        wanted = self.body.get("max_tokens", DEFAULT_TOKENS)
        asked["max_tokens"] = None if wanted < 0 else int(wanted)
        if "logprobs" in self.body:
            asked["logprobs"] = int(self.body["logprobs"])
        top = asked.get("logprobs")
        if self.body.get("echo"):
            text = self.body["prompt"] if isinstance(self.body["prompt"], str) else None
            self.echoes = [Echo.of(llm, ids, top, text) for ids in prompts]
        mask = mask_for(self.body, llm, Tools())
        return ask.submit_all(self.call, llm, prompts, self.answers, asked, mask)

    def begin(self, run: Run) -> None:
        echoes = self.echoes or [Echo() for _ in run.replies[:: self.answers]]
        wanted = "logprobs" in self.body
        self.texts = [
            Textual(index, run.llm.tokenizer, wanted, echo)
            for index, (echo, _) in enumerate(itertools.product(echoes, range(self.answers)))
        ]

    def chunk(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        head = {"id": self.id, "object": "text_completion", "created": self.created}
        return {**head, "model": self.call.record.model, "choices": choices, **more}


async def complete(call: Call) -> Response:
    """Go on from a prompt."""
    return await answer(call, Completion(call), whole, events)


async def whole(asked: Completion) -> dict[str, Any]:
    """The answer in one piece."""
    async with running(asked.call, asked.ask, asked.answers) as run:
        asked.begin(run)
        async for batch in run.batches():
            for index, delta in batch:
                asked.texts[index].push(delta)
        choices = [text.choice(run.finish(text.index)) for text in asked.texts]
        return asked.chunk(choices, usage=run.usage(), timings=run.timings())


async def events(asked: Completion) -> AsyncGenerator[bytes, None]:
    """The answer as it comes; the first chunk of each has what is echoed, if anything."""
    async with running(asked.call, asked.ask, asked.answers) as run:
        asked.begin(run)
        yield b"".join(event(asked.chunk([text.take(None)])) for text in asked.texts)
        async for batch in run.batches():
            lines = []
            for index, delta in merged(batch):
                asked.texts[index].push(delta)
                if delta.text or delta.logprobs:
                    lines.append(event(asked.chunk([asked.texts[index].take(None)])))
            yield b"".join(lines) or PING
        for text in asked.texts:
            more = {"timings": run.timings()} if text is asked.texts[-1] else {}
            yield event(asked.chunk([text.take(run.finish(text.index))], **more))
        if asked.body.get("stream_options", {}).get("include_usage"):
            yield event(asked.chunk([], usage=run.usage()))
        yield DONE


ROUTES = [
    Endpoint(
        "POST", "/v1/completions", complete, "Go on from a prompt.", BODY,
        example={"prompt": "Once upon a time", "max_tokens": 32},
    ),
]  # fmt: skip
