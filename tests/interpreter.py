"""Triton's interpreter with less work per call, and the same results.

The interpreter replaces the functions of `triton.language` by ones that compute in numpy. It does so at each launch
and at each call of one jitted function by another, and looks through every name of the language each time: most of the
time of a small kernel. `language_replaced` does it once for the whole process. Of the rest, most goes to types and
shapes, which the interpreter makes and compares again for each operation: here they are made once and remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

__all__ = ["language_replaced"]


@contextmanager
def language_replaced() -> Iterator[None]:
    """Replace the functions of the language; launches and calls inside find them replaced and change nothing.

    Older versions of Triton have another interpreter, which is left as it is.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    if not hasattr(interpreter, "interpreter_semantic"):
        yield
        return
    kernels_see = SimpleNamespace(__globals__={"tl": tl, "core": tl.core})  # core is what tl's own library calls
    replaced = interpreter._patch_lang(kernels_see)
    semantic = type(interpreter.interpreter_semantic)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_patch_lang", lambda _: interpreter._LangPatchScope())
        patch.setattr(interpreter, "_get_np_dtype", _dtypes_by_name(interpreter._get_np_dtype))
        patch.setattr(tl.core, "_type_for_tuple_values", _shapes_remembered(tl.core._type_for_tuple_values))
        patch.setattr(tl.core.dtype, "__eq__", _same_objects(tl.core.dtype.__eq__))
        for name, constructor in _blocks_remembered(tl.core.block_type, tl.core.constexpr).items():
            patch.setattr(tl.core.block_type, name, constructor)
        patch.setattr(tl.core.tensor, "__init__", _sizes_by_type(tl.core.tensor.__init__))
        patch.setattr(semantic, "broadcast_impl_value", _blocks_at_once(semantic.broadcast_impl_value, tl.block_type))
        patch.setattr(semantic, "binary_op_type_checking_impl", _same_types(semantic.binary_op_type_checking_impl, tl))
        patch.setattr(interpreter.InterpreterBuilder, "create_splat", _truths_kept(interpreter.InterpreterBuilder))
        # Looks for overflow of whole numbers, then drops what it found: its assertion is off outside of debugging.
        patch.setattr(semantic, "binary_op_sanitize_overflow_impl", lambda *_: None)
        yield
    replaced.restore()


# -- types


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


def _same_objects(plain: Callable[..., bool]) -> Callable[..., bool]:
    """Equality of types: there is one object of each, and `plain` compares names."""
    return lambda one, other: one is other or plain(one, other)


def _blocks_remembered(block: Any, constant: Any) -> dict[str, Callable[..., Any]]:
    """Constructors of block types: one object for each element and shape. A refused shape is not remembered."""
    made: dict[object, Any] = {}
    plain = block.__init__

    def key(cls: Any, element_ty: Any, shape: Any) -> object:
        sizes = [size.value if type(size) is constant else size for size in shape]
        return cls, element_ty.name, getattr(element_ty, "address_space", None), *sizes

    def new(cls: Any, element_ty: Any, shape: Any) -> Any:
        return made.get(key(cls, element_ty, shape)) or object.__new__(cls)

    def init(self: Any, element_ty: Any, shape: Any) -> None:
        if not self.__dict__:
            plain(self, element_ty, shape)
            made[key(type(self), element_ty, shape)] = self

    return {"__new__": new, "__init__": init}


# -- tensors


def _sizes_by_type(plain: Callable[..., None]) -> Callable[..., None]:
    """The constructor of tensors: their shape, with each number in a wrapper, is made once for each type."""

    def init(self: Any, handle: Any, type: Any) -> None:
        sizes = type.__dict__.get("sizes_of_tensors")
        if sizes is None:
            plain(self, handle, type)
            type.sizes_of_tensors = self.shape, self.numel
        else:
            self.handle, self.type, self.dtype = handle, type, type.scalar
            self.shape, self.numel = sizes

    return init


def _blocks_at_once(plain: Callable[..., Any], block: Any) -> Callable[..., Any]:
    """Broadcasting of two blocks by numpy's rules; `plain` has the same, axis by axis, and refuses other shapes."""

    def broadcast(self: Any, lhs: Any, rhs: Any) -> Any:
        if not (lhs.type.is_block() and rhs.type.is_block()):
            return plain(self, lhs, rhs)
        left, right = lhs.type.shape.values, rhs.type.shape.values
        if left == right:
            return lhs, rhs
        try:
            shape = list(np.broadcast_shapes(left, right))
        except ValueError:
            return plain(self, lhs, rhs)
        return tuple(
            one
            if one.type.shape.values == shape
            else self.tensor(self.builder.create_broadcast(one.handle, shape), block(one.type.scalar, shape))
            for one in (lhs, rhs)
        )

    return broadcast


def _truths_kept(builder: Any) -> Callable[..., Any]:
    """A block of one number. A comparison of numbers is a truth value: Triton 3.9 makes a block of int32 of it."""
    plain = builder.create_splat

    def splat(self: Any, ret_ty: Any, arg: Any) -> Any:
        made = plain(self, ret_ty, arg)
        if arg.data.dtype == np.bool_:
            made.data = made.data.astype(np.bool_)
        return made

    return splat


def _same_types(plain: Callable[..., Any], tl: Any) -> Callable[..., Any]:
    """Operands of one type are neither converted nor broadcast. Left out: short floats, which division makes longer."""
    kept = {tl.int1, tl.int8, tl.int32, tl.int64, tl.float32, tl.float64}

    def checked(self: Any, lhs: Any, rhs: Any, *options: Any, **named: Any) -> Any:
        if type(lhs) is type(rhs) is tl.tensor and lhs.type is rhs.type and lhs.dtype in kept:
            return lhs, rhs
        return plain(self, lhs, rhs, *options, **named)

    return checked
