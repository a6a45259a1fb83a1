"""Program -> what the fused kernels read: lists of factors for each element of a sum, lists of readers for each row.

Products have no memory here: an element of a sum is the sum of the logs of its *factors*, the sums and inputs below its
product (or products, one on top of the other). Backwards, the flow of a row is the sum of the flows of the elements
that have it as a factor. Discrete inputs, and sums directly over one (the leaves of a hidden Chow-Liu tree), have no
memory for samples either: they are *tables* with a column for each state, and a sample picks a column.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from circurve.engine.program import ProductLayer, Program, SumLayer
from circurve.engine.states import has_few_states, leaf_inputs

__all__ = ["Blueprint", "SumPlan", "TablePlan", "Unfit", "draw"]

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]

FACTOR, NOTHING = -1, -2
"""Kinds of a factor that is no table: a row of values, or none."""

MAX_FACTORS = 1 << 24
"""Products of products are multiplied out; circuits that would grow beyond this are left to the reference backend."""


class Unfit(Exception):  # noqa: N818 - not an error: the reference backend takes over
    """Why a program is left to the reference backend."""


@dataclass(frozen=True)
class SumPlan:
    """A sum layer for the kernels. Rows count from 1: row 0 of values and of flows is constant zero."""

    number: int
    """The position among the program's sum layers."""

    shape: tuple[int, int, int]  # G, K, C
    rows: int
    """The first row of its G x K values."""

    elements: int
    """The first row of its G x C elements and of their flows."""

    factors: Ints = field(repr=False)  # (G, J, C), rows of values or of tables
    kinds: Ints = field(repr=False)  # (G, J), the variable of a table, FACTOR or NOTHING
    contiguous: bool
    """Whether the rows of each factor are consecutive, so that the first one determines all."""

    readers: Ints = field(repr=False)  # (G, J', K), flow rows; 0 for none
    masked: bool
    """Whether its units have different children."""


@dataclass(frozen=True)
class TablePlan:
    """An input layer by state, with the sum layer on top of it if that is tabulated too."""

    inputs: int
    sums: int | None
    groups: int
    units: int
    """The units of the sums if there are any, otherwise of the inputs."""

    rows: int
    """The first row of its G x K columns by state, among all tables."""

    variables: Ints = field(repr=False)  # (G,)
    readers: Ints = field(repr=False)  # (G, J', K)


@dataclass(frozen=True)
class RowsPlan:
    """An input layer whose logs are written out for each sample."""

    inputs: int
    shape: tuple[int, int]
    rows: int
    readers: Ints = field(repr=False)  # (G, J', K)


@dataclass(frozen=True)
class Blueprint:
    """All layers, and the sizes of the four kinds of rows."""

    sums: tuple[SumPlan, ...]
    tables: tuple[TablePlan, ...]
    written: tuple[RowsPlan, ...]
    outputs: Ints = field(repr=False)  # value rows of the outputs; their flow rows are 1, 2, ...
    value_rows: int
    flow_rows: int
    table_rows: int
    states: int
    """Columns of a table, without one for missing values."""


def draw(program: Program) -> Blueprint:
    """Lay out a program for the kernels, or raise `Unfit` with the reason."""
    kept = {number for number, layer in enumerate(program.inputs) if has_few_states(layer.family)}
    lists = _Lists(program)
    while True:
        layout = _Layout(program, kept)
        mixed = layout.mixed(lists)
        if not mixed:
            return layout.blueprint(lists)
        kept -= mixed


class _Lists:
    """For each sum layer, which rows of the program's value space are multiplied in each of its elements."""

    def __init__(self, program: Program) -> None:
        rows = program.values.rows
        self._start = np.arange(rows)  # each row is its own only factor until a product says otherwise
        self._count = np.ones(rows, dtype=np.int64)
        self._flat = np.arange(rows)
        self.elements: dict[int, tuple[Longs, Longs]] = {}  # block -> (element, row) pairs, by element
        for layer in program.layers:
            element, row = self._expand(*layer.children.edges())
            if isinstance(layer, SumLayer):
                self.elements[layer.block] = (element, row)
            else:
                self._define(int(program.values.starts[layer.block]), layer, element, row)

    def _expand(self, target: Longs, source: Longs) -> tuple[Longs, Longs]:
        counts = self._count[source]
        if int(counts.sum()) > MAX_FACTORS:
            raise Unfit("products of products have too many factors")
        within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        rows = self._flat[np.repeat(self._start[source], counts) + within]
        return np.repeat(target, counts), rows

    def _define(self, first: int, layer: ProductLayer, element: Longs, row: Longs) -> None:
        size = layer.children.targets
        counts = np.bincount(element, minlength=size)
        self._start[first : first + size] = len(self._flat) + np.cumsum(counts) - counts
        self._count[first : first + size] = counts
        self._flat = np.concatenate([self._flat, row])


class _Layout:
    """The position of each row of the program's value space, given which input layers are tables."""

    def __init__(self, program: Program, kept: set[int]) -> None:
        self.program, self.kept = program, kept
        self.leaves = {block: number for block, number in leaf_inputs(program).items() if number in kept}
        on_top = {number: block for block, number in self.leaves.items()}
        rows = program.values.rows
        self.place = np.zeros(rows, dtype=np.int64)
        self.variable = np.full(rows, NOTHING, dtype=np.int64)
        self.hidden = np.zeros(rows, dtype=bool)
        """Rows that only their own table reads: inputs below a tabulated sum."""

        self.values, self.table_rows = 1, 0
        self.first: dict[int, int] = {}  # block -> first row
        for number, layer in enumerate(program.inputs):
            variables = np.repeat([node.variable for node in layer.nodes], layer.units)
            if number in on_top:
                self.hidden[program.values.span(layer.block)] = True
                units = program.values.sizes[on_top[number]] // len(layer.nodes)
                self._tabulate(on_top[number], np.repeat([node.variable for node in layer.nodes], units))
            elif number in kept:
                self._tabulate(layer.block, variables)
            else:
                self._write(layer.block)
        for sums in program.sums:
            if sums.block not in self.leaves:
                self._write(sums.block)

    def _tabulate(self, block: int, variables: Longs) -> None:
        self.first[block] = self.table_rows
        span = self.program.values.span(block)
        self.place[span] = self.table_rows + np.arange(span.stop - span.start)
        self.variable[span] = variables
        self.table_rows += span.stop - span.start

    def _write(self, block: int) -> None:
        self.first[block] = self.values
        span = self.program.values.span(block)
        self.place[span] = self.values + np.arange(span.stop - span.start)
        self.variable[span] = FACTOR
        self.values += span.stop - span.start

    def mixed(self, lists: _Lists) -> set[int]:
        """Input layers that cannot be tables: some group of elements would need tables of several variables at once."""
        found: set[int] = set()
        blocks = {layer.block: number for number, layer in enumerate(self.program.inputs)}
        for layer in self.program.sums:
            if layer.block in self.leaves:
                continue
            rows, _, kinds = self._matrix(layer, lists)
            wrong = (kinds.min(axis=2) != kinds.max(axis=2))[..., None] & (kinds >= 0)
            for row in np.unique(rows[wrong]):
                block = int(self.program.values.block_of(row[None])[0])
                found.add(self.leaves.get(block, blocks.get(block, -1)))
        return found

    def _matrix(self, layer: SumLayer, lists: _Lists) -> tuple[Longs, Longs, Longs]:
        """(G, J, C) arrays: program rows, rows of values or tables, kinds."""
        g, _, c = layer.shape
        element, row = lists.elements[layer.block]
        counts = np.bincount(element, minlength=g * c)
        position = np.arange(len(element)) - np.repeat(np.cumsum(counts) - counts, counts)
        width = _few_widths(int(counts.max()))
        rows = np.zeros((g * c, width), dtype=np.int64)
        places = np.zeros((g * c, width), dtype=np.int64)
        kinds = np.full((g * c, width), NOTHING, dtype=np.int64)
        rows[element, position] = row
        places[element, position] = self.place[row]
        kinds[element, position] = self.variable[row]

        def shaped(array: Longs) -> Longs:
            return array.reshape(g, c, width).transpose(0, 2, 1)

        return shaped(rows), shaped(places), shaped(kinds)

    def blueprint(self, lists: _Lists) -> Blueprint:
        """Everything in its final form."""
        program = self.program
        outputs = len(program.roots)
        if np.any(self.variable[program.roots] != FACTOR):
            raise Unfit("an output is a product or a single input")
        next_element = 1 + outputs
        made: list[tuple[SumLayer, int, int, Ints, Ints]] = []  # layer, number, first element, factors, kinds
        uses: list[tuple[Longs, Longs]] = [(program.roots, np.arange(1, 1 + outputs))]  # (program row, flow row)
        for number, layer in enumerate(program.sums):
            if layer.block in self.leaves:
                continue
            _, places, kinds = self._matrix(layer, lists)
            element, row = lists.elements[layer.block]
            uses.append((row, next_element + element))
            group = np.where((kinds == FACTOR).any(axis=2), FACTOR, kinds.max(axis=2))
            factors = np.where(kinds == NOTHING, 0, places)  # a missing factor of a mixed group reads the zero row
            made.append((layer, number, next_element, _ints(factors), _ints(group)))
            next_element += layer.shape[0] * layer.shape[2]
        readers = _Readers(program, uses)
        sums = tuple(
            SumPlan(
                number=number,
                shape=layer.shape,
                rows=self.first[layer.block],
                elements=elements,
                factors=factors,
                kinds=kinds,
                contiguous=bool(((np.diff(factors, axis=2) == 1) | (kinds == NOTHING)[..., None]).all()),
                readers=readers.of(layer.block, layer.shape[1]),
                masked=layer.mask is not None,
            )
            for layer, number, elements, factors, kinds in made
        )
        numbers = {layer.block: number for number, layer in enumerate(program.sums)}
        tops = {number: block for block, number in self.leaves.items()}
        tables, written = [], []
        for number, inputs in enumerate(program.inputs):
            if number not in self.kept:
                shape = inputs.shape
                written.append(RowsPlan(number, shape, self.first[inputs.block], readers.of(inputs.block, shape[1])))
                continue
            block = tops.get(number, inputs.block)
            units = int(program.values.sizes[block]) // len(inputs.nodes)
            variables = _ints(np.array([node.variable for node in inputs.nodes]))
            top = numbers.get(block)
            first = self.first[block]
            tables.append(TablePlan(number, top, len(inputs.nodes), units, first, variables, readers.of(block, units)))
        supports = [len(program.inputs[n].family.support() or ()) for n in self.kept]
        return Blueprint(
            sums=sums,
            tables=tuple(tables),
            written=tuple(written),
            outputs=_ints(self.place[program.roots]),
            value_rows=self.values,
            flow_rows=next_element,
            table_rows=self.table_rows,
            states=max(supports, default=0),
        )


class _Readers:
    """For each row of the program's value space, the flow rows of the elements that read it."""

    def __init__(self, program: Program, uses: list[tuple[Longs, Longs]]) -> None:
        self._values = program.values
        rows = np.concatenate([row for row, _ in uses])
        flows = np.concatenate([flow for _, flow in uses])
        order = np.argsort(rows, kind="stable")
        self._flows = flows[order]
        self._counts = np.bincount(rows, minlength=program.values.rows)
        self._starts = np.cumsum(self._counts) - self._counts

    def of(self, block: int, units: int) -> Ints:  # (G, J', K)
        """The readers of a block's rows, 0 where there are no more."""
        span = self._values.span(block)
        size, counts, starts = span.stop - span.start, self._counts[span], self._starts[span]
        width = max(1, int(counts.max(initial=0)))
        lists = np.zeros((size, width), dtype=np.int64)
        for j in range(width):
            has = counts > j
            lists[has, j] = self._flows[starts[has] + j]
        return _ints(lists.reshape(size // units, units, width).transpose(0, 2, 1))


def _few_widths(width: int) -> int:
    """Rounded up to an even number: for small ones a kernel is compiled for each of them."""
    return width + width % 2


def _ints(array: Longs) -> Ints:
    return np.ascontiguousarray(array, dtype=np.int32)
