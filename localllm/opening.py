"""What opening a model takes: text out of its metadata, a memory plan, weights."""

import warnings
from collections import ChainMap
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from localllm import machine, models
from localllm.backends.torch.present import choose
from localllm.batch import LOADING, Model
from localllm.errors import BadRequest, LocalLLMError
from localllm.fit import Fit, demand, fit
from localllm.gguf import GGUF
from localllm.machinecode import keep
from localllm.sampling import Sampling
from localllm.text.template import ChatTemplate
from localllm.text.tokenizer import Tokenizer

ROWS = 512  # tokens of a prompt that one forward pass takes
Progress = Callable[[str, int, int], None]  # stage, done, total
Text = tuple[Tokenizer, ChatTemplate | None]

SAMPLE = """The harbour was quiet that morning. "Have you seen the ferry?" asked Mrs. Lind, who \
sold bread on the quay; nobody answered her at first. In 1998, about 45% of the town's 12,300 \
people worked at sea - today it is fewer than 7 in 100.

def mean(values: list[float]) -> float:
    if not values:
        raise ValueError("no values")
    return sum(values) / len(values)  # O(n)

1. Wash 250 g of rice. 2. Boil it for 12 minutes. Ist das richtig? Oui, merci!
"""  # about 130 tokens of this and that, from which int8 pages learn what K looks like

RECOMMENDED = {  # what a file may recommend under general.sampling -> the knob
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "xtc_probability": "xtc_probability",
    "xtc_threshold": "xtc_threshold",
    "penalty_repeat": "repeat_penalty",
    "penalty_last_n": "repeat_last_n",
    "mirostat": "mirostat",
    "mirostat_tau": "mirostat_tau",
    "mirostat_eta": "mirostat_eta",
}


def pulling(name: str, progress: Progress | None) -> Callable[[int, int], None] | None:
    """The progress of a download, as a stage of opening."""
    return progress and (lambda done, total: progress(f"pulling {name}", done, total))


def with_template(metadata: Mapping[str, Any], template: str | None) -> Mapping[str, Any]:
    """The metadata, with the template that the user's entry puts in place of the file's."""
    if template is None:
        return metadata
    return ChainMap({"tokenizer.chat_template": template}, metadata)  # type: ignore[arg-type]


def read_text(metadata: Mapping[str, Any]) -> Text | LocalLLMError:
    """The file's tokenizer and template; the error when it has none that we can use.

    An error is kept rather than raised, for logits need no text.
    """
    try:
        tokenizer = Tokenizer.from_gguf(metadata)
        return tokenizer, ChatTemplate.from_metadata(metadata, tokenizer)
    except LocalLLMError as error:
        return error


def beside(start: Callable[[], Any], progress: Progress | None) -> Progress:
    """The progress of a load, that calls `start` when weights are read: until then everything
    is Python, and two threads of that would wait for each other's lock."""

    def told(stage: str, done: int, total: int) -> None:
        if stage == LOADING:
            start()
        if progress:
            progress(stage, done, total)

    return told


def plan(gguf: GGUF, context: int | None, kv_type: str) -> Fit:
    """What the model would take of the memory that is free now."""
    trained = gguf.get(".context_length", int)
    footprint = models.estimate(gguf, context=context, kv_type=kv_type)
    return fit(footprint, trained, context, machine.available_memory())


def load(
    gguf: GGUF,
    name: str,
    *,
    context: int | None,
    threads: int | None,
    device: str,
    prefill_chunk: int | None,
    kv_type: str,
    gpu_layers: int | str,
    text: Callable[[], Future],
    progress: Progress | None,
) -> Model:
    """The model. TooLarge before anything is read if it does not fit.

    text: starts `read_text` if nobody has; where reading the weights waits for no disk, the model
    is there when that is done. What fits on a GPU its own backend knows.
    """
    for what, value in (("context", context), ("threads", threads), ("chunk", prefill_chunk)):
        if value is not None and value < 1:
            raise BadRequest(f"The {what} is {value}; it must be at least 1.")
    if threads is not None and threads > machine.MOST_THREADS:
        raise BadRequest(f"A model takes {machine.MOST_THREADS} threads at most, not {threads}.")
    pages = None
    if gpu_layers == 0 or choose(device) == "cpu":
        planned = demand(name, plan(gguf, context, kv_type))
        context, pages = planned.context, planned.pool
    keep()
    return models.load(
        gguf,
        device=device,
        threads=threads or machine.threads().count,
        context=context,
        kv_type=kv_type,
        max_rows=prefill_chunk or ROWS,
        pages=pages,
        gpu_layers=gpu_layers,
        sample=sample_of(text),
        progress=beside(text, progress),
        until=text if gguf.in_memory() else None,
    )


def sample_of(text: Callable[[], Future]) -> Callable[[], list[int]]:
    """Ids of the sample, none without a tokenizer; `text` starts `read_text` if nobody has."""

    def ids() -> list[int]:
        read = text().result()
        if isinstance(read, LocalLLMError):
            return []
        tokenizer = read[0]
        return tokenizer.encode(SAMPLE, bos=bool(tokenizer.add_bos))

    return ids


def recommended(metadata: Mapping[str, Any], catalog: Mapping[str, Any]) -> Sampling:
    """The sampling that the catalog entry, else the file, else llama.cpp recommends."""
    values = {
        knob: metadata[f"general.sampling.{key}"]
        for key, knob in RECOMMENDED.items()
        if f"general.sampling.{key}" in metadata
    }
    try:
        return Sampling().changed(values | dict(catalog))
    except BadRequest as error:
        warnings.warn(f"The recommended sampling is not used: {error.message}", stacklevel=2)
        return Sampling()
