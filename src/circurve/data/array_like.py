"""What lets a record be read like a numpy array: operators, iteration and the array's own methods."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from circurve.data.convert import Array

__all__ = ["ArrayLike"]


def _unary(operation: Callable[[Any], Any]) -> Callable[[ArrayLike], Any]:
    def apply(self: ArrayLike) -> Any:
        return operation(np.asarray(self))

    return apply


def _binary(operation: Callable[[Any, Any], Any]) -> Callable[[ArrayLike, Any], Any]:
    def apply(self: ArrayLike, other: Any) -> Any:
        return operation(np.asarray(self), other)

    return apply


def _reflected(operation: Callable[[Any, Any], Any]) -> Callable[[ArrayLike, Any], Any]:
    def apply(self: ArrayLike, other: Any) -> Any:
        return operation(other, np.asarray(self))

    return apply


class ArrayLike:
    """Operators and methods of `np.asarray(self)`, none of which change it. A subclass defines `__array__`.

    Results are numpy arrays. Like an array, it compares element by element and has no hash.
    """

    __hash__ = None  # type: ignore[assignment]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(np.ndarray, name):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        array = np.asarray(self).view()
        array.flags.writeable = False  # a method that changes an array fails, even on a copy that no one would see
        return getattr(array, name)

    def __iter__(self) -> Iterator[Any]:
        return iter(np.asarray(self))

    def __contains__(self, value: object) -> bool:
        return value in np.asarray(self)

    def __eq__(self, other: object) -> Any:
        return np.asarray(self) == other

    def __ne__(self, other: object) -> Any:
        return np.asarray(self) != other

    __lt__, __le__, __gt__, __ge__ = (
        _binary(operator.lt),
        _binary(operator.le),
        _binary(operator.gt),
        _binary(operator.ge),
    )
    __add__, __radd__ = _binary(operator.add), _reflected(operator.add)
    __sub__, __rsub__ = _binary(operator.sub), _reflected(operator.sub)
    __mul__, __rmul__ = _binary(operator.mul), _reflected(operator.mul)
    __truediv__, __rtruediv__ = _binary(operator.truediv), _reflected(operator.truediv)
    __floordiv__, __rfloordiv__ = _binary(operator.floordiv), _reflected(operator.floordiv)
    __mod__, __rmod__ = _binary(operator.mod), _reflected(operator.mod)
    __pow__, __rpow__ = _binary(operator.pow), _reflected(operator.pow)
    __matmul__, __rmatmul__ = _binary(operator.matmul), _reflected(operator.matmul)
    __and__, __rand__ = _binary(operator.and_), _reflected(operator.and_)
    __or__, __ror__ = _binary(operator.or_), _reflected(operator.or_)
    __xor__, __rxor__ = _binary(operator.xor), _reflected(operator.xor)
    __neg__, __abs__, __invert__ = _unary(operator.neg), _unary(operator.abs), _unary(operator.invert)
