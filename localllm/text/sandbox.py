"""Jinja for templates that came out of a file from the internet: sandboxed and bounded.

The immutable sandbox keeps a template from the machine. That it also ends is the work of this file:
generated code counts every block it enters, and every operator, call, filter and test goes through
a method here that looks at sizes before anything large is made. What is not listed is not there.
"""

import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from types import BuiltinMethodType, MethodType
from typing import Any

from jinja2 import Undefined
from jinja2.defaults import DEFAULT_FILTERS, DEFAULT_TESTS
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from localllm.text.budget import BITS, WIDTH, Budget, TooMuch
from localllm.text.counting import Counting, Generation

_PLAIN = (str, int, float, bool, type(None), Undefined)
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "gteq": operator.ge,
    "lt": operator.lt,
    "lteq": operator.le,
    "in": lambda a, b: a in b,
    "notin": lambda a, b: a not in b,
}
_COMPARE_TESTS = {"==": "eq", "eq": "eq", "equalto": "eq", "!=": "ne", "ne": "ne", "in": "in"}
_COMPARE_TESTS |= {">": "gt", "gt": "gt", "greaterthan": "gt", "ge": "gteq", ">=": "gteq"}
_COMPARE_TESTS |= {"<": "lt", "lt": "lt", "lessthan": "lt", "le": "lteq", "<=": "lteq"}
_OWN_TESTS = (
    ("boolean", "callable", "defined", "divisibleby", "even", "false", "filter", "float", "integer")
    + ("iterable", "mapping", "none", "number", "odd", "sameas", "sequence", "string", "test")
    + ("true", "undefined")
)
_TEXTS = ("capitalize", "e", "escape", "lower", "safe", "title", "trim", "upper")
_SHALLOW = (  # filters that neither walk into values nor make text longer
    ("abs", "count", "d", "default", "first", "float", "int", "items", "last", "length", "list")
    + ("map", "reject", "rejectattr", "reverse", "select", "selectattr")
)
_DEEP = ("dictsort", "groupby", "max", "min", "sort", "truncate", "unique")
_TEXT_METHODS = frozenset(
    ("capitalize", "casefold", "center", "count", "endswith", "find", "format", "format_map")
    + ("index", "isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower")
    + (
        "isnumeric",
        "isspace",
        "istitle",
        "isupper",
        "join",
        "ljust",
        "lower",
        "lstrip",
        "partition",
    )
    + (
        "removeprefix",
        "removesuffix",
        "replace",
        "rfind",
        "rindex",
        "rjust",
        "rpartition",
        "rsplit",
    )
    + (
        "rstrip",
        "split",
        "splitlines",
        "startswith",
        "strip",
        "swapcase",
        "title",
        "upper",
        "zfill",
    )
)
_PADDED = ("center", "ljust", "rjust", "zfill")
_WIDE_PERCENT = re.compile(r"%[^a-zA-Z%]*(?:\*|\d{4})")
_WIDE_BRACES = re.compile(r"\d{4}|\{[^{}]*\{")


class _Namespace(Namespace):
    def __repr__(self) -> str:
        return "<namespace>"


class Sandbox(ImmutableSandboxedEnvironment):
    """An environment for one rendering: it holds the budget. Cheap to make."""

    code_generator_class = Counting
    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%", "**"))

    def __init__(self, budget: Budget):
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
            cache_size=0,
            extensions=["jinja2.ext.loopcontrols", Generation],
        )
        self.budget, self.tick = budget, budget.tick
        self.finalize = self.show
        self.filters: dict[str, Any] = self._filters()
        self.tests: dict[str, Any] = self._tests()
        self.globals: dict[str, Any] = {
            "range": self.globals["range"],
            "dict": dict,
            "namespace": _Namespace,
        }

    # What generated code calls.

    def concat(self, pieces: Iterable[str]) -> str:  # type: ignore[override]
        """The text of a block or macro."""
        pieces = list(pieces)
        self.budget.take(sum(map(len, pieces)))
        return "".join(pieces)

    def show(self, value: Any) -> str:
        """How a value is written into text."""
        if isinstance(value, str):
            return value
        if not isinstance(value, _PLAIN):
            self.budget.take(self.budget.weigh(value))
        return str(value)

    def key(self, value: Any) -> Any:
        """A value that is about to be hashed."""
        if not isinstance(value, _PLAIN):
            self.budget.weigh(value)
        return value

    def join_text(self, values: Iterable[Any]) -> str:
        """a ~ b ~ c"""
        self.tick()
        return self.concat([self.show(value) for value in values])

    def compare(self, left: Any, *rest: Any) -> bool:
        """a < b < c, given as a, "lt", b, "lt", c."""
        self.tick()
        for name, right in zip(rest[::2], rest[1::2], strict=True):
            right = list(right) if isinstance(right, Iterator) else right
            self._weigh_pair(name, left, right)
            result = _COMPARE[name](left, right)
            if not result:
                return result
            left = right
        return result

    def cut(self, value: Any, start: Any, stop: Any, step: Any) -> Any:
        """value[start:stop:step]"""
        self.tick()
        return self._made(super().getitem(value, slice(start, stop, step)))

    def getitem(self, obj: Any, argument: Any) -> Any:
        self.tick()
        return super().getitem(obj, self.key(argument))

    def getattr(self, obj: Any, attribute: str) -> Any:
        self.tick()
        return super().getattr(obj, attribute)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        self.tick()
        if operator == "+" and isinstance(left, str | list | tuple):
            size = 1 if isinstance(left, str) else 8
            self.budget.take(size * (len(left) + _length(right)))
        elif operator == "*":
            self._check_product(left, right)
        elif operator == "**":
            _check_power(left, right)
        elif operator == "%" and isinstance(left, str):
            self._check_format(_WIDE_PERCENT, left, "%", right)
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(__obj, BuiltinMethodType | MethodType):
            __self._check_method(__obj.__self__, __obj.__name__, args)
        __self.budget.enter()
        try:
            return __self._made(super().call(__context, __obj, *args, **kwargs))
        finally:
            __self.budget.leave()

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None

        def bounded(*args: Any, **kwargs: Any) -> str:
            self._check_format(_WIDE_BRACES, value.__self__, "{", [*args, kwargs])
            return wrapped(*args, **kwargs)

        return bounded

    # Sizes, looked at before the work is done.

    def _made(self, value: Any) -> Any:
        if isinstance(value, str):
            self.budget.take(len(value))
        elif isinstance(value, list | tuple | dict):
            self.budget.take(8 * len(value))
        return value

    def _weigh_pair(self, name: str, left: Any, right: Any) -> None:
        if not isinstance(left, _PLAIN) and not isinstance(right, _PLAIN):
            self.budget.weigh(left, right)
        elif name in ("in", "notin") and hasattr(right, "__len__"):
            self.budget.take(len(right) // 16)

    def _check_product(self, left: Any, right: Any) -> None:
        for some, count in ((left, right), (right, left)):
            if isinstance(some, str | list | tuple) and isinstance(count, int):
                self.budget.take((1 if isinstance(some, str) else 8) * len(some) * max(count, 0))
        if isinstance(left, int) and isinstance(right, int):
            _check_bits(left.bit_length() + right.bit_length())

    def _check_format(self, wide: re.Pattern[str], text: str, mark: str, values: Any) -> None:
        if wide.search(text):
            raise SecurityError("formats with a computed or very large width are not available")
        self.budget.take(text.count(mark) * (WIDTH + self.budget.weigh(values)))

    def _check_method(self, owner: Any, name: str, args: tuple[Any, ...]) -> None:
        if not isinstance(owner, str):
            if isinstance(owner, bytes | int | float):
                raise SecurityError(f"the method '{name}' is not available in templates")
            if not all(isinstance(value, _PLAIN) for value in args):
                self.budget.weigh(owner, args)
            return
        if name not in _TEXT_METHODS:
            raise SecurityError(f"the method '{name}' is not available in templates")
        if name == "replace" and len(args) >= 2:
            self._check_replace(owner, args[0], args[1])
        elif name == "join" and args:
            self.budget.take(self.budget.weigh(args[0]) + len(owner) * _length(args[0]))
        elif name in _PADDED and args and isinstance(args[0], int) and args[0] > WIDTH:
            raise TooMuch("makes too much text")
        elif name in ("split", "rsplit", "splitlines"):
            self.budget.take(8 * (owner.count(args[0]) if args and args[0] else len(owner)))

    def _check_replace(self, text: str, old: str, new: str) -> None:
        if isinstance(old, str) and isinstance(new, str):
            self.budget.take(len(text) + text.count(old) * len(new))

    # Filters and tests.

    def _filters(self) -> dict[str, Any]:
        filters = {name: self._counted(DEFAULT_FILTERS[name]) for name in _SHALLOW}
        filters |= {name: self._shown(DEFAULT_FILTERS[name]) for name in _TEXTS}
        filters |= {name: self._weighed(DEFAULT_FILTERS[name]) for name in _DEEP}
        own: dict[str, Any] = {"format": self._format, "indent": self._indent, "join": self._join}
        own |= {"replace": self._replace, "round": self._round, "string": self.show}
        return filters | own | {"sum": self._sum, "tojson": self._tojson}

    def _tests(self) -> dict[str, Any]:
        tests = {name: self._counted(DEFAULT_TESTS[name]) for name in _OWN_TESTS}
        tests |= {name: self._shown(DEFAULT_TESTS[name]) for name in ("lower", "upper")}
        for name, meaning in _COMPARE_TESTS.items():
            tests[name] = lambda a, b, meaning=meaning: self.compare(a, meaning, b)
        return tests

    def _counted(self, function: Any) -> Callable[..., Any]:
        @wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.tick()
            return self._made(function(*args, **kwargs))

        return counted

    def _shown(self, function: Any) -> Callable[..., Any]:
        @wraps(function)
        def shown(value: Any, *args: Any, **kwargs: Any) -> Any:
            self.tick()
            value = self.show(value)
            self.budget.take(len(value) * (64 if function is DEFAULT_FILTERS["title"] else 1))
            return function(value, *args, **kwargs)

        return shown

    def _weighed(self, function: Any) -> Callable[..., Any]:
        @wraps(function)
        def weighed(*args: Any, **kwargs: Any) -> Any:
            self.tick()
            values = [list(each) if isinstance(each, Iterator) else each for each in args]
            self.budget.weigh(values[1:] if hasattr(function, "jinja_pass_arg") else values)
            return self._made(function(*values, **kwargs))

        return weighed

    def _format(self, text: Any, *args: Any, **kwargs: Any) -> str:
        text = self.show(text)
        self._check_format(_WIDE_PERCENT, text, "%", [args, kwargs])
        return self._made(text % (kwargs or args))

    def _indent(
        self, text: Any, width: int | str = 4, first: bool = False, blank: bool = False
    ) -> str:
        text, step = self.show(text), width if isinstance(width, str) else " " * min(width, WIDTH)
        self.tick()
        lines = text.splitlines() or [""]
        self.budget.take(len(text) + len(lines) * len(step))
        out = [step + line if line or blank else line for line in lines[1:]]
        return "\n".join([step + lines[0] if first else lines[0], *out])

    def _join(self, values: Iterable[Any], by: str = "", attribute: Any = None) -> str:
        self.tick()
        values = values if attribute is None else (self.getitem(each, attribute) for each in values)
        texts = [self.show(value) for value in values]
        self.budget.take(sum(map(len, texts)) + len(by) * len(texts))
        return by.join(texts)

    def _replace(self, text: Any, old: str, new: str, count: int | None = None) -> str:
        text = self.show(text)
        self._check_replace(text, old, new)
        return text.replace(old, new, -1 if count is None else count)

    def _round(self, value: float, precision: int = 0, method: str = "common") -> float:
        if abs(precision) > 20:
            raise TooMuch("asks for too many digits")
        return DEFAULT_FILTERS["round"](value, precision, method)

    def _sum(self, values: Iterable[Any], attribute: Any = None, start: float = 0) -> Any:
        picked = values if attribute is None else (self.getitem(v, attribute) for v in values)
        numbers = [start, *picked]
        if not all(isinstance(number, int | float) for number in numbers):
            raise TypeError("only numbers can be summed")
        self.budget.take(len(numbers))
        return sum(numbers)

    def _tojson(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """As transformers defines it: letters of every script as they are, nothing escaped."""
        self.tick()
        if isinstance(indent, int) and indent > 16:
            raise TooMuch("indents too far")
        self.budget.weigh(value)
        return self._made(
            json.dumps(
                value,
                ensure_ascii=ensure_ascii,
                indent=indent,
                separators=separators,
                sort_keys=sort_keys,
            )
        )


def _length(values: Any) -> int:
    return len(values) if hasattr(values, "__len__") else 0


def _check_bits(bits: int) -> None:
    if bits > BITS:
        raise TooMuch("computes with too large numbers")


def _check_power(base: Any, exponent: Any) -> None:
    if isinstance(base, int) and isinstance(exponent, int):
        _check_bits(max(base.bit_length(), 1) * abs(exponent) if abs(base) > 1 else 0)
