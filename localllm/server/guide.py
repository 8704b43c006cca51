"""A grammar as the engine's token mask, by llguidance: which tokens may come next."""

import importlib
import json
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from localllm.errors import BadRequest, Unavailable
from localllm.request import Mask

BYTES = 64 * 1024  # of a schema or grammar: 2,000 properties take a second to prepare
LIMITS = {"max_grammar_size": 200_000, "initial_lexer_fuel": 1_000_000, "max_lexer_states": 50_000}
SPACING = {  # one space after a comma or colon and no other, so that none loops over spaces;
    "whitespace_flexible": False,
    "item_separator": ", ?",
    "key_separator": ": ?",
    "lenient": False,  # and a keyword that cannot be enforced is an error
}
CLOSINGS = (b"</think>", b"[/THINK]")  # where reasoning that the prompt has opened ends


class Guide:
    """One answer's way through a grammar. See request.Mask."""

    def __init__(self, matcher: Any, end_ids: frozenset[int], vocab: int):
        self._matcher, self._ends, self._vocab = matcher, sorted(end_ids), vocab
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
        mask[self._ends] = self._over or self._matcher.is_accepting() or not mask.any()
        return mask

    def take(self, id: int) -> None:
        if id in self._ends:
            self._over = True
        elif not self._over:
            self._matcher.consume_token(id)


class Later:
    """Everything is allowed until the reasoning ends; from then on, what `mask` says."""

    def __init__(self, mask: Mask, token_bytes: Callable[[int], bytes]):
        self._mask, self._token_bytes = mask, token_bytes
        self._thinking, self._seen = True, b""

    def allowed(self) -> np.ndarray | None:
        return None if self._thinking else self._mask.allowed()

    def take(self, id: int) -> None:
        if not self._thinking:
            return self._mask.take(id)
        self._seen = self._seen[-32:] + self._token_bytes(id)
        self._thinking = not any(closing in self._seen for closing in CLOSINGS)


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


def of_schema(schema: Any) -> str:
    """The grammar of all JSON that a schema describes."""
    text = _bounded(json.dumps(schema))
    return _made(lambda: _library().LLMatcher.grammar_from_json_schema(text, overrides=SPACING))


def of_gbnf(text: str) -> str:
    """A grammar in llama.cpp's own notation."""
    convert = importlib.import_module("llguidance.gbnf_to_lark").gbnf_to_lark
    return of_lark(_made(lambda: convert(_bounded(text))))


def of_lark(text: str) -> str:
    """A grammar in llguidance's notation."""
    return _made(lambda: _library().LLMatcher.grammar_from_lark(_bounded(text)))


def masks(llm: Any, grammar: str) -> Callable[[], Mask]:
    """What makes a fresh mask for each answer. Raises BadRequest for what cannot be enforced."""
    library, vocabulary = _library(), _vocabulary(llm)
    limits = library.LLParserLimits(**LIMITS, verbose_errors=False)
    first = library.LLMatcher(vocabulary, grammar, log_level=0, limits=limits)
    if first.is_error():
        raise _refusal(first.get_error())
    ends, size = llm.tokenizer.end_ids, llm.model.vocab
    return lambda: Guide(first.deep_copy(), ends, size)


def _bounded(text: str) -> str:
    if len(text) > BYTES:
        raise BadRequest(f"A schema or grammar may have {BYTES} bytes; this one has {len(text)}.")
    return text


def _made(make: Callable[[], str]) -> str:
    """llguidance's converters raise errors of many kinds, all of them about the text."""
    try:
        return make()
    except (BadRequest, Unavailable):
        raise
    except Exception as error:
        raise _refusal(error) from None


def _refusal(error: object) -> BadRequest:
    reason = (str(error).strip().splitlines() or ["no reason given"])[0][:300]
    return BadRequest(f"The form of the answer cannot be enforced: {reason}")
