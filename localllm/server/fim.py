"""Fill in the middle: text before and after a gap -> the ids that ask the model to fill it."""

from collections.abc import Sequence
from typing import Any

from localllm.errors import BadRequest


def prompt(
    llm: Any, before: str, after: str, extra: Sequence[dict[str, str]] = (), most: int | None = None
) -> list[int]:
    """Ids in the order that code models learn: other files, the text before, the text after.

    As llama-server's /infill: (file separator, file name, text)*, then prefix, suffix, middle.
    most: keep no more than this of the nearest text, so that what fills the gap still fits.
    Raises BadRequest for a model without the tokens for it.
    """
    fim = llm.tokenizer.fim
    if not {"pre", "suf", "mid"} <= fim.keys():
        raise BadRequest(f"{llm.name} was not made to fill in the middle.")
    head, tail = _ids(llm, before), _ids(llm, after)
    if most is not None:
        half = max(1, most // 2)
        tail = tail[: max(half, most - len(head))]
        head = head[-max(1, most - len(tail)) :]
    ids = [fim["pre"], *head, fim["suf"], *tail, fim["mid"]]
    context = _context(llm, extra)
    room = llm.context - len(ids) if most is None else most - len(head) - len(tail)
    ids = context[-room:] + ids if context and room > 0 else ids
    tokenizer = llm.tokenizer
    return [tokenizer.bos, *ids] if tokenizer.add_bos else ids


def _context(llm: Any, extra: Sequence[dict[str, str]]) -> list[int]:
    """The other files that an editor sends along."""
    fim, ids = llm.tokenizer.fim, []
    if extra and "rep" in fim:
        ids += [fim["rep"], *_ids(llm, "project\n")]
    for file in extra:
        name, text = file.get("filename", "file"), file.get("text", "")
        mark = [fim["sep"], *_ids(llm, name + "\n")] if "sep" in fim else _ids(llm, f"\n# {name}\n")
        ids += mark + _ids(llm, text)
    return ids


def _ids(llm: Any, text: str) -> list[int]:
    return llm.tokenize(text, special=False)
