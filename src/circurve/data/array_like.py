"""What lets a record be read like a numpy array: operators, iteration and the array's own methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from circurve.data.convert import Array

__all__ = ["ArrayLike"]


def _delegated(name: str) -> Callable[..., Any]:
    return lambda self, *operands: getattr(np.asarray(self), name)(*operands)


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

    __iter__, __contains__ = _delegated("__iter__"), _delegated("__contains__")
    __eq__, __ne__ = _delegated("__eq__"), _delegated("__ne__")
    __lt__, __le__ = _delegated("__lt__"), _delegated("__le__")
    __gt__, __ge__ = _delegated("__gt__"), _delegated("__ge__")
    __add__, __radd__ = _delegated("__add__"), _delegated("__radd__")
    __sub__, __rsub__ = _delegated("__sub__"), _delegated("__rsub__")
    __mul__, __rmul__ = _delegated("__mul__"), _delegated("__rmul__")
    __truediv__, __rtruediv__ = _delegated("__truediv__"), _delegated("__rtruediv__")
    __floordiv__, __rfloordiv__ = _delegated("__floordiv__"), _delegated("__rfloordiv__")
    __mod__, __rmod__ = _delegated("__mod__"), _delegated("__rmod__")
    __pow__, __rpow__ = _delegated("__pow__"), _delegated("__rpow__")
    __matmul__, __rmatmul__ = _delegated("__matmul__"), _delegated("__rmatmul__")
    __and__, __rand__ = _delegated("__and__"), _delegated("__rand__")
    __or__, __ror__ = _delegated("__or__"), _delegated("__ror__")
    __xor__, __rxor__ = _delegated("__xor__"), _delegated("__rxor__")
    __neg__, __abs__, __invert__ = _delegated("__neg__"), _delegated("__abs__"), _delegated("__invert__")
