"""pull, list, show, rm, cp, import, verify, prune and fit: the models on this machine."""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from localllm import catalog, store
from localllm.cli.options import Context, Json, KVType, Model
from localllm.cli.printing import say, write_json, write_pairs, write_table, write_text
from localllm.cli.waiting import Waiting
from localllm.errors import LocalLLMError, NotFound
from localllm.units import size

PANEL = "Models"

Name = Annotated[str, typer.Argument(help="An installed model.")]


def pull(
    model: Model,
    source: Annotated[
        Path | None, typer.Option("--from", help="Take it from this file or folder instead.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Once more, though it is here.")] = False,
) -> None:
    """Fetch a model; goes on where it stopped, and checks what came."""
    with Waiting() as waiting:
        found = catalog.pull(
            model,
            progress=partial(waiting, f"pulling {model}"),
            source=source,
            force=force,
        )
    say(f"{found.name} is at {found.path}")


def list_models(
    all: Annotated[bool, typer.Option("--all", "-a", help="Also those to be pulled.")] = False,
    json: Json = False,
) -> None:
    """List the installed models."""
    models = [installed(model) for model in store.installed()]
    if all:
        here = {model["name"] for model in models}
        models += [known(entry) for name, entry in catalog.entries().items() if name not in here]
    if json:
        write_json(models)
        return
    rows = [(m["name"], size(m["size"]) if m["size"] else "-", state(m)) for m in models]
    write_table(("name", "size", "about"), rows)
    if not models:
        say(f"Nothing is installed. `localllm pull {catalog.DEFAULT}` fetches a small model.")


def installed(model: store.Installed) -> dict[str, Any]:
    """An installed model as JSON."""
    return {
        "name": model.name,
        "path": str(model.path),
        "size": model.size,
        "source": model.source,
        "added": model.added,
        "in_place": model.in_place,
        "installed": model.present,
    }


def known(entry: Any) -> dict[str, Any]:
    """An entry of the catalog as JSON."""
    return {
        "name": entry.name,
        "size": entry.size,
        "description": entry.description,
        "license": entry.license,
        "capabilities": list(entry.capabilities),
        "alias": entry.alias,
        "installed": False,
    }


def state(model: dict[str, Any]) -> str:
    """What the list says of a model."""
    if "description" in model:
        about = f"means {model['alias']}" if model["alias"] else model["description"]
        return f"not pulled · {about}"
    if not model["installed"]:
        return "its files have gone"
    return f"in place · {model['path']}" if model["in_place"] else f"since {model['added'][:10]}"


def show(
    model: Model,
    template: Annotated[bool, typer.Option("--template", help="Print the chat template.")] = False,
    json: Json = False,
) -> None:
    """Show what a model's file says of it."""
    found = catalog.resolve(model, pull=False)
    about = store.show(found.path) | {"name": found.name, "path": str(found.path)}
    entry = {key: value for key, value in asdict(found.entry).items() if value and key != "name"}
    if template:
        write_text(about["template"] or "")
    elif json:
        write_json(about | {"entry": entry})
    else:
        shown = {key: value for key, value in about.items() if key not in ("template", "files")}
        write_pairs({key: plain(value) for key, value in shown.items()})


def plain(value: Any) -> str:
    """A value of `show` in a line."""
    if isinstance(value, dict):
        return ", ".join(f"{kind} {size(about['size'])}" for kind, about in value.items())
    if isinstance(value, list):
        return ", ".join(value) or "-"
    return "-" if value is None else str(value)


def rm(names: Annotated[list[str], typer.Argument(help="Models or aliases.")]) -> None:
    """Delete models; those used in place are only forgotten."""
    for name in names:
        if catalog.remove_alias(name):
            say(f"{name} was only another name; it is gone.")
        else:
            say(f"{name} removed, {size(store.remove(name))} free again.")


def cp(model: Model, name: Annotated[str, typer.Argument(help="The further name.")]) -> None:
    """Give a model a further name."""
    catalog.copy(model, name)
    say(f"{name} now means {model}.")


def import_models(
    folder: Annotated[
        Path | None,
        typer.Argument(help="Ollama's, LM Studio's or any folder; else the usual ones."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list them.")] = False,
) -> None:
    """Use models that other programs brought, where they are."""
    from localllm.foreign import adopt, found

    models = found(folder)
    if not models:
        raise NotFound("No models of other programs were found.", "Name a folder to look in.")
    failed = False
    for model in models:
        if dry_run:
            print(f"{model.name}\t{model.path}")
            continue
        try:
            adopt(model)
            say(f"{model.name} ({model.origin}) is usable now.")
        except LocalLLMError as error:
            failed = True
            say(f"{model.name}: {error.message}")
    raise typer.Exit(int(failed))


def verify(
    names: Annotated[list[str] | None, typer.Argument(help="Models; else all.")] = None,
) -> None:
    """Read models again and compare them with their sha256."""
    failed = False
    for name in names or [model.name for model in store.installed()]:
        try:
            with Waiting() as waiting:
                store.verify(name, partial(waiting, f"reading {name}"))
            say(f"{name} is whole.")
        except LocalLLMError as error:
            failed = True
            say(f"{error.message} {error.hint}".rstrip())
    raise typer.Exit(int(failed))


def prune() -> None:
    """Delete half-done downloads and other leftovers."""
    gone = store.prune()
    for name, amount in gone:
        say(f"{name}, {size(amount)}")
    say(f"{size(sum(amount for _, amount in gone))} free again.")


def fit(model: Model, context: Context = None, kv_type: KVType = "f16", json: Json = False) -> None:
    """Say whether a model fits into the memory that is free, and with how much context."""
    from localllm.gguf import GGUF
    from localllm.opening import plan

    with GGUF.open(catalog.resolve(model, pull=False).path) as gguf:
        result = plan(gguf, context, kv_type)
    if json:
        write_json({"fits": result.fits, **asdict(result)})
    else:
        print(f"{model} {'fits' if result.fits else 'does not fit'}: {result}.")
        if result.largest and not result.fits:
            print(f"It would fit with --ctx {result.largest}.")
    raise typer.Exit(int(not result.fits))


COMMANDS = {
    "pull": pull,
    "list": list_models,
    "show": show,
    "rm": rm,
    "cp": cp,
    "import": import_models,
    "verify": verify,
    "prune": prune,
    "fit": fit,
}
