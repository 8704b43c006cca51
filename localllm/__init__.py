"""localllm: run quantized language models on your own machine."""

from typing import Any

__version__ = "0.1.0"
__all__ = ["LLM", "Delta", "Reply", "Sampling"]

HOMES = {
    "LLM": "localllm.llm",
    "Delta": "localllm.reply",
    "Reply": "localllm.reply",
    "Sampling": "localllm.sampling",
}


def __getattr__(name: str) -> Any:
    """The public names, each loaded when it is first used: they bring Numba with them."""
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(HOMES[name]), name)
