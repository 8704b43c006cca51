"""serve, ps and stop: models for editors, agents and other programs."""

import os
import stat
from pathlib import Path
from typing import Annotated, Any

import typer

from localllm.cli.options import Context, Device, GpuLayers, Json, KVType, Threads, opening
from localllm.cli.printing import say, write_json, write_table
from localllm.engine.pace import STRETCH
from localllm.errors import BadRequest, NotFound, Unavailable

PANEL = "Server"
PORT = 11435


def serve(
    models: Annotated[list[str] | None, typer.Argument(help="Models to load and keep.")] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: a free one.")] = PORT,
    api_key: Annotated[
        str | None,
        typer.Option(
            "--api-key", envvar="LOCALLLM_API_KEY", help="The key that clients must show."
        ),
    ] = None,
    api_key_file: Annotated[
        Path | None, typer.Option("--api-key-file", help="A file that holds the key.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Let other machines in without a key.")
    ] = False,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A further name this server goes by.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option(help="A web page's origin that may call.")
    ] = None,
    keep_alive: Annotated[
        float, typer.Option(min=0, help="Seconds until an idle model that was asked for goes.")
    ] = 300.0,
    memory: Annotated[
        float | None, typer.Option(min=0.01, help="GB that all models may take together.")
    ] = None,
    step_tokens: Annotated[
        int | None,
        typer.Option(
            min=1, help="Tokens a step computes: fewer, and prompts disturb answers less."
        ),
    ] = None,
    stretch: Annotated[
        float,
        typer.Option(
            min=0, help="How much longer than usual a step with a part of a prompt may take."
        ),
    ] = STRETCH,
    drafts: Annotated[
        bool,
        typer.Option(help="Guess at tokens that were said before: the same answers, sooner."),
    ] = True,
    log_prompts: Annotated[
        bool, typer.Option("--log-prompts", help="Log what is asked and answered, too.")
    ] = False,
    context: Context = None,
    threads: Threads = None,
    device: Device = "auto",
    kv_type: KVType = "f16",
    gpu_layers: GpuLayers = "auto",
) -> None:
    """Serve models on localhost: OpenAI's API and llama-server's."""
    from localllm.server.app import serve as run

    key = read_key(api_key_file) if api_key_file else api_key
    options = opening(context, threads, device, kv_type, gpu_layers)
    options |= {"budget": step_tokens, "stretch": stretch, "drafts": drafts}
    run(
        tuple(models or ()), host, port, key, insecure, options=options,
        hosts=tuple(allow_host or ()), origins=tuple(allow_origin or ()), keep_alive=keep_alive,
        memory=int(memory * 1e9) if memory else None, log_prompts=log_prompts,
        ready=lambda url: say(f"Serving at {url}; Ctrl-C or `localllm stop` ends it."),
    )  # fmt: skip


def read_key(file: Path) -> str:
    """The key that a file holds, which nobody else may read."""
    try:
        if os.name != "nt" and file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise BadRequest(f"Others can read {file}.", f"chmod 600 {file} keeps the key yours.")
        key = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise NotFound(f"{file} cannot be read: {error}") from None
    if not key:
        raise NotFound(f"{file} holds no key.")
    return key


def ps(json: Json = False) -> None:
    """Show this user's servers and the models in them."""
    from localllm.server import note

    found: list[dict[str, Any]] = []
    for server in note.find_servers():
        try:
            found.append({"url": server.url, **note.status(server)})
        except Unavailable:
            continue  # it ended between proof and question
    if json:
        write_json(found)
        return
    if not found:
        say("No server of yours is running; `localllm serve MODEL` starts one.")
        return
    rows = [
        (one["url"], one["pid"], model_name(model), one["running"], one["waiting"])
        for one in found
        for model in one["models"] or [""]
    ]
    write_table(("server", "process", "model", "running", "waiting"), rows)


def model_name(model: Any) -> str:
    """A model's name out of what a server says of it."""
    return str(model.get("name", "")) if isinstance(model, dict) else str(model)


def stop(json: Json = False) -> None:
    """Ask this user's servers to end once their requests are done."""
    from localllm.server import note

    servers = note.find_servers()
    if not servers:
        raise NotFound("There is no server of yours.", "localllm serve starts one.")
    for server in servers:
        note.stop(server)
        if not json:
            say(f"Asked {server.url} to stop.")
    if json:
        write_json([server.url for server in servers])


COMMANDS = {"serve": serve, "ps": ps, "stop": stop}
