"""Triton's interpreter with less work per call, and the same results.

The interpreter replaces the functions of `triton.language` by ones that compute in numpy. It does so at each launch
and at each call of one jitted function by another, and looks through every name of the language each time: most of the
time of a small kernel. `language_replaced` does it once for the whole process, and remembers the types that the
interpreter makes again for each operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

__all__ = ["language_replaced"]


@contextmanager
def language_replaced() -> Iterator[None]:
    """Replace the functions of the language; launches and calls inside find them replaced and change nothing."""
    import triton.language as tl
    from triton.runtime import interpreter

    kernels_see = SimpleNamespace(__globals__={"tl": tl, "core": tl.core})  # core is what tl's own library calls
    replaced = interpreter._patch_lang(kernels_see)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_patch_lang", lambda _: interpreter._LangPatchScope())
        patch.setattr(interpreter, "_get_np_dtype", _dtypes_by_name(interpreter._get_np_dtype))
        patch.setattr(tl.core, "_type_for_tuple_values", _shapes_remembered(tl.core._type_for_tuple_values))
        yield
    replaced.restore()


def _dtypes_by_name(plain: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The dtype of numpy for a type of Triton; `plain` fills a table of all types at each call."""
    found: dict[str, Any] = {}

    def dtype(kind: Any) -> Any:
        name = kind.scalar.name
        if name not in found:
            found[name] = plain(kind)
        return found[name]

    return dtype


def _shapes_remembered(plain: Callable[..., Any]) -> Callable[..., Any]:
    """The types of the entries of a shape: it is made of whole numbers, and there are few shapes."""
    shape = cache(lambda values: plain(list(values)))

    def types(values: list[Any], fields: Any = None) -> Any:
        if fields is None and all(type(value) is int for value in values):
            return shape(tuple(values))
        return plain(values, fields)

    return types
