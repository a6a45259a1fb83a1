"""The nodes of a circuit: frozen vectors of units, without parameters.

A node is a vector of `units`. `Sum` mixes all units of its children with a weight block (units x total child
units); `Product` multiplies its children unit by unit; `Input` is a vector of univariate distributions of one
variable. Two nodes are equal only if they are the same object.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from circurve.errors import StructureError
from circurve.inputs import Family
from circurve.words import counted

__all__ = ["Input", "Node", "Product", "Sum"]

_set = object.__setattr__  # how a frozen node gets its fields


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Input:
    """A vector of `units` distributions of one family over one column.

    Parameters
    ----------
    variable : int
        The number of the column, from 0.
    family : Family
        What the column holds: `Bernoulli()`, `Categorical(3)`, `Gaussian()`, ...
    units : int, default 1
        How many distributions, each with parameters of its own.
    name : str, optional
        What messages call the node.

    Examples
    --------
    >>> import circurve as cc
    >>> cc.Input(0, cc.Bernoulli(), units=3, name="rain")
    <Input 'rain': variable 0, Bernoulli(), 3 units>
    """

    variable: int
    family: Family
    units: int = 1
    name: str | None = None

    def __post_init__(self) -> None:
        if not _is_count(self.variable, at_least=0):
            raise StructureError(f"{_label(self)}: variable must be a column number >= 0, not {self.variable!r}")
        if not isinstance(self.family, Family):
            raise StructureError(f"{_label(self)}: family must be an input family, not {self.family!r}")
        _check_units(self)
        if type(self.variable) is not int:
            _set(self, "variable", int(self.variable))
        problem = self.family.check_units(self.units)
        if problem is not None:
            raise StructureError(f"{_label(self)}: {problem}")

    @property
    def children(self) -> tuple[Node, ...]:
        """An input has no children."""
        return ()

    def __repr__(self) -> str:
        return f"<{_label(self)}: variable {self.variable}, {self.family!r}, {counted(self.units, 'unit')}>"


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True, init=False)
class Product:
    """A vector of products: unit u multiplies unit u of all children, or the units that `select` names.

    Parameters
    ----------
    children : Node or iterable of Node
        Nodes over different variables.
    select : list, optional
        For each child None, or one child unit for each unit of the product.
    name : str, optional
        What messages call the node.

    Examples
    --------
    >>> import circurve as cc
    >>> rain, wind = (cc.Input(v, cc.Bernoulli(), units=2) for v in range(2))
    >>> cc.Product([rain, wind])  # two units
    <Product: 2 children, 2 units>
    >>> cc.Product([rain, wind], select=[[0, 0, 1, 1], [0, 1, 0, 1]])  # all four pairs
    <Product: 2 children, 4 units>
    """

    children: tuple[Node, ...]
    select: tuple[NDArray[np.int64] | None, ...]
    units: int
    name: str | None

    def __init__(
        self,
        children: Node | Iterable[Node],
        select: Sequence[Sequence[int] | NDArray[np.integer] | None] | None = None,
        name: str | None = None,
    ) -> None:
        _set(self, "name", name)
        listed = _as_children(self, children)
        _set(self, "children", listed)
        chosen = _as_selections(self, select)
        _set(self, "select", chosen)
        widths = [c.units if s is None else len(s) for s, c in zip(chosen, listed, strict=True)]
        if widths.count(widths[0]) != len(widths):
            raise _different_widths(self, widths)
        _set(self, "units", widths[0])

    def __repr__(self) -> str:
        return f"<{_label(self)}: {counted(len(self.children), 'child', 'children')}, {counted(self.units, 'unit')}>"


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True, init=False)
class Sum:
    """A vector of `units` mixtures of all units of the children, taken one child after the other.

    Parameters
    ----------
    children : Node or iterable of Node
        Nodes over the same variables.
    units : int, default 1
        How many mixtures, each with weights of its own.
    mask : array of bool, optional
        (units, child units): which edges exist; None means all of them.
    name : str, optional
        What messages call the node.

    Examples
    --------
    >>> import circurve as cc
    >>> mixture = cc.Sum(cc.Input(0, cc.Gaussian(), units=3), units=2, name="mixture")
    >>> mixture
    <Sum 'mixture': 1 child, 2 x 3 weights>
    >>> mixture.edges
    6
    """

    children: tuple[Node, ...]
    units: int
    mask: NDArray[np.bool_] | None
    name: str | None
    child_units: int
    """C, the total number of child units: the width of the weight block."""

    def __init__(
        self,
        children: Node | Iterable[Node],
        units: int = 1,
        mask: Sequence[Sequence[bool]] | NDArray[np.bool_] | None = None,
        name: str | None = None,
    ) -> None:
        _set(self, "name", name)
        _set(self, "units", units)
        listed = _as_children(self, children)
        _set(self, "children", listed)
        _set(self, "child_units", sum([child.units for child in listed]))
        _check_units(self)
        _set(self, "mask", None if mask is None else _as_mask(self, mask))

    @property
    def edges(self) -> int:
        """How many weights the block holds, masked ones not counted."""
        return self.units * self.child_units if self.mask is None else int(self.mask.sum())

    def __repr__(self) -> str:
        children = counted(len(self.children), "child", "children")
        return f"<{_label(self)}: {children}, {self.units} x {self.child_units} weights>"


Node: TypeAlias = Input | Product | Sum

NODE_TYPES = (Input, Product, Sum)

FEW = 64
"""Arrays of at most this many numbers are looked through as lists."""


def _kind(node: object) -> str:
    return type(node).__name__


def _label(node: Node) -> str:
    return f"{_kind(node)} '{node.name}'" if node.name else _kind(node)


def _is_count(value: object, at_least: int) -> bool:
    if type(value) is int:
        return value >= at_least
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= at_least


def _check_units(node: Input | Sum) -> None:
    if not _is_count(node.units, at_least=1):
        raise StructureError(f"{_label(node)}: units must be a whole number >= 1, not {node.units!r}")
    if type(node.units) is not int:
        _set(node, "units", int(node.units))


def _as_children(parent: Node, children: Node | Iterable[Node]) -> tuple[Node, ...]:
    listed = (children,) if isinstance(children, NODE_TYPES) else tuple(children)
    if not listed:
        raise StructureError(f"{_label(parent)}: needs at least one child")
    for child in listed:
        if not isinstance(child, NODE_TYPES):
            raise StructureError(f"{_label(parent)}: a child must be an Input, Product or Sum, not {child!r}")
    return listed


def _different_widths(parent: Product, widths: Sequence[int]) -> StructureError:
    first, wrong = parent.children[0], next(place for place, width in enumerate(widths) if width != widths[0])
    child = parent.children[wrong]
    return StructureError(
        f"{_label(parent)}: child '{child.name or _kind(child)}' gives {counted(widths[wrong], 'unit')}, "
        f"child '{first.name or _kind(first)}' gives {widths[0]}"
    )


def _as_selections(
    parent: Product, select: Sequence[Sequence[int] | NDArray[np.integer] | None] | None
) -> tuple[NDArray[np.int64] | None, ...]:
    count = len(parent.children)
    if select is None:
        return (None,) * count
    chosen = tuple(select)
    if len(chosen) != count:
        raise StructureError(f"{_label(parent)}: select has {len(chosen)} entries for {count} children")
    pairs = zip(chosen, parent.children, strict=True)
    return tuple([None if s is None else _as_selection(parent, s, c) for s, c in pairs])


def _as_selection(parent: Product, select: Sequence[int] | NDArray[np.integer], child: Node) -> NDArray[np.int64]:
    chosen = np.array(select)
    if chosen.ndim != 1 or chosen.size == 0 or chosen.dtype.kind not in "iu":
        raise StructureError(f"{_label(parent)}: select must list unit numbers, not {select!r}")
    # numpy takes longer than Python to look through a few numbers
    listed: Any = chosen if chosen.size > FEW else chosen.tolist()
    low, high = (chosen.min(), chosen.max()) if listed is chosen else (min(listed), max(listed))
    if low < 0 or high >= child.units:
        bad = int(low if low < 0 else high)
        raise StructureError(
            f"{_label(parent)}: select names unit {bad} of child '{child.name or _kind(child)}', "
            f"which has {child.units}"
        )
    if chosen.dtype != np.int64:
        chosen = chosen.astype(np.int64)
    chosen.setflags(write=False)
    return cast("NDArray[np.int64]", chosen)


def _as_mask(parent: Sum, mask: Sequence[Sequence[bool]] | NDArray[np.bool_]) -> NDArray[np.bool_]:
    array = np.array(mask)
    expected = (parent.units, parent.child_units)
    if array.shape != expected or array.dtype.kind != "b":
        raise StructureError(
            f"{_label(parent)}: mask must be boolean of shape {expected}, not {array.dtype} of shape {array.shape}"
        )
    used = np.any(array, axis=1).tolist() if array.size > FEW else list(map(any, array.tolist()))
    if not all(used):
        raise StructureError(f"{_label(parent)}: unit {used.index(False)} has no edge left by the mask")
    array.setflags(write=False)
    return cast("NDArray[np.bool_]", array)
