"""The block formats localllm runs: one file each, found by its name in lower case."""

import functools
import importlib
import pkgutil

from quant.format import Format


@functools.cache
def supported() -> tuple[str, ...]:
    """The names of the formats there is a file for."""
    return tuple(sorted(module.name.upper() for module in pkgutil.iter_modules(__path__)))


def format_of(name: str) -> Format:
    """The format of that ggml name; KeyError when there is no file for it."""
    if name not in supported():
        raise KeyError(name)
    return importlib.import_module(f"{__name__}.{name.lower()}").FORMAT
