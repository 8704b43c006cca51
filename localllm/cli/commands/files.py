"""pull, rm, cp, import, verify and prune: what changes the models on this machine."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from localllm import catalog, store
from localllm.cli.options import Json, Model, installed_names
from localllm.cli.printing import say, write_json, write_table
from localllm.errors import LocalLLMError, NotFound
from localllm.tui.waiting import Waiting
from localllm.units import size

PANEL = "Models"

Names = Annotated[
    list[str], typer.Argument(help="Models or aliases.", autocompletion=installed_names)
]


def pull(
    model: Model,
    source: Annotated[
        Path | None, typer.Option("--from", help="Take it from this file or folder instead.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Once more, though it is here.")] = False,
    json: Json = False,
) -> None:
    """Fetch a model; goes on where it stopped, and checks what came."""
    with Waiting() as waiting:
        found = catalog.pull(
            model,
            progress=partial(waiting, f"pulling {model}"),
            source=source,
            force=force,
        )
    if json:
        write_json({"name": found.name, "path": str(found.path), "size": found.path.stat().st_size})
    else:
        say(f"{found.name} is at {found.path}")
        say(f"localllm run {found.name} talks to it.")


def rm(names: Names, json: Json = False) -> None:
    """Delete models; those used in place are only forgotten."""
    gone = []
    for name in names:
        alias = catalog.remove_alias(name)
        freed = 0 if alias else store.remove(name)
        gone.append({"name": name, "alias": alias, "freed": freed})
        if not json:
            say(f"{name} {'was only another name' if alias else f'removed, {size(freed)} free'}.")
    if json:
        write_json(gone)


def cp(
    model: Model,
    name: Annotated[str, typer.Argument(help="The further name.")],
    json: Json = False,
) -> None:
    """Give a model a further name."""
    catalog.copy(model, name)
    if json:
        write_json({"name": name, "alias": model})
    else:
        say(f"{name} now means {model}.")


def import_models(
    folder: Annotated[
        Path | None,
        typer.Argument(help="Ollama's, LM Studio's or any folder; else the usual ones."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list them.")] = False,
    json: Json = False,
) -> None:
    """Use models that other programs brought, where they are."""
    from localllm.foreign import found

    models = found(folder)
    if not models:
        raise NotFound("No models of other programs were found.", "Name a folder to look in.")
    results = [imported(model, dry_run) for model in models]
    if json:
        write_json(results)
    elif dry_run:
        write_table(
            ("name", "from", "path"), [(r["name"], r["origin"], r["path"]) for r in results]
        )
    for result in results if not (json or dry_run) else ():
        done = f" ({result['origin']}) is usable now."
        say(result["name"] + (f": {result['error']}" if result["error"] else done))
    raise typer.Exit(int(any(result["error"] for result in results)))


def imported(model: Any, dry_run: bool) -> dict[str, Any]:
    """A model of another program as JSON; made usable here unless it is only to be listed."""
    from localllm.foreign import adopt

    error = None
    if not dry_run:
        try:
            adopt(model)
        except LocalLLMError as failure:
            error = failure.message
    path = str(model.path)
    return {"name": model.name, "origin": model.origin, "path": path, "error": error}


def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Models; else all.", autocompletion=installed_names),
    ] = None,
    json: Json = False,
) -> None:
    """Read models again and compare them with their sha256."""
    results = []
    for name in names or [model.name for model in store.installed()]:
        error = None
        try:
            with Waiting() as waiting:
                store.verify(name, partial(waiting, f"reading {name}"))
        except LocalLLMError as failure:
            error = f"{failure.message} {failure.hint}".rstrip()
        results.append({"name": name, "whole": error is None, "error": error})
        if not json:
            say(error or f"{name} is whole.")
    if json:
        write_json(results)
    raise typer.Exit(int(any(result["error"] for result in results)))


def prune(json: Json = False) -> None:
    """Delete half-done downloads and other leftovers."""
    gone = store.prune()
    if json:
        write_json([{"name": name, "size": amount} for name, amount in gone])
        return
    for name, amount in gone:
        say(f"{name}, {size(amount)}")
    say(f"{size(sum(amount for _, amount in gone))} free again." if gone else "Nothing to delete.")


COMMANDS = {
    "pull": pull,
    "rm": rm,
    "cp": cp,
    "import": import_models,
    "verify": verify,
    "prune": prune,
}
