"""tokenize, embed and perplexity: what a model makes of a text."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from localllm.cli.interrupt import stopping
from localllm.cli.options import Context, Device, Json, KVType, Model, Threads
from localllm.cli.printing import say, write_json, write_table
from localllm.errors import NotFound
from localllm.tui.waiting import Waiting

PANEL = "Texts"


def tokenize(
    model: Model,
    text: Annotated[str | None, typer.Argument(help="The text; else --file, else stdin.")] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="A text file.")] = None,
    ids: Annotated[bool, typer.Option("--ids", help="Print a JSON list of ids.")] = False,
    bos: Annotated[bool, typer.Option("--bos", help="Put BOS in front.")] = False,
    plain: Annotated[
        bool, typer.Option("--plain", help="Special tokens in the text are plain text.")
    ] = False,
) -> None:
    """Show how a model cuts a text into tokens."""
    from localllm.llm import LLM

    content = text if text is not None else read(file)
    with LLM.open(model, vocab_only=True) as llm:
        tokens = llm.tokenize(content, special=not plain, bos=bos)
        if ids:
            write_json(tokens)
            return
        names = {id: name for name, id in llm.tokenizer.special_tokens.items()}
        rows = [(id, names.get(id) or ascii_bytes(llm.tokenizer.token_bytes(id))) for id in tokens]
        write_table(("id", "text"), rows)
        say(f"{len(tokens)} tokens")


def ascii_bytes(data: bytes) -> str:
    """Bytes so that each shows: text as it is, the rest as escapes."""
    return repr(data.decode("utf-8", "backslashreplace"))


def embed(
    model: Model,
    texts: Annotated[
        list[str] | None, typer.Argument(help="The texts; else the lines of stdin.")
    ] = None,
    pooling: Annotated[
        str, typer.Option(help="mean, or last: which hidden rows make the vector.")
    ] = "",
    dimensions: Annotated[
        int | None, typer.Option(min=1, help="Keep so many numbers, scaled to length 1 again.")
    ] = None,
    json: Json = False,
    context: Context = None,
    threads: Threads = None,
    device: Device = "auto",
) -> None:
    """Turn texts into vectors: a line of numbers each."""
    from localllm.llm import LLM

    lines = texts or [line for line in sys.stdin.read().splitlines() if line]
    with Waiting() as waiting:
        llm = LLM.open(model, context=context, threads=threads, device=device, progress=waiting)
        with llm:
            made = llm.embedding(lines, pooling=pooling, dimensions=dimensions)
            with stopping(made.cancel):
                for delta in made:
                    waiting("reading", *(delta.progress or (0, 0)))
            vectors, usage = made.vectors, made.usage
    if json:
        write_json({"model": llm.name, "embeddings": vectors.tolist(), "usage": usage})
    else:
        print("\n".join(" ".join(f"{x:.7g}" for x in vector) for vector in vectors))


def perplexity(
    model: Model,
    file: Annotated[Path, typer.Argument(help="The text file.")],
    chunk: Annotated[int, typer.Option("--ctx", "-c", help="Tokens in a chunk.")] = 512,
    chunks: Annotated[int | None, typer.Option(min=1, help="Take only the first ones.")] = None,
    json: Json = False,
    threads: Threads = None,
    device: Device = "auto",
    kv_type: KVType = "f16",
) -> None:
    """How surprised a model is by a text (llama-perplexity's protocol)."""
    from localllm.llm import LLM
    from localllm.perplexity import measure

    content = read(file)
    with Waiting() as waiting:
        llm = LLM.open(
            model, context=chunk, threads=threads, device=device, kv_type=kv_type, progress=waiting
        )
        with llm:
            result = measure(llm, content, chunk, chunks, waiting)
    if json:
        write_json(asdict(result))
    else:
        print(f"perplexity {result.perplexity:.4f}, {result.tokens} tokens, {result.chunks} chunks")


def read(file: Path | None) -> str:
    """The text of a file, or of stdin when there is none."""
    if file is None:
        return sys.stdin.read()
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotFound(f"{file} cannot be read as text: {error}") from None


COMMANDS = {"tokenize": tokenize, "embed": embed, "perplexity": perplexity}
