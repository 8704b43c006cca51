"""Answers that must follow a JSON schema or a grammar: llguidance as the engine's token mask."""

import importlib
import json
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from localllm.errors import BadRequest, Unavailable
from localllm.request import Mask
from localllm.server.dialect import Tools

BYTES = 64 * 1024  # of a schema or grammar: 2,000 properties take a second to prepare
LIMITS = {"max_grammar_size": 200_000, "initial_lexer_fuel": 1_000_000, "max_lexer_states": 50_000}
OPTIONS = {"whitespace_flexible": False, "lenient": False}  # no endless spaces, nothing skipped


class Guide:
    """One answer's way through a grammar. See request.Mask."""

    def __init__(self, matcher: Any, end_ids: frozenset[int], vocab: int):
        self._matcher, self._ends, self._vocab = matcher, end_ids, vocab
        self._over = False

    def allowed(self) -> np.ndarray:
        """(vocab,) bool. Once the grammar is done, or can go no further, only the end is left."""
        mask = np.zeros(self._vocab, bool)
        if not self._over and not self._matcher.is_stopped():
            bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
            known = np.unpackbits(bits, bitorder="little", count=min(8 * bits.size, self._vocab))
            mask[: known.size] = known
            if self._matcher.is_error():
                raise BadRequest("The grammar is too complex to follow.")
        may_end = self._over or self._matcher.is_accepting() or not mask.any()
        mask[list(self._ends)] = may_end
        return mask

    def take(self, id: int) -> None:
        if id in self._ends:
            self._over = True
        elif not self._over:
            self._matcher.consume_token(id)


class _Vocabulary:
    """What llguidance wants to know of a tokenizer: the bytes of every token."""

    def __init__(self, tokenizer: Any):
        ends = sorted(tokenizer.end_ids)
        self._tokenizer = tokenizer
        self.eos_token_id = tokenizer.eos if tokenizer.eos is not None else ends[0]
        self.bos_token_id = tokenizer.bos
        self.tokens = [tokenizer.token_bytes(id) for id in range(tokenizer.vocab_size)]
        self.special_token_ids = [id for id, data in enumerate(self.tokens) if not data]
        names = {id: text for text, id in tokenizer.special_tokens.items()}
        for id in self.special_token_ids:  # llguidance marks these with a byte no text has
            self.tokens[id] = b"\xff" + names.get(id, f"<unused{id}>").encode()

    def __call__(self, text: bytes | str) -> list[int]:
        text = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        return self._tokenizer.encode(text, special=False)


_vocabularies: "weakref.WeakKeyDictionary[Any, Any]" = weakref.WeakKeyDictionary()
_making = threading.Lock()


def _library() -> Any:
    try:
        return importlib.import_module("llguidance")
    except ImportError:
        hint = "pip install 'localllm[server]' brings it."
        raise Unavailable("Constrained answers need the package llguidance.", hint) from None


def _vocabulary(llm: Any) -> Any:
    """Made once a model: a second or so for a vocabulary of 150,000."""
    library, tokenizer = _library(), llm.tokenizer
    with _making:
        if tokenizer not in _vocabularies:
            wrapped = library.TokenizerWrapper(_Vocabulary(tokenizer))
            _vocabularies[tokenizer] = library.LLTokenizer(wrapped, n_vocab=tokenizer.vocab_size)
        return _vocabularies[tokenizer]


def mask_for(body: dict[str, Any], llm: Any, tools: Tools) -> Callable[[], Mask | None]:
    """What makes a fresh mask for each answer; None where the request asks for no form.

    Raises BadRequest for two forms at once, and for one that cannot be enforced.
    """
    form = body.get("response_format", {"type": "text"})
    wanted = [
        kind
        for kind, there in (
            ("response_format", form["type"] != "text"),
            ("json_schema", "json_schema" in body),
            ("grammar", bool(body.get("grammar"))),
            ("tool_choice", bool(tools.must)),
        )
        if there
    ]
    if len(wanted) > 1:
        raise BadRequest(f"{wanted[0]} and {wanted[1]} cannot both say what the answer looks like.")
    if not wanted:
        return lambda: None
    return _maker(llm, _grammar(wanted[0], form, body, tools))


def _grammar(wanted: str, form: dict[str, Any], body: dict[str, Any], tools: Tools) -> str:
    library = _library()
    try:
        if wanted == "grammar":
            lark = importlib.import_module("llguidance.gbnf_to_lark").gbnf_to_lark(body["grammar"])
            return library.LLMatcher.grammar_from_lark(lark)
        schema = body.get("json_schema") if wanted == "json_schema" else _schema(form)
        if wanted == "tool_choice":
            return library.LLMatcher.grammar_from_lark(_bounded(call_grammar(tools)))
        text = _bounded(json.dumps(schema))
        return library.LLMatcher.grammar_from_json_schema(text, overrides=OPTIONS)
    except BadRequest:
        raise
    except Exception as error:
        raise BadRequest(f"The {wanted} cannot be used: {_first_line(error)}") from None


def _bounded(text: str) -> str:
    if len(text) > BYTES:
        raise BadRequest(f"A schema may have {BYTES} bytes, and this one has {len(text)}.")
    return text


def _schema(form: dict[str, Any]) -> dict[str, Any]:
    if form["type"] == "json_schema":
        return form["json_schema"]["schema"]
    return form.get("schema", {"type": "object"})


def call_grammar(tools: Tools) -> str:
    """One call of one of the functions, in the form that Hermes and Qwen models write."""
    calls = " | ".join(f"call_{i}" for i in range(len(tools.must)))
    lines = [f'start: "<tool_call>\\n" ({calls}) "\\n</tool_call>"']
    for i, function in enumerate(tools.must):
        arguments = function.get("parameters") or {"type": "object"}
        schema = {
            "type": "object",
            "properties": {"name": {"const": function["name"]}, "arguments": arguments},
            "required": ["name", "arguments"],
            "additionalProperties": False,
            "x-guidance": OPTIONS,
        }
        lines.append(f"call_{i}: %json {json.dumps(schema)}")
    return "\n".join(lines)


def _maker(llm: Any, grammar: str) -> Callable[[], Mask]:
    library, vocabulary = _library(), _vocabulary(llm)
    limits = library.LLParserLimits(**LIMITS, verbose_errors=False)
    first = library.LLMatcher(vocabulary, grammar, log_level=0, limits=limits)
    if first.is_error():
        raise BadRequest(
            f"The form of the answer cannot be enforced: {_first_line(first.get_error())}"
        )
    ends, size = llm.tokenizer.end_ids, llm.model.vocab

    def make() -> Mask:
        return Guide(first.deep_copy(), ends, size)

    return make


def _first_line(error: object) -> str:
    return (str(error).strip().splitlines() or ["no reason given"])[0][:300]
