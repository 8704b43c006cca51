"""/v1/chat/completions: answers to a conversation, whole or as it comes."""

import time
from collections.abc import AsyncGenerator
from typing import Any

from starlette.responses import Response

from localllm.errors import BadRequest
from localllm.server import ask, fields, messages
from localllm.server.choice import Choice
from localllm.server.constrain import mask_for
from localllm.server.dialect import Tools, splitter
from localllm.server.endpoint import Body, Call, Endpoint, Field
from localllm.server.pump import Reply, by_reply
from localllm.server.running import Run, answer, running
from localllm.server.stream import DONE, PING, event
from localllm.text.parts import Parts, opens_thinking

BODY = Body(
    (
        fields.MODEL,
        Field("messages", messages.MESSAGES, "The conversation so far.", required=True),
        Field("max_completion_tokens", fields.LIMIT, "Tokens an answer may have; -1 or none: to "
              "the end of the answer or of the context."),
        Field("max_tokens", fields.LIMIT, "The older name of `max_completion_tokens`."),
        Field("n_predict", fields.LIMIT, "llama-server's name of it."),
        fields.ANSWERS,
        *fields.STREAM,
        fields.STOPS,
        Field("logprobs", fields.FLAG, "Give the log-probability of each token."),
        Field("top_logprobs", fields.number(0, 20, "integer"),
              "And of so many of the likeliest tokens at its place."),
        Field("tools", messages.TOOLS, "Functions that the model may call."),
        Field("tool_choice", messages.CHOICE, "`auto`, `none`, `required` or one function; the "
              "last two are enforced token by token."),
        Field("parallel_tool_calls", fields.FLAG, "False: the answer ends after one call."),
        fields.FORMAT,
        *fields.SHAPE,
        *fields.SAMPLING,
        *fields.ENGINE,
        Field("chat_template_kwargs", fields.OBJECT | {"maxProperties": 64},
              "Further variables for the model's template, such as `enable_thinking`."),
        Field("reasoning_effort", {"type": "string", "maxLength": 32},
              "Handed to the template as a variable; `none` also sets `enable_thinking` to false."),
        Field("modalities", {"type": "array", "items": {"enum": ["text"]}, "maxItems": 4},
              "Only text comes out."),
        fields.ignored("prediction", fields.OBJECT, "It changes speed only."),
        fields.ignored("verbosity", fields.TEXT, "No template has a place for it."),
        fields.ignored("response_fields", fields.ANY, "Only llama-server's own endpoints have it."),
        *fields.LLAMA_IGNORED,
        *fields.IGNORED,
    )
)  # fmt: skip
LAST = 16  # tokens of the prompt that may open the model's reasoning
RESERVED = {"messages", "tools", "add_generation_prompt", "self"}


class Chat:
    """What both forms of the answer share: the question, the choices, the chunks' head."""

    def __init__(self, call: Call):
        self.call, self.body = call, call.body
        self.tools = Tools.read(self.body)
        self.answers = int(self.body.get("n", 1))
        self.id, self.created = f"chatcmpl-{call.record.id}", int(time.time())
        self.choices: list[Choice] = []
        self.extra = template_options(self.body)
        self.opening = ""  # the prompt's last letters

    def ask(self, llm: Any) -> list[Reply]:
        """Render, tokenize and submit; in a thread."""
        if llm.template is None:
            hint = "Use /v1/completions."
            raise BadRequest(f"{llm.name} is a base model: it has no chat template.", hint)
        said = messages.plain(self.body["messages"], llm.system)
        ids = llm.prompt(said, self.tools.shown, **self.extra)
        self.opening = llm.tokenizer.decode(ids[-LAST:], special=True)
        asked = ask.options(self.call, llm)
        limits = ("max_completion_tokens", "max_tokens", "n_predict")
        asked["max_tokens"] = ask.most_tokens(self.body, *limits)
        if self.body.get("logprobs"):
            asked["logprobs"] = int(self.body.get("top_logprobs", 0))
        elif "top_logprobs" in self.body:
            raise BadRequest("top_logprobs needs logprobs: true.")
        mask = mask_for(self.body, llm, self.tools, opens_thinking(self.opening))
        return ask.submit_all(self.call, llm, [ids], self.answers, asked, mask)

    def begin(self, run: Run) -> None:
        most = None if self.tools.parallel else 1

        def split() -> Parts:
            return splitter(run.llm, self.tools, self.opening)

        self.choices = [
            Choice(i, self.call.record.id, split(), run.llm.tokenizer, most)
            for i in range(self.answers)
        ]

    def chunk(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        head: dict[str, Any] = {"id": self.id, "object": "chat.completion.chunk"}
        head["created"] = self.created
        return {**head, "model": self.call.record.model, "choices": choices, **more}

    def piece(self, index: int, delta: dict[str, Any], **more: Any) -> dict[str, Any]:
        finish = {"logprobs": None, "finish_reason": None} | more
        return self.chunk([{"index": index, "delta": delta, **finish}])

    def usage(self, run: Run) -> dict[str, Any]:
        return run.usage(sum(choice.reasoning_tokens for choice in self.choices))

    def finish(self, run: Run, choice: Choice) -> str:
        return choice.finish(run.finish(choice.index))


def template_options(body: dict[str, Any]) -> dict[str, Any]:
    """The variables a request adds to its template. Raises BadRequest for the template's own."""
    extra = dict(body.get("chat_template_kwargs", {}))
    if taken := RESERVED & extra.keys():
        raise BadRequest(f"chat_template_kwargs may not set '{min(taken)}'.")
    if effort := body.get("reasoning_effort"):
        extra.setdefault("reasoning_effort", effort)
        if effort == "none":
            extra.setdefault("enable_thinking", False)
    return extra


async def chat(call: Call) -> Response:
    """Answer a conversation."""
    return await answer(call, Chat(call), whole, events)


async def whole(chat: Chat) -> dict[str, Any]:
    """The answer in one piece."""
    async with running(chat.call, chat.ask, chat.answers) as run:
        chat.begin(run)
        async for batch in run.batches():
            for index, delta in batch:
                chat.choices[index].push(delta)
                if chat.choices[index].closed:
                    run.replies[index].cancel()
        choices = []
        for choice in chat.choices:
            choice.flush(run.finish(choice.index))
            reason = chat.finish(run, choice)
            logprobs = choice.take_logprobs() if chat.body.get("logprobs") else None
            head: dict[str, Any] = {"index": choice.index, "message": choice.message()}
            choices.append(head | {"logprobs": logprobs, "finish_reason": reason})
        chat.call.record.finish = choices[0]["finish_reason"]
        more = {"usage": chat.usage(run), "timings": run.timings()}
        return chat.chunk(choices, **more) | {"object": "chat.completion"}


async def events(chat: Chat) -> AsyncGenerator[bytes, None]:
    """The answer as it comes: role, deltas, one finish chunk an answer, usage, [DONE]."""
    async with running(chat.call, chat.ask, chat.answers) as run:
        chat.begin(run)
        role = {"role": "assistant", "content": ""}
        yield b"".join(event(chat.piece(choice.index, role)) for choice in chat.choices)
        async for batch in run.batches():
            lines = [line for i, group in by_reply(batch) for line in lines_of(chat, run, i, group)]
            yield b"".join(lines) or PING
        for choice in chat.choices:
            for delta in choice.flush(run.finish(choice.index)):
                yield event(chat.piece(choice.index, delta))
        reasons = [chat.finish(run, choice) for choice in chat.choices]
        chat.call.record.finish = reasons[0]
        for choice, reason in zip(chat.choices, reasons, strict=True):
            last = chat.piece(choice.index, {}, finish_reason=reason)
            if choice is chat.choices[-1]:
                last["timings"] = run.timings()
            yield event(last)
        if chat.body.get("stream_options", {}).get("include_usage"):
            yield event(chat.chunk([], usage=chat.usage(run), timings=run.timings()))
        yield DONE


def lines_of(chat: Chat, run: Run, index: int, group: list[Any]) -> list[bytes]:
    """The events that deltas of one reply become."""
    choice, lines = chat.choices[index], []
    if chat.body.get("return_progress"):
        told = [progress(delta) for delta in group if delta.progress]
        lines += [event(chat.chunk([], prompt_progress=one)) for one in told]
    deltas = choice.push(*group)
    if choice.closed:
        run.replies[index].cancel()
    logprobs = choice.take_logprobs() if chat.body.get("logprobs") else None
    if logprobs and not deltas:
        deltas = [{"content": ""}]
    for position, one in enumerate(deltas):
        lines.append(event(chat.piece(index, one, logprobs=logprobs if position == 0 else None)))
    return lines


def progress(delta: Any) -> dict[str, int]:
    """llama-server's words for how much of the prompt is done."""
    done, total = delta.progress
    return {"processed": done, "total": total}


ROUTES = [
    Endpoint(
        "POST", "/v1/chat/completions", chat, "Answer a conversation.", BODY,
        example={"messages": [{"role": "user", "content": "Hello!"}]},
    ),
]  # fmt: skip
ROUTES.append(ROUTES[0].at("/chat/completions"))
