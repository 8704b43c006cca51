"""run and chat: what people type most."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from localllm import catalog
from localllm.cli import streams
from localllm.cli.interrupt import INTERRUPTED, stopping
from localllm.cli.opener import opener
from localllm.cli.options import (
    Context,
    Device,
    GpuLayers,
    Json,
    KVType,
    Threads,
    model_names,
    opening,
    with_sampling,
)
from localllm.cli.printing import say, stats_line, write_json, write_text
from localllm.errors import BadRequest
from localllm.tui import attach
from localllm.tui.waiting import Waiting

PANEL = "Answers"
DEFAULT = catalog.DEFAULT  # the model of a command that names none

ModelOrDefault = Annotated[
    str, typer.Argument(help="A model; see `localllm list --all`.", autocompletion=model_names)
]
System = Annotated[str, typer.Option("--system", "-s", help="A system prompt.")]
MaxTokens = Annotated[
    int | None, typer.Option("--max-tokens", "-n", min=1, help="Tokens of an answer, at most.")
]
Local = Annotated[
    bool,
    typer.Option("--local", help="Open the model here, though `localllm serve` has it loaded."),
]


@with_sampling
def run(
    model: ModelOrDefault = DEFAULT,
    prompt: Annotated[list[str] | None, typer.Argument(help="The prompt; stdin is added.")] = None,
    files: Annotated[
        list[Path] | None,
        typer.Option("--file", "-f", help="A text file that goes with the prompt; repeatable."),
    ] = None,
    system: System = "",
    max_tokens: MaxTokens = None,
    stop: Annotated[list[str] | None, typer.Option(help="End the answer before this text.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Go on from the prompt: no template.")] = False,
    stats: Annotated[bool, typer.Option("--stats", help="Print tokens and speeds.")] = False,
    json: Json = False,
    plain: Annotated[
        bool, typer.Option("--plain", help="In a conversation: no Markdown, no colours.")
    ] = False,
    no_history: Annotated[
        bool, typer.Option("--no-history", help="In a conversation: keep no lines for the next.")
    ] = False,
    context: Context = None,
    threads: Threads = None,
    device: Device = "auto",
    kv_type: KVType = "f16",
    gpu_layers: GpuLayers = "auto",
    local: Local = False,
    sampling: dict[str, Any] | None = None,
) -> None:
    """Answer a prompt; without one, on a terminal, hold a conversation."""
    attached = [attach.quoted(path, attach.read(path)) for path in files or ()]
    question = read_prompt(prompt, attached)
    open_llm = opener(opening(context, threads, device, kv_type, gpu_layers), local)
    asked = dict(sampling or {}, max_tokens=max_tokens, stop=tuple(stop or ()))
    if question is None:
        if json or raw:
            raise BadRequest("--json and --raw are for one answer.", "Give a prompt.")
        from localllm.tui.line import chat_loop

        asked = {name: value for name, value in asked.items() if value not in (None, ())}
        code = chat_loop(
            open_llm, model, system=system, sampling=asked, plain=plain, history=not no_history,
            stats=stats, files=attached, models=catalog.all_names,
        )  # fmt: skip
        raise typer.Exit(code)
    with Waiting() as waiting:
        llm = open_llm(model, waiting)
    if llm.server:
        say(f"Asking the server at {llm.server}; --local opens the model here.")
    with llm:
        raise typer.Exit(answer(llm, question, system, raw, stats, json, asked))


def answer(
    llm: Any, question: str, system: str, raw: bool, stats: bool, json: bool, asked: dict
) -> int:
    """Print one answer; the exit status."""
    system = system or llm.system or ""
    if raw or llm.template is None:
        if not raw:
            say(f"{llm.name} is a base model: it goes on from the prompt rather than answer it.")
        text = f"{system}\n\n{question}" if system else question
        reply = llm.generate(text, **asked)
    else:
        messages = [{"role": "system", "content": system}] if system else []
        reply = llm.chat([*messages, {"role": "user", "content": question}], **asked)
    with stopping(reply.cancel) as interrupted, Waiting() as waiting:
        for delta in reply:
            if delta.progress:
                waiting("reading the prompt", *delta.progress)
            if delta.text and not json:
                waiting.clear()
                write_text(delta.text)
    if json:
        write_json(
            {
                "text": reply.text,
                "usage": reply.usage,
                "timings": reply.timings,
                "finish_reason": reply.finish_reason,
            }
        )
    elif not reply.text.endswith("\n"):
        print(flush=True)
    if stats:
        say(stats_line(reply.usage, reply.timings))
    return INTERRUPTED if interrupted() else 0


def read_prompt(words: list[str] | None, attached: list[str]) -> str | None:
    """The prompt of the command line, files and stdin together; None asks for a conversation."""
    prompt, piped = " ".join(words or []), ""
    if not sys.stdin.isatty():
        piped = sys.stdin.read().strip("\n")
        if not (prompt or piped or attached):
            raise BadRequest("There is no prompt.", 'Give one: localllm run smollm2 "Hello"')
    elif not prompt:
        return None
    return "\n\n".join(filter(None, [prompt, *attached, piped]))


@with_sampling
def chat(
    model: Annotated[
        str | None,
        typer.Argument(help="A model; else the last one.", autocompletion=model_names),
    ] = None,
    system: System = "",
    max_tokens: MaxTokens = None,
    context: Context = None,
    threads: Threads = None,
    device: Device = "auto",
    kv_type: KVType = "f16",
    gpu_layers: GpuLayers = "auto",
    local: Local = False,
    sampling: dict[str, Any] | None = None,
) -> None:
    """Chat full screen: conversations, branches, settings."""
    from localllm.tui.app import run as run_app

    if not streams.on_a_terminal():
        hint = "`localllm run` answers through pipes, too."
        raise BadRequest("A chat on a full screen needs a terminal.", hint)
    open_llm = opener(opening(context, threads, device, kv_type, gpu_layers), local)
    run_app(open_llm, model, system, dict(sampling or {}, max_tokens=max_tokens))


COMMANDS = {"run": run, "chat": chat}
