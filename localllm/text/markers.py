"""Special tokens in a text: finding them, and telling which of them end an answer or frame a gap.

The texts are those of the model families, as llama.cpp collects them in `llama-vocab.cpp`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

ENDS = frozenset(
    ("<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>")
    + ("<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]")
    + ("<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "[e~[")
    + ("<｜end▁of▁sentence｜>",)
)
FIM = {  # role in filling a gap: how the families spell it
    "pre": ("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>")
    + ("<|code_prefix|>", "<|prefix|>"),
    "suf": ("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>")
    + ("<|code_suffix|>", "<|suffix|>"),
    "mid": ("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>")
    + ("<|code_middle|>", "<|middle|>"),
    "pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>"),
    "rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "sep": ("<|file_sep|>",),
}
FIM_ENDS = ("pad", "rep", "sep")  # a model that writes one of these has filled the gap
SYNTAX = frozenset(  # control tokens that are part of an answer, for text.parts to read
    ("<think>", "</think>", "[THINK]", "[/THINK]", "<tool_call>", "</tool_call>", "[TOOL_CALLS]")
    + ("[ARGS]", "<|python_tag|>", "<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")
)
_TURNS = ("<start_of_turn>", "<end_of_turn>", "<bos>", "<eos>", "<unk>", "<pad>")
_FRAMED = re.compile(r"<[|｜].*[|｜]>|<\|.+|.+\|>|\[/?[A-Z_]{3,}\]", re.DOTALL)


def is_framed(text: str) -> bool:
    """Whether nobody writes this by accident, so that its meaning holds whatever the file says."""
    return text == "<end_of_turn>" or _FRAMED.fullmatch(text) is not None


def is_unmistakable(text: str) -> bool:
    """Whether an added token of this text frames turns, so that only a template may write it."""
    return text in _TURNS or is_framed(text)


class Finder:
    """Finds any of many texts from left to right, the longest first, in time linear in the text."""

    def __init__(self, ids: Mapping[str, int]):
        self._ids = ids
        lengths: dict[str, set[int]] = {}
        for text in ids:
            lengths.setdefault(text[:2], set()).add(len(text))
        for key in lengths:
            if len(key) == 2 and key[0] in ids:
                lengths[key].add(1)
        self._lengths = {key: sorted(each, reverse=True) for key, each in lengths.items()}
        keys = sorted(lengths, key=lambda key: (-len(key), key))
        self._start = re.compile("|".join(map(re.escape, keys)), re.DOTALL) if keys else None

    def find(
        self, text: str, allowed: Callable[[int, int, int], bool] | None = None
    ) -> Iterator[tuple[int, int, int]]:
        """(start, end, id) of each one found, never overlapping; `allowed` may refuse one."""
        at = 0
        while self._start is not None and (match := self._start.search(text, at)) is not None:
            start = match.start()
            at = start + 1
            for length in self._lengths[match.group()]:
                found = self._ids.get(text[start : start + length])
                if found is not None and (not allowed or allowed(start, start + length, found)):
                    at = start + length
                    yield start, at, found
                    break

    def starts(self, text: str) -> list[int]:
        """Every place where any of the texts begins, overlapping ones too."""
        places, at = [], 0
        while self._start is not None and (match := self._start.search(text, at)) is not None:
            start, at = match.start(), match.start() + 1
            if any(text[start : start + n] in self._ids for n in self._lengths[match.group()]):
                places.append(start)
        return places


def fim_tokens(id_of: Callable[[str], int | None], named: Mapping[str, int]) -> dict[str, int]:
    """Role to id: what the file names itself, else what a family's text says."""
    found = {}
    for role, spellings in FIM.items():
        ids = (i for i in map(id_of, spellings) if i is not None)
        token = named.get(role, next(ids, None))
        if token is not None:
            found[role] = token
    return found


def end_texts(texts: Iterable[str]) -> set[str]:
    """The family texts among `texts` that end an answer."""
    ends = set(ENDS.intersection(texts))
    harmony = ends >= {"<|return|>", "<|call|>"}
    solar = "<|flush|>" in ends and not ends.isdisjoint({"<|call|>", "<|calls|>"})
    if harmony or solar:
        ends.discard("<|end|>")  # there it ends a message, not the answer
    if "<|tool_response>" in ends:
        ends.discard("</s>")
    return ends
