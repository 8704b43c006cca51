"""Checks a JSON value against the part of JSON Schema in which the API declares its bodies."""

from typing import Any

from localllm.errors import BadRequest

Schema = dict[str, Any]

SHOWN = 60  # characters of a wrong value that a message repeats


class WrongField(BadRequest):
    """A value that the API does not take; `param` names the field, as `messages[0].content`."""

    def __init__(self, param: str, message: str):
        super().__init__(f"Field '{param}': {message}" if param else message)
        self.param = param or None


def check(value: Any, schema: Schema, at: str = "") -> None:
    """Raise WrongField unless `value` is what `schema` says.

    Known keywords: type, enum, anyOf; minimum, maximum; minLength, maxLength; items, minItems,
    maxItems; properties, required, additionalProperties, maxProperties.
    """
    if "anyOf" in schema:
        _any_of(value, schema["anyOf"], at)
    kinds = _kinds(schema)
    if kinds and not any(_is(value, kind) for kind in kinds):
        raise WrongField(at, f"Must be {_either(kinds)}, not {_shown(value)}.")
    if "enum" in schema and not any(_same(value, known) for known in schema["enum"]):
        raise WrongField(at, f"Must be one of {_shown(schema['enum'])}, not {_shown(value)}.")
    if _is(value, "number"):
        _number(value, schema, at)
    elif isinstance(value, str):
        _size(len(value), "characters", schema, "Length", at)
    elif isinstance(value, list):
        _size(len(value), "items", schema, "Items", at)
        for index, item in enumerate(value):
            check(item, schema.get("items", {}), f"{at}[{index}]")
    elif isinstance(value, dict):
        _object(value, schema, at)


def without_nulls(value: Any, schema: Schema) -> Any:
    """`value` without members that are null, where `schema` names them; it says nothing of others,
    such as those of a schema that a user sends."""
    for choice in schema.get("anyOf", ()):
        value = without_nulls(value, choice)
    if isinstance(value, list) and "items" in schema:
        items = schema["items"]
        return [without_nulls(v, items) if isinstance(v, dict | list) else v for v in value]
    if isinstance(value, dict) and "properties" in schema:
        known = schema["properties"]
        there = {name: v for name, v in value.items() if v is not None or name not in known}
        return {name: without_nulls(v, known.get(name, {})) for name, v in there.items()}
    return value


def _any_of(value: Any, choices: list[Schema], at: str) -> None:
    """Of the choices that may be meant, the first that complains about a part of the value."""
    kinds = list(dict.fromkeys(kind for choice in choices for kind in _kinds(choice)))
    if all(map(_kinds, choices)) and not any(_is(value, kind) for kind in kinds):
        raise WrongField(at, f"Must be {_either(kinds)}, not {_shown(value)}.")
    complaints = []
    for choice in choices:
        try:
            return check(value, choice, at)
        except WrongField as complaint:
            complaints.append((_meant(value, choice), complaint.param != (at or None), complaint))
    raise max(complaints, key=lambda one: one[:2])[2]


def _meant(value: Any, schema: Schema) -> bool:
    """Is it of this type, and as an object with the constants that tell it from others?"""
    if not any(_is(value, kind) for kind in _kinds(schema)):
        return False
    known = schema.get("properties", {}) if isinstance(value, dict) else {}
    constants = [name for name in known if "enum" in known[name] and name in value]
    return all(any(_same(value[name], one) for one in known[name]["enum"]) for name in constants)


def _number(value: int | float, schema: Schema, at: str) -> None:
    low, high = schema.get("minimum"), schema.get("maximum")
    if (low is not None and value < low) or (high is not None and value > high):
        if low is None or high is None:
            bound = f"at most {high}" if low is None else f"at least {low}"
            raise WrongField(at, f"Value must be {bound}, not {_shown(value)}.")
        raise WrongField(at, f"Value must be between {low} and {high}, not {_shown(value)}.")


def _size(size: int, of: str, schema: Schema, word: str, at: str) -> None:
    low, high = schema.get(f"min{word}", 0), schema.get(f"max{word}")
    if size < low:
        raise WrongField(at, f"Must have at least {low} {of}, not {size}.")
    if high is not None and size > high:
        raise WrongField(at, f"Must have at most {high} {of}, not {size}.")


def _object(value: dict[str, Any], schema: Schema, at: str) -> None:
    _size(len(value), "members", schema, "Properties", at)
    known, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name in schema.get("required", ()):
        if name not in value:
            raise WrongField(_join(at, name), "Is required.")
    for name, item in value.items():
        if name in known:
            check(item, known[name], _join(at, name))
        elif rest is False:
            raise WrongField(_join(at, name), "Is not a field that this endpoint knows.")
        elif isinstance(rest, dict):
            check(item, rest, _join(at, name))


def _kinds(schema: Schema) -> list[str]:
    kinds = schema.get("type", [])
    return [kinds] if isinstance(kinds, str) else kinds


def _is(value: Any, kind: str) -> bool:
    """JSON's types: true is no number, and 2.0 is an integer."""
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "integer":
        return _is(value, "number") and (isinstance(value, int) or value.is_integer())
    types = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
    return isinstance(value, types[kind])


def _same(value: Any, known: Any) -> bool:
    return value == known and isinstance(value, bool) == isinstance(known, bool)


def _either(kinds: list[str]) -> str:
    return " or ".join(f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}" for kind in kinds)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, int) and abs(value) > 10**SHOWN:
        return "a huge number"  # and one too long for Python to print
    text = repr(value)
    return text if len(text) <= SHOWN else text[:SHOWN] + "..."


def _join(at: str, name: str) -> str:
    name = name if len(name) <= SHOWN else name[:SHOWN] + "..."
    return f"{at}.{name}" if at else name
