"""Which of a repository's GGUF files a name means: by file, by quantization, or the usual one."""

import re
from dataclasses import dataclass

from localllm.errors import NotFound

# what most people run, best compromise first; the rest follows by falling quality
USUAL = (
    *("Q4_K_M", "Q4_K_S", "Q4_0", "Q4_1", "IQ4_XS", "IQ4_NL", "MXFP4", "MXFP4_MOE"),
    *("Q5_K_M", "Q5_K_S", "Q5_0", "Q5_1", "Q6_K", "Q8_0", "Q3_K_M", "Q3_K_L", "Q3_K_S", "Q2_K"),
    *("BF16", "F16", "F32"),
)
_QUANT = re.compile(
    r"(?<![A-Z0-9])((?:UD-)?(?:I?Q\d_[A-Z0-9_]+|TQ\d_0|MXFP4(?:_MOE)?|BF16|F16|F32))(?=[-./]|$)"
)
_SHARD = re.compile(r"-\d{5}-of-(\d{5})(?=\.gguf$)", re.IGNORECASE)
_ASIDE = re.compile(r"mmproj|imatrix|/mtp", re.IGNORECASE)


@dataclass(frozen=True)
class Choice:
    """Files in order, all of one model, and why these."""

    files: tuple[str, ...]
    why: str


def quant(path: str) -> str:
    """The quantization in a file's name, in capitals; "" where there is none."""
    found = _QUANT.findall(_SHARD.sub("", path).upper().removesuffix(".GGUF"))
    return found[-1] if found else ""


def choose(paths: list[str], wanted: str = "") -> Choice:
    """The files `wanted` (a file, a quantization, or "" for the usual one) means.

    Raises NotFound, saying what there is.
    """
    models = _models(paths)
    if not models:
        raise NotFound("There is no GGUF file.", "localllm runs models in GGUF files.")
    if wanted.lower().endswith(".gguf"):
        for files in models.values():
            if any(wanted in (file, file.rpartition("/")[2]) for file in files):
                return Choice(tuple(files), "the file asked for")
        raise NotFound(f"There is no file {wanted}.", f"There are: {_listed(models)}.")
    by_quant: dict[str, list[str]] = {}
    for key in sorted(models, key=lambda key: (len(key), key), reverse=True):
        by_quant[quant(key)] = models[key]  # of two, the one with the shorter name
    if wanted:
        if wanted.upper() in by_quant:
            return Choice(tuple(by_quant[wanted.upper()]), f"{wanted.upper()}, as asked for")
        raise NotFound(f"There is no {wanted}.", f"There are: {_listed(models)}.")
    if len(models) == 1:
        return Choice(tuple(next(iter(models.values()))), "the only GGUF file there")
    for name in USUAL:
        if name in by_quant:
            return Choice(tuple(by_quant[name]), f"{name}, the usual choice of {len(models)}")
    raise NotFound("Which of its files is meant?", f"There are: {_listed(models)}.")


def _models(paths: list[str]) -> dict[str, list[str]]:
    """The files of each whole model, in order, by the name without shard numbers."""
    models: dict[str, list[str]] = {}
    for path in sorted(paths):
        if path.lower().endswith(".gguf") and not _ASIDE.search(path):
            models.setdefault(_SHARD.sub("", path), []).append(path)
    return {key: files for key, files in models.items() if _whole(files)}


def _whole(files: list[str]) -> bool:
    match = _SHARD.search(files[0])
    return len(files) == (int(match[1]) if match else 1)


def _listed(models: dict[str, list[str]]) -> str:
    shown = sorted({quant(key) or key for key in models})
    return ", ".join(shown[:20]) + (", ..." if len(shown) > 20 else "")
