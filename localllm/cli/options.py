"""Options that several commands share; those for sampling are made from Sampling's fields."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import Field, fields
from typing import Annotated, Any, get_type_hints

import typer

from localllm.errors import BadRequest
from localllm.sampling import ORDER, Sampling

PANEL = "Sampling (by default what the model recommends, else the value in brackets)"

Model = Annotated[
    str, typer.Argument(help="A catalog name, a path to a .gguf, hf:user/repo[:quant] or pypi:...")
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
KVType = Annotated[str, typer.Option("--kv-type", help="Type of the KV cache.")]
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
