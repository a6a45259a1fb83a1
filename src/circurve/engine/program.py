"""A compiled circuit: plain records of index arrays, layer by layer, for any number of runs and any device.

Values and flows live in two *spaces*. A space is a list of blocks of rows, one row for each unit; a block is
what one layer writes, so each block is contiguous and a sum layer is one batched matrix product over it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from circurve.graph import Circuit, Input, Node, Product, Sum
from circurve.inputs import Family

__all__ = [
    "Column",
    "Folds",
    "InputLayer",
    "Layer",
    "ProductLayer",
    "Program",
    "Space",
    "SumLayer",
    "Tail",
    "Wiring",
    "is_range",
]

Index: TypeAlias = NDArray[np.int64]


def is_range(rows: Index) -> bool:
    """Whether each row is the one after the row before it."""
    return len(rows) < 2 or bool((rows[1:] - rows[:-1] == 1).all())


@dataclass(frozen=True)
class Space:
    """Rows in blocks. Block b holds rows starts[b] .. starts[b] + sizes[b] - 1."""

    starts: Index
    sizes: Index

    @property
    def rows(self) -> int:
        """All rows of the space, for one run."""
        return int(self.starts[-1] + self.sizes[-1]) if len(self.starts) else 0

    def block_of(self, rows: Index) -> Index:  # (P,) -> (P,)
        """The block that holds each row."""
        found: Index = np.searchsorted(self.starts, rows, side="right") - 1
        return found

    def span(self, block: int) -> slice:
        """The rows of a block."""
        start = int(self.starts[block])
        return slice(start, start + int(self.sizes[block]))

    def whole_block(self, rows: Index) -> int | None:
        """The block whose rows are exactly these, in their order; None if there is none."""
        if not len(rows):
            return None
        block = int(np.searchsorted(self.starts, rows[0], side="right")) - 1
        whole = len(rows) == self.sizes[block] and rows[0] == self.starts[block] and is_range(rows)
        return block if whole else None


@dataclass(frozen=True)
class Column:
    """The j-th source row of each target: `targets` is None for all of them, a count for the first ones, or a list."""

    sources: Index
    targets: int | Index | None


@dataclass(frozen=True)
class Tail:
    """The sources beyond the columns, for targets with very many: a compressed sparse row list."""

    targets: Index
    sources: Index
    offsets: Index


@dataclass(frozen=True)
class Wiring:
    """For each target, the source rows that are added up: children of a product (logs), parents of a node (flows)."""

    targets: int
    columns: tuple[Column, ...]
    tail: Tail | None = None

    @property
    def single(self) -> Index | None:
        """The sources, where each target has exactly one."""
        only = len(self.columns) == 1 and self.columns[0].targets is None and self.tail is None
        return self.columns[0].sources if only else None

    def edges(self) -> tuple[Index, Index]:
        """(target, source) of every edge, ordered by target and, within a target, as the sources were given."""
        if self.tail is None and all(column.targets is None for column in self.columns):
            every = np.stack([column.sources for column in self.columns], axis=1)  # (targets, columns)
            return np.repeat(np.arange(self.targets), every.shape[1]), every.ravel()
        targets, sources = [], []
        for column in self.columns:
            at = column.targets
            targets.append(np.arange(len(column.sources)) if at is None or isinstance(at, int) else at)
            sources.append(column.sources)
        if self.tail is not None:
            sizes = np.diff(self.tail.offsets, append=len(self.tail.sources))
            targets.append(np.repeat(self.tail.targets, sizes))
            sources.append(self.tail.sources)
        target, source = np.concatenate(targets), np.concatenate(sources)
        order = np.argsort(target, kind="stable")
        return target[order], source[order]


@dataclass(frozen=True)
class InputLayer:
    """G inputs of one family with K units each."""

    family: Family
    nodes: tuple[Input, ...] = field(repr=False)
    units: int
    block: int
    flow: Wiring = field(repr=False)

    @property
    def shape(self) -> tuple[int, int]:
        """(G, K)."""
        return len(self.nodes), self.units


@dataclass(frozen=True)
class ProductLayer:
    """Products of one depth, as rows: the sum of their children's logs.

    Rows with one parent share its flow; `flow` gathers the others into flow block `flow_block`.
    """

    nodes: tuple[Product, ...] = field(repr=False)
    block: int
    children: Wiring = field(repr=False)
    slots: Index = field(repr=False)
    """The flow row of each product row: its own, its only parent's, or the zero row."""

    flow_block: int | None
    flow: Wiring | None = field(repr=False)


@dataclass(frozen=True)
class SumLayer:
    """G sums of one depth with K units over C child units each: one batched matrix product."""

    nodes: tuple[Sum, ...] = field(repr=False)
    units: int
    child_units: int
    block: int
    children: Wiring = field(repr=False)
    """One source row for each of the G x C elements."""

    owns_children: bool
    """The elements are exactly one block that nothing else reads: they may be overwritten in place."""

    flow_block: int
    """Where the flows of the G x C elements go."""

    flow: Wiring = field(repr=False)
    mask: NDArray[np.bool_] | None = field(repr=False)  # (G, K, C)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(G, K, C)."""
        return len(self.nodes), self.units, self.child_units


Layer: TypeAlias = ProductLayer | SumLayer


@dataclass(frozen=True, eq=False)
class Folds:
    """Which nodes of a circuit are computed together, in the order of computation: what parameters are laid out by.

    This is the first step of compiling, and takes a tenth of its time.
    """

    circuit: Circuit
    nodes: tuple[tuple[Node, ...], ...] = field(repr=False)

    @property
    def sum_nodes(self) -> tuple[tuple[Sum, ...], ...]:
        """The sums of each sum layer."""
        return tuple(fold for fold in self.nodes if isinstance(fold[0], Sum))  # type: ignore[misc]

    @property
    def input_nodes(self) -> tuple[tuple[Input, ...], ...]:
        """The inputs of each input layer."""
        return tuple(fold for fold in self.nodes if isinstance(fold[0], Input))  # type: ignore[misc]


@dataclass(frozen=True, eq=False)
class Program:
    """A circuit in the form the backends execute: `inputs` first, then `layers` in order; flows go backwards."""

    circuit: Circuit
    inputs: tuple[InputLayer, ...]
    layers: tuple[Layer, ...]
    values: Space = field(repr=False)
    flows: Space = field(repr=False)
    roots: Index = field(repr=False)
    """The rows of the outputs."""

    ROOT_FLOWS = 1
    """The flow block of the outputs; block 0 is a single zero row, the flow of an unused unit."""

    @cached_property
    def sums(self) -> tuple[SumLayer, ...]:
        """The sum layers, children before parents: the order of all weight tensors."""
        return tuple(layer for layer in self.layers if isinstance(layer, SumLayer))

    @property
    def sum_nodes(self) -> tuple[tuple[Sum, ...], ...]:
        """The sums of each sum layer."""
        return tuple(layer.nodes for layer in self.sums)

    @property
    def input_nodes(self) -> tuple[tuple[Input, ...], ...]:
        """The inputs of each input layer."""
        return tuple(layer.nodes for layer in self.inputs)

    @cached_property
    def unit_starts(self) -> Index:  # (sum layers + 1,)
        """The number of the first unit of each sum layer among all sum units; the last entry counts them all."""
        sizes = [layer.shape[0] * layer.shape[1] for layer in self.sums]
        return np.cumsum([0, *sizes], dtype=np.int64)

    @property
    def units(self) -> int:
        """M, the number of all sum units."""
        return int(self.unit_starts[-1])

    @property
    def parameters(self) -> int:
        """How many numbers the parameters of one run are, those that a mask leaves out counted."""
        weights = sum(prod(layer.shape) for layer in self.sums)
        return weights + sum(prod(layer.shape) * layer.family.parameter_count for layer in self.inputs)

    @property
    def masked(self) -> bool:
        """Whether any sum lacks edges."""
        return any(layer.mask is not None for layer in self.sums)

    def describe(self) -> str:
        """One line for each layer: what is folded into what shape."""
        lines = [f"{len(self.inputs)} input layers, {len(self.layers)} layers, {self.values.rows:,} rows"]
        for inputs in self.inputs:
            g, k = inputs.shape
            lines.append(f"input    {g:>6} x {k:<5} {inputs.family!r}")
        for layer in self.layers:
            if isinstance(layer, ProductLayer):
                lines.append(f"product  {layer.children.targets:>6} rows, {len(layer.children.columns)} columns")
            else:
                g, k, c = layer.shape
                masked = "  masked" if layer.mask is not None else ""
                lines.append(f"sum      {g:>6} x {k} x {c}{masked}")
        return "\n".join(lines)
