"""The factors of products as joint tables: a few variables at a time, with a column for each of their joint states.

A product's factors depend on the sample only through the states of their variables. Some of them, with a few joint
states together, make one table, K values for each state; a sample picks a column. The layout is decided here, once for
data without missing values and once for data with them, where each variable has one state more.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby, islice

import torch
from torch import Tensor

from circurve.engine.tree.layout import Factor, Segment, TreeLayout, packed, segments

__all__ = ["JointPlan", "JointPlans", "TableShape", "TableSpan", "plan_tables"]


@dataclass(frozen=True)
class TableShape:
    """All tables over factors with the same numbers of states; the state of the first factor counts fastest."""

    sizes: tuple[int, ...]
    """The states of the first, second, ... factor of each table."""

    count: int
    """How many tables."""

    row: int
    """Joint states of all tables before."""

    factors: tuple[Tensor, ...]
    """The base rows of the first, second, ... factor of each table, (count, its states)."""

    variables: tuple[Tensor, ...]
    """The variable of the first, second, ... factor of each table, (count,)."""

    @property
    def states(self) -> int:
        """S, the joint states of each table."""
        return math.prod(self.sizes)


@dataclass(frozen=True)
class TableSpan:
    """Tables of one shape for a segment of places of a level, whose partners count among the tables of that shape."""

    shape: int
    segment: Segment
    position: int
    """How many tables these products have before: the first is written, the others are multiplied in."""

    whole: bool
    """True if these products are this table and nothing else."""


@dataclass(frozen=True)
class JointPlan:
    """The layout of the tables. A base row is one state of one factor."""

    shapes: tuple[TableShape, ...]
    spans: tuple[tuple[TableSpan, ...], ...]
    """For each level."""

    layers: dict[int, Tensor]
    """The base rows of all factors by input layer, (G, states)."""

    missing: Tensor | None
    """The state that means a missing value, for each variable, (V, 1, 1)."""

    @property
    def rows(self) -> int:
        """Joint states of all tables."""
        return self.shapes[-1].row + self.shapes[-1].count * self.shapes[-1].states

    @property
    def base_rows(self) -> int:
        """States of all factors."""
        return sum(rows.numel() for rows in self.layers.values())

    @cached_property
    def first_tables(self) -> Tensor:
        """The first table of each product, level by level: its number among the tables of all shapes."""
        starts = list(accumulate((shape.count for shape in self.shapes), initial=0))
        firsts: list[int] = []
        for level in self.spans:
            found: dict[int, int] = {}
            for span in (span for span in level if span.position == 0):
                there, here = span.segment.there, span.segment.here
                numbers = range(starts[span.shape] + there.start, starts[span.shape] + there.stop)
                found.update(zip(range(here.start, here.stop), numbers, strict=True))
            firsts += [found[place] for place in range(len(found))]
        return torch.tensor(firsts)


class JointPlans:
    """Both layouts for a tree, each made when it is first asked for: `plans[missing]`."""

    def __init__(self, tree: TreeLayout) -> None:
        self._tree = tree
        self._made: dict[bool, JointPlan] = {}

    def __getitem__(self, missing: bool) -> JointPlan:
        if missing not in self._made:
            self._made[missing] = plan_tables(self._tree, missing)
        return self._made[missing]


@dataclass(frozen=True)
class _Table:
    sizes: tuple[int, ...]
    level: int
    position: int
    place: int
    whole: bool
    factors: tuple[Factor, ...]


def plan_tables(tree: TreeLayout, missing: bool) -> JointPlan:
    """Lay out the tables of all products."""
    tables = [
        _Table(sizes, number, position, place, place >= level.inner, part)
        for number, level in enumerate(tree.levels)
        for place, factors in enumerate(level.factors)
        for position, (sizes, part) in enumerate(_packed(factors, missing))
    ]
    tables.sort(key=lambda table: (table.sizes, table.level, table.position, table.place))
    base = _base_rows(tree, missing)
    shapes: list[TableShape] = []
    spans: list[list[TableSpan]] = [[] for _ in tree.levels]
    row = 0
    for sizes, group in groupby(tables, key=lambda table: table.sizes):
        members = list(group)
        first = 0
        for (level, position, whole), same in groupby(members, key=lambda t: (t.level, t.position, t.whole)):
            places = [table.place for table in same]
            pairs = ((place, first + i) for i, place in enumerate(places))
            spans[level] += [TableSpan(len(shapes), segment, position, whole) for segment in segments(pairs)]
            first += len(places)
        shapes.append(_shape(sizes, row, members, base))
        row += len(members) * shapes[-1].states
    in_order = tuple(tuple(sorted(level, key=lambda span: span.position)) for level in spans)
    return JointPlan(tuple(shapes), in_order, _by_layer(base), _missing_states(tree) if missing else None)


def _shape(sizes: tuple[int, ...], row: int, members: list[_Table], base: dict[Factor, Tensor]) -> TableShape:
    columns = [[table.factors[i] for table in members] for i in range(len(sizes))]
    factors = tuple(torch.stack([base[factor] for factor in column]) for column in columns)
    variables = tuple(torch.tensor([factor.variable for factor in column]) for column in columns)
    return TableShape(sizes, len(members), row, factors, variables)


def _packed(factors: tuple[Factor, ...], missing: bool) -> Iterator[tuple[tuple[int, ...], tuple[Factor, ...]]]:
    """The factors of each table of a product, with their numbers of states."""
    remaining = iter(factors)
    for sizes in packed(factor.states + missing for factor in factors):
        yield tuple(sizes), tuple(islice(remaining, len(sizes)))


def _base_rows(tree: TreeLayout, missing: bool) -> dict[Factor, Tensor]:
    found, following = {}, 0
    for level in tree.levels:
        for factors in level.factors:
            for factor in factors:
                states = factor.states + missing
                found[factor] = torch.arange(following, following + states)
                following += states
    return found


def _by_layer(base: dict[Factor, Tensor]) -> dict[int, Tensor]:
    members: dict[int, list[Factor]] = defaultdict(list)
    for factor in base:
        members[factor.layer].append(factor)
    in_order = {layer: sorted(listed, key=lambda factor: factor.position) for layer, listed in members.items()}
    return {layer: torch.stack([base[factor] for factor in listed]) for layer, listed in in_order.items()}


def _missing_states(tree: TreeLayout) -> Tensor:
    states = {f.variable: f.states for level in tree.levels for factors in level.factors for f in factors}
    return torch.tensor([states.get(variable, 0) for variable in range(max(states) + 1)]).view(-1, 1, 1)
