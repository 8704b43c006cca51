"""A checked body -> what to ask of an LLM: sampling knobs, limits, stops, biases, prompts."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from localllm.errors import BadRequest
from localllm.sampling import KNOWN, SPELLINGS, Sampling, knob_names
from localllm.server.endpoint import Call
from localllm.server.pump import PACE, Reply
from localllm.server.running import together
from localllm.server.schema import WrongField

FULL = 100  # OpenAI's biases go to this, which stands for a ban or a must
LETTERS = {  # llama.cpp's for --sampler-seq, which may stand in `samplers`, too
    "e": "penalties", "d": "dry", "s": "top_n_sigma", "k": "top_k", "y": "typ_p", "p": "top_p",
    "m": "min_p", "x": "xtc", "t": "temperature", "i": "infill",
}  # fmt: skip
KINDS = {f.name: f.type for f in dataclasses.fields(Sampling)}


def options(call: Call, llm: Any) -> dict[str, Any]:
    """The keyword arguments of LLM.submit that a body stands for, but for max_tokens and mask."""
    body = call.body
    return knobs(body, llm) | {
        "stop": _stops(body.get("stop", ())),
        "cache": body.get("cache_prompt", True),
        "client": client(call),
        "pace": PACE,
    }


def _stops(given: str | Sequence[str]) -> tuple[str, ...]:
    """One or several; llama-server passes over empty ones, and clients send them."""
    return tuple(stop for stop in ([given] if isinstance(given, str) else given) if stop)


def client(call: Call) -> str:
    """Whom a request is for, as far as fairness between clients goes."""
    return f"{call.record.client} {call.request.headers.get('user-agent', '')[:200]}"


def knobs(body: dict[str, Any], llm: Any) -> dict[str, Any]:
    """Sampling fields, under their own names. Where two names of one are given, the first wins."""
    chosen: dict[str, Any] = {}
    for name, knob in knob_names().items():
        if name in body and knob not in chosen:
            chosen[knob] = _plain(body[name], KINDS[knob])
    if "samplers" in chosen:
        chosen["samplers"] = _samplers(chosen["samplers"])
    if "logit_bias" in chosen:
        chosen["logit_bias"] = biases(chosen["logit_bias"], llm)
    return chosen


def most_tokens(body: dict[str, Any], *names: str) -> int | None:
    """The first of these limits that is there; -1 and none are no limit."""
    limit = next((body[name] for name in names if name in body), -1)
    return None if limit < 0 else int(limit)


def submit_all(
    call: Call, llm: Any, prompts: Sequence[Sequence[int]], answers: int, asked: dict[str, Any],
    mask: Callable[[], Any] = lambda: None,
) -> list[Reply]:  # fmt: skip
    """So many answers to each prompt, in order; a seed counts up from answer to answer."""
    if call.site.settings.log_prompts:
        call.record.miss = miss(llm, prompts[0])
    seed = asked.pop("seed", None)
    seed = None if seed == -1 else seed
    return together(
        [
            _asking(llm, ids, asked | {"seed": None if seed is None else seed + i}, mask)
            for ids, i in itertools.product(prompts, range(answers))
        ]
    )


def miss(llm: Any, ids: Sequence[int]) -> dict[str, Any]:
    """Where a prompt leaves the most similar one in the cache, and what stands there."""
    found = llm.worker.explain(list(ids))
    there, here = ([] if id is None else [id] for id in (found.known, found.given))
    before = llm.detokenize(ids[max(0, found.position - 8) : found.position], special=True)
    return {
        "position": found.position,
        "after": before,
        "cached": llm.detokenize(there, special=True),
        "asked": llm.detokenize(here, special=True),
    }


def _asking(
    llm: Any, ids: Sequence[int], asked: dict[str, Any], mask: Callable[[], Any]
) -> Callable[[], Reply]:
    return lambda: llm.submit(ids, mask=mask(), **asked)


def biases(given: Any, llm: Any) -> dict[int, float]:
    """Token id -> bias. A key that is not a number is a text, and each of its tokens gets it."""
    pairs = given.items() if isinstance(given, dict) else given
    found: dict[int, float] = {}
    for key, bias in pairs:
        for id in _ids(key, llm):
            if not 0 <= id < llm.tokenizer.vocab_size:
                raise WrongField("logit_bias", f"There is no token {id}.")
            found[id] = _bias(bias)
    return found


def _bias(value: Any) -> float:
    if value is False:
        return float("-inf")
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > FULL:
        raise WrongField("logit_bias", f"A bias is false or a number from -{FULL} to {FULL}.")
    return float("-inf") if value == -FULL else float(value)


def _ids(key: Any, llm: Any) -> list[int]:
    if isinstance(key, int) and not isinstance(key, bool):
        return [key]
    if not isinstance(key, str) or len(key) > 256:
        raise WrongField("logit_bias", "A key is a token's id, or a short text.")
    if key.isascii() and key.isdigit():
        return [int(key)] if len(key) < 10 else [-1]
    return llm.tokenize(key, special=False)


def _samplers(names: Any) -> tuple[str, ...]:
    """Those that there are, once each; llama-server leaves others out, too. In one text they are
    named, with ; between, or have its letters."""
    if isinstance(names, str):
        split = names.split(";")
        named = len(split) > 1 or SPELLINGS.get(names, names) in KNOWN
        names = split if named else [LETTERS.get(letter, "") for letter in names]
    known = [SPELLINGS.get(name, name) for name in names]
    return tuple(dict.fromkeys(name for name in known if name in KNOWN))


def _plain(value: Any, kind: Any) -> Any:
    """JSON writes 40 as 40.0 at times; an integer knob wants an int."""
    whole = kind in (int, int | None)
    return int(value) if whole and isinstance(value, float) else value


def prompts(prompt: Any, llm: Any, field: str = "prompt") -> list[list[int]]:
    """OpenAI's four kinds of prompt as lists of ids: text, texts, ids, lists of ids."""
    if isinstance(prompt, str):
        return [mixed(prompt, llm)]
    if not prompt:
        raise WrongField(field, "Must not be empty.")
    if all(isinstance(item, str) for item in prompt):
        return [mixed(item, llm) for item in prompt]
    if all(isinstance(item, list) for item in prompt):
        return [checked(item, llm, field) for item in prompt]
    return [checked(prompt, llm, field)]


def mixed(
    given: str | Sequence[Any], llm: Any, special: bool = True, bos: bool = True
) -> list[Any]:
    """A text, or a list of texts and ids, as one list; the ids in it are as unchecked as they came.

    bos: a text at the front has BOS before it, where the model has it so and the text does not.
    """
    items = [given] if isinstance(given, str) else given
    ids: list[Any] = []
    for item in items:
        ids += llm.tokenize(item, special=special) if isinstance(item, str) else [item]
    front = [llm.tokenizer.bos] if bos and llm.tokenizer.add_bos else []
    text_first = bool(items) and isinstance(items[0], str)
    return front + ids if text_first and ids[:1] != front else ids


def checked(ids: list[Any], llm: Any, field: str) -> list[int]:
    """Token ids that the model has. Raises WrongField, or BadRequest for none."""
    most = llm.tokenizer.vocab_size
    for id in ids:
        if isinstance(id, bool) or not isinstance(id, int | float) or not 0 <= id < most:
            raise WrongField(field, f"Tokens are whole numbers below {most}.")
    if not ids:
        raise BadRequest("The prompt is empty.", "Give the model at least one token.")
    return [int(id) for id in ids]  # JSON writes 40 as 40.0 at times, and the schema allows it
