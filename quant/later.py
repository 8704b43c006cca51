"""Names that stand for Numba functions until a kernel is compiled.

Machine code that is kept needs no compiler to be loaded, and importing Numba takes longer than
loading it: so kernels are written with these, and `bound` puts the real things in their place.
"""

import importlib
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

# No wrappers: only kernels call these functions, and a wrapper takes as long to compile as one.
OPTIONS: dict[str, Any] = {
    "forceinline": True, "error_model": "numpy",
    "no_cpython_wrapper": True, "no_cfunc_wrapper": True, "no_rewrites": True,
}  # fmt: skip


@dataclass(frozen=True)
class Later:
    """A name of a module that is imported when it is needed."""

    module: str
    name: str

    def resolve(self) -> Any:
        """The thing itself. Raises AttributeError where the module has no such name."""
        return _resolved(getattr(importlib.import_module(self.module), self.name))


class Inline:
    """A helper that becomes part of every kernel that calls it."""

    def __init__(self, function: Callable):
        self.function = function
        self.__doc__ = function.__doc__

    @cached_property
    def compiled(self) -> Any:
        """The function as Numba has it."""
        import numba  # only where something is compiled

        return numba.njit(**OPTIONS)(bound(self.function))


inline = Inline


def stamp(template: Callable, name: str, **helpers: Any) -> Callable:
    """A copy of a function that sees `helpers` as its globals, under a name of its own."""
    return _copy(template, {**template.__globals__, **helpers}, name)


def bound(function: Callable) -> Callable:
    """A copy of a function with every Later and Inline of its globals resolved."""
    names = [name for name in function.__code__.co_names if name in function.__globals__]
    resolved = {name: _resolved(function.__globals__[name]) for name in names}
    return _copy(function, {**function.__globals__, **resolved}, function.__qualname__)


def _copy(function: Callable, names: dict[str, Any], name: str) -> Callable:
    copy = types.FunctionType(function.__code__, names, name, function.__defaults__)
    copy.__qualname__, copy.__module__ = name, function.__module__
    copy.__doc__ = function.__doc__
    return copy


def _resolved(value: Any) -> Any:
    if isinstance(value, Later):
        return value.resolve()
    return value.compiled if isinstance(value, Inline) else value
