"""Options that several commands share; those for sampling are made from Sampling's fields."""

import functools
import glob
import inspect
from collections.abc import Callable
from dataclasses import Field, fields
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.models import OptionInfo

from localllm.errors import BadRequest
from localllm.sampling import ORDER, Sampling

PANEL = "Sampling (by default what the model recommends, else the value in brackets)"

METAVARS = {bool: "", int: "N", float: "X", str: "TEXT", Path: "FILE"}


def model_names(incomplete: str) -> list[str]:
    """What a shell offers for a model: names there are to type, and files of that beginning."""
    from localllm import catalog

    if incomplete.startswith((".", "/", "~")):
        path = Path(incomplete).expanduser()
        folder, start = (path, "") if incomplete.endswith("/") else (path.parent, path.name)
        found = sorted(folder.glob(f"{glob.escape(start)}*"))
        return [f"{p}/" if p.is_dir() else str(p) for p in found if is_offered(p)]
    return [name for name in catalog.all_names() if name.startswith(incomplete)]


def is_offered(path: Path) -> bool:
    return path.suffix == ".gguf" or (path.is_dir() and not path.name.startswith("."))


def installed_names(incomplete: str) -> list[str]:
    """What a shell offers where only a model that is here will do."""
    from localllm import store

    return [model.name for model in store.installed() if model.name.startswith(incomplete)]


Model = Annotated[
    str,
    typer.Argument(
        help="A catalog name, a path to a .gguf, hf:user/repo[:quant] or pypi:...",
        autocompletion=model_names,
    ),
]
Context = Annotated[
    int | None,
    typer.Option("--ctx", "-c", min=1, help="Tokens of context, at most; default: what fits."),
]
Threads = Annotated[
    int | None, typer.Option("--threads", "-t", min=1, help="Threads; default: physical cores.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, mps or torch-cpu.")]
GpuLayers = Annotated[
    str, typer.Option("--gpu-layers", help="Layers on the GPU: a number, or auto for what fits.")
]
KVType = Annotated[
    str, typer.Option("--kv-type", help="Type of the KV cache: f16, or q8_0 in half the memory.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def opening(
    context: int | None, threads: int | None, device: str, kv_type: str, gpu_layers: str
) -> dict[str, Any]:
    """The keyword arguments of LLM.open that these options stand for. Raises BadRequest."""
    if gpu_layers != "auto" and not gpu_layers.isdecimal():
        raise BadRequest(f"--gpu-layers is {gpu_layers!r}; it must be a number or auto.")
    return {
        "context": context,
        "threads": threads,
        "device": device,
        "kv_type": kv_type,
        "gpu_layers": gpu_layers if gpu_layers == "auto" else int(gpu_layers),
    }


def name_values(function: Callable[..., Any]) -> None:
    """Have --help show N, X, TEXT or FILE behind an option, and nothing behind a switch."""
    for parameter in inspect.signature(function).parameters.values():
        kind, *notes = get_args(parameter.annotation) or [None]
        for note in notes:
            if isinstance(note, OptionInfo) and note.metavar is None:
                note.metavar = METAVARS.get(_one(kind))


def _one(kind: Any) -> Any:
    """The type of one value: int of `int | None`, str of `list[str]`."""
    parts = [part for part in get_args(kind) if part is not type(None)]
    return _one(parts[0]) if parts else kind


def with_sampling(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command an option for each sampling knob; it gets those used as `sampling`, a dict."""
    signature = inspect.signature(function)
    own = [p for p in signature.parameters.values() if p.name != "sampling"]
    kinds = get_type_hints(Sampling)
    knobs = [_parameter(item, kinds[item.name]) for item in fields(Sampling)]

    @functools.wraps(function)
    def call(**values: Any) -> Any:
        used = {knob.name: values.pop(knob.name) for knob in knobs}
        chosen = {name: _read(name, value) for name, value in used.items() if value is not None}
        Sampling().changed(chosen)  # a wrong value is told before a model is loaded for it
        return function(**values, sampling=chosen)

    parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in [*own, *knobs]]
    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in parameters}
    return call


def _parameter(item: Field, kind: Any) -> inspect.Parameter:
    """One knob as an option. Texts stand for what a command line cannot hold: see _read."""
    about = item.metadata
    name = "--" + item.name.replace("_", "-")
    also = ["--" + other.replace("_", "-") for other in about["also"]]
    default = "" if item.default is None or kind is bool else f"{item.default}"
    if item.name in ("logit_bias", "dry_sequence_breakers"):
        kind, default = list[str], ""
    elif item.name == "samplers":
        kind, default = str, ";".join(ORDER)
    shown = f"{about['help']} ({default})" if default else about["help"]
    option = typer.Option(name, *also, help=shown, rich_help_panel=PANEL)
    optional = Annotated[kind | None, option]  # type: ignore[valid-type]
    return inspect.Parameter(
        item.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=optional
    )


def _read(name: str, value: Any) -> Any:
    """A knob's value from what was typed: ID=BIAS pairs are a mapping."""
    if name != "logit_bias":
        return value
    try:
        pairs = [text.split("=", 1) for text in value]
        return {int(id): float(bias) for id, bias in pairs}
    except ValueError:
        raise BadRequest("--logit-bias wants ID=BIAS, such as 15=-inf or 15=2.5.") from None
