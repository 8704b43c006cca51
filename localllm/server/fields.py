"""Every field of every JSON body, declared once: checks, OpenAPI page and docs come from here."""

import dataclasses
import types
import typing
from typing import Any

from localllm.sampling import Sampling
from localllm.server.endpoint import Field
from localllm.server.schema import Schema

CHOICES = 64  # answers that one request may have in all
MANY = 2**31 - 1
NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 256}
TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
OBJECT: Schema = {"type": "object"}
ANY: Schema = {}
TOKEN: Schema = {"type": "integer", "minimum": 0, "maximum": MANY}
TOKENS: Schema = {"type": "array", "items": TOKEN, "maxItems": 2**20}
MIXED: Schema = {"anyOf": [TEXT, TOKENS | {"items": {"anyOf": [TEXT, TOKEN]}}]}  # is one prompt
LIMIT: Schema = {"type": "integer", "minimum": -1, "maximum": MANY}
SECONDS = {"type": "number", "minimum": 0, "maximum": 86400_000}
BIAS: Schema = {"anyOf": [{"type": "number", "minimum": -100, "maximum": 100}, FLAG]}
STOP: Schema = {"type": "string", "maxLength": 1024}
KINDS = {int: "integer", float: "number", bool: "boolean", str: "string"}


def number(low: float, high: float, kind: str = "number") -> Schema:
    return {"type": kind, "minimum": low, "maximum": high}


def _knob(item: "dataclasses.Field[Any]") -> list[Field]:
    """A field of Sampling under its name and the others that it goes by."""
    low, high, also = (item.metadata[key] for key in ("low", "high", "also"))
    kind = next(t for t in _types(item.type) if t is not types.NoneType)
    schema: Schema = {"type": KINDS[kind]}
    if low is not None:
        schema |= {"minimum": low, "maximum": high}
    help = item.metadata["help"]
    first = Field(item.name, schema, help)
    return [first] + [Field(name, schema, f"Another name of `{item.name}`.") for name in also]


def _types(kind: Any) -> tuple[Any, ...]:
    return typing.get_args(kind) or (kind,)


SPECIAL = ("logit_bias", "samplers", "dry_sequence_breakers")  # their JSON differs from Python
KNOBS = tuple(
    made
    for item in dataclasses.fields(Sampling)
    if item.name not in SPECIAL
    for made in _knob(item)
)

PAIR: Schema = {"type": "array", "minItems": 2, "maxItems": 2}
SAMPLING = KNOBS + (
    Field(
        "logit_bias",
        {
            "anyOf": [
                {"type": "object", "additionalProperties": BIAS, "maxProperties": 1024},
                {"type": "array", "items": PAIR, "maxItems": 1024},
            ]
        },
        "Token id (or text, as llama-server takes it) -> added to its logit; false bans it. An "
        "object, or a list of pairs. -100 bans and 100 forces, as at OpenAI.",
    ),
    Field(
        "samplers",
        {"anyOf": [{"type": "array", "items": NAME, "maxItems": 32}, NAME]},
        "The samplers to use, in order: " + ", ".join(f"`{name}`" for name in Sampling().samplers)
        + "; and `infill`, for filling gaps. Other names are left out, as llama-server does. In a "
        "string: names with `;` between, or llama.cpp's letters, as `edskypmxt`.",
    ),
    Field(
        "dry_sequence_breakers",
        {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 64},
         "maxItems": 64},
        "Texts that end a repeated passage, for DRY.",
    ),
)  # fmt: skip

MODEL = Field(
    "model", {"type": "string", "maxLength": 256},
    "An installed model's name, or one named when the server started. Without it, or empty: the "
    "first of those, else the one used last.",
)  # fmt: skip
STREAM = (
    Field("stream", FLAG, "Send the answer as it comes, as server-sent events."),
    Field(
        "stream_options",
        {
            "type": "object",
            "properties": {"include_usage": FLAG, "include_obfuscation": FLAG},
            "additionalProperties": False,
        },
        "`include_usage`: a last chunk with the tokens counted. Obfuscation is never added.",
    ),
    Field(
        "return_progress", FLAG,
        "While a prompt is computed, send chunks with `prompt_progress` (llama-server's).",
    ),
)  # fmt: skip
STOPS = Field(
    "stop",
    {"anyOf": [STOP, {"type": "array", "items": STOP, "maxItems": 16}]},
    "Texts at which the answer ends; they are not part of it. Empty ones are passed over.",
)
ENGINE = (
    Field("cache_prompt", FLAG, "False: neither use nor fill the prefix cache."),
    Field("t_max_predict_ms", SECONDS, "Stop this long after the first token; 0 is no limit."),
)
SHAPE = (
    Field(
        "json_schema", OBJECT,
        "The answer is JSON of this schema (llama-server's; `response_format` is OpenAI's).",
    ),
    Field(
        "grammar", {"type": "string", "maxLength": 65536},
        "The answer follows this GBNF grammar.",
    ),
)  # fmt: skip
FORMAT = Field(
    "response_format",
    {
        "anyOf": [
            {
                "type": "object",
                "properties": {"type": {"enum": ["text", "json_object"]}, "schema": OBJECT},
                "required": ["type"],
                "additionalProperties": False,
            },
            {
                "type": "object",
                "properties": {
                    "type": {"enum": ["json_schema"]},
                    "json_schema": {
                        "type": "object",
                        "properties": {
                            "name": NAME, "schema": OBJECT, "strict": FLAG, "description": TEXT
                        },
                        "required": ["schema"],
                        "additionalProperties": False,
                    },
                },
                "required": ["type", "json_schema"],
                "additionalProperties": False,
            },
        ]
    },
    "`json_object` or `json_schema`: tokens that would break it cannot be chosen, so `strict` is "
    "always so. A schema that cannot be enforced is refused.",
)  # fmt: skip
ANSWERS = Field("n", number(1, 16, "integer"), "How many answers; they share the prompt's pages.")


def ignored(name: str, schema: Schema, why: str) -> Field:
    return Field(name, schema, why, ignored=True)


LLAMA_IGNORED = (  # what llama-server's clients send, to its OpenAI endpoints too
    ignored("id_slot", ANY, "There are no slots to choose: pages are shared."),
    ignored("n_keep", ANY, "A context is never shifted: it ends."),
    ignored("n_discard", ANY, "A context is never shifted: it ends."),
    ignored("min_keep", ANY, "One token is always kept."),
    ignored("t_max_prompt_ms", ANY, "A prompt is computed whole; close the connection to end it."),
    ignored("timings_per_token", ANY, "Timings come with the end."),
    ignored("lora", ANY, "No adapters are loaded."),
)
IGNORED = (
    ignored("user", TEXT, "There are no accounts here."),
    ignored("store", FLAG, "Nothing is stored."),
    ignored("metadata", OBJECT, "Nothing is stored."),
    ignored("service_tier", TEXT, "There is one tier."),
    ignored("safety_identifier", TEXT, "There are no accounts here."),
    ignored("prompt_cache_key", TEXT, "Every prefix is cached; none needs a key."),
    ignored("prompt_cache_retention", TEXT, "Prefixes stay until memory is wanted."),
    ignored("keep_alive", ANY, "The server's --keep-alive decides."),
)
