"""list, show and fit: what models there are, what they are, and whether they fit."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from localllm import catalog, store
from localllm.cli.options import Context, Json, KVType, Model
from localllm.cli.printing import say, write_json, write_pairs, write_table, write_text
from localllm.sources.choose import quant
from localllm.units import size

PANEL = "Models"


def list_models(
    all: Annotated[bool, typer.Option("--all", "-a", help="Also those to be pulled.")] = False,
    json: Json = False,
) -> None:
    """List the installed models."""
    models = [installed(model) for model in store.installed()]
    here = {model["name"] for model in models}
    entries = [entry for name, entry in catalog.entries().items() if name not in here]
    models += [known(entry) for entry in entries if all or entry.alias]
    if json:
        write_json(models)
        return
    rows = [
        (m["name"], size(m["size"]) if m["size"] else "-", m["quantization"] or "-", state(m))
        for m in models
    ]
    write_table(("name", "size", "quant", "about"), rows)
    if not here:
        say(f"Nothing is installed. `localllm pull {catalog.DEFAULT}` fetches a small model.")


def installed(model: store.Installed) -> dict[str, Any]:
    """An installed model as JSON."""
    return {
        "name": model.name,
        "path": str(model.path),
        "size": model.size,
        "quantization": quant(model.path.name),
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
        "quantization": quant(entry.file or ""),
        "description": entry.description,
        "license": entry.license,
        "capabilities": list(entry.capabilities),
        "alias": entry.alias,
        "installed": False,
    }


def state(model: dict[str, Any]) -> str:
    """What the list says of a model."""
    if "description" in model:
        return f"means {model['alias']}" if model["alias"] else f"to pull · {model['description']}"
    if not model["installed"]:
        return "its files have gone"
    place = f"in place · {model['path']}"
    return place if model["in_place"] else f"pulled {model['added'][:10]}"


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
        write_pairs(for_people(about))
        print()
        tensors = about["tensors"].items()
        rows = [(k, t["count"], f"{t['parameters']:,}", size(t["size"])) for k, t in tensors]
        write_table(("type", "tensors", "parameters", "size"), rows)


def for_people(about: dict[str, Any]) -> dict[str, str | None]:
    """What `show` prints above the table of tensors."""
    shown = {"name": about["name"], "path": about["path"], "size": size(about["size"])}
    for key, value in about.items():
        if value == 0 or key in shown or key in ("template", "files", "tensors"):
            continue
        if isinstance(value, list):
            value = ", ".join(value)
        shown[key.replace("_", " ")] = f"{value:,}" if isinstance(value, int) else value or None
    template = about["template"]
    shown["template"] = f"{len(template):,} characters; --template prints it" if template else None
    return shown


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


COMMANDS = {"list": list_models, "show": show, "fit": fit}
