"""Values and functions as texts that are the same in every process, so that two calls can be compared."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import MethodType
from typing import Any

import numpy as np
from torch import Tensor

__all__ = ["Describer"]

PLAIN = (bool, int, float, complex, str, bytes, type(None))

DEEPEST = 12
"""Values that are further inside others than this are described by their type."""


class Describer:
    """Describes values: records field by field, functions by their code and by what they use.

    own: describes the values of some types itself; it returns None for all others.
    """

    def __init__(self, own: Callable[[Any], str | None]) -> None:
        self.own = own
        self._within: list[int] = []

    def __call__(self, value: Any) -> str:
        """The text. A value that contains itself is described once."""
        if isinstance(value, PLAIN):
            return repr(value)
        if id(value) in self._within:
            return "itself"
        if len(self._within) > DEEPEST:
            return type(value).__qualname__
        self._within.append(id(value))
        try:
            found = self.own(value)
            return self._container(value) if found is None else found
        finally:
            self._within.pop()

    def _container(self, value: Any) -> str:
        if is_dataclass(value) and not isinstance(value, type):
            parts = (f"{given.name}={self(getattr(value, given.name))}" for given in fields(value))
            return f"{type(value).__name__}({', '.join(parts)})"
        if isinstance(value, tuple | list):
            return f"({', '.join(map(self, value))})"
        if isinstance(value, set | frozenset):
            return f"set({', '.join(sorted(map(self, value)))})"
        if isinstance(value, Mapping):
            return f"{{{', '.join(sorted(f'{self(key)}: {self(each)}' for key, each in value.items()))}}}"
        if isinstance(value, np.ndarray | Tensor):
            return _array(value)
        return self._callable(value)

    def _callable(self, value: Any) -> str:
        if isinstance(value, functools.partial):
            return f"partial({self(value.func)}, {self(value.args)}, {self(value.keywords)})"
        if isinstance(value, MethodType):
            return f"{self(value.__self__)}.{self(value.__func__)}"
        if hasattr(value, "__code__"):
            return self._function(value)
        text = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))
        if "object at 0x" not in repr(value) or not hasattr(value, "__dict__"):
            return text
        call = vars(type(value)).get("__call__")
        code = getattr(call, "__code__", None)
        return f"{text} {self(vars(value))}{'' if code is None else ' ' + _short(_code(code))}"

    def _function(self, value: Any) -> str:
        """Name, instructions, defaults, and the values of other variables that it uses."""
        if value.__module__.startswith("circurve."):
            return str(value.__qualname__)
        parts = [_code(value.__code__), self(value.__defaults__), self(value.__kwdefaults__)]
        for cell in value.__closure__ or ():
            try:
                parts.append(self(cell.cell_contents))
            except ValueError:  # not yet assigned
                parts.append("empty")
        for name in sorted(set(_names(value.__code__)) & set(value.__globals__)):
            used = value.__globals__[name]
            if isinstance(used, (*PLAIN, tuple, list, dict, set, np.ndarray, Tensor)) or (
                getattr(used, "__module__", None) == value.__module__ and hasattr(used, "__code__")
            ):
                parts.append(f"{name}={self(used)}")
        return f"{value.__module__}.{value.__qualname__} {_short(chr(10).join(parts))}"


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _array(value: Any) -> str:
    array = np.ascontiguousarray(value.detach().cpu().numpy() if isinstance(value, Tensor) else value)
    return f"array {array.shape} {array.dtype} {hashlib.sha256(array.tobytes()).hexdigest()[:12]}"


def _names(code: Any) -> Iterator[str]:
    """Global names in a function and in those inside it."""
    yield from code.co_names
    for value in code.co_consts:
        if hasattr(value, "co_code"):
            yield from _names(value)


def _code(code: Any) -> str:
    """Instructions, constants and the names that they use."""
    names = "|".join(",".join(each) for each in (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars))
    return "\n".join([code.co_code.hex(), *map(_constant, code.co_consts), names])


def _constant(value: Any) -> str:
    """A constant of a function; sets in an order that is the same in every process."""
    if hasattr(value, "co_code"):
        return _code(value)
    if isinstance(value, frozenset):
        return f"set({', '.join(sorted(map(_constant, value)))})"
    if isinstance(value, tuple):
        return f"({', '.join(map(_constant, value))})"
    return repr(value)
