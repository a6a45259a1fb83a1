"""Latent trees: recognised in a program, and laid out in levels so that messages need no gathering.

A circuit is a latent tree if every node has one parent, every sum mixes the K units of a single node, and every product
multiplies whole vectors of K units, each of them

    an input with few states, or a sum over such an input (a *leaf*): together the *factors* of the product,
    the *message* of another sum, which has a product as its child.

Hidden Chow-Liu trees, hidden Markov models and mixtures of discrete variables are latent trees. The sums that are no
leaves are in levels by their distance from the root; each has a place in its level, and a product the place of its sum.
Factors are tabulated a few at a time, by the joint states of their variables. *Tabulated* products have a single such
table and no messages: they are a function of the states of a few variables. In each level they come last, after the
*inner* products, which are all others.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from circurve.engine.program import Program
from circurve.engine.states import has_few_states
from circurve.graph import Input, Node, Product, Sum

__all__ = ["Factor", "Leaves", "Level", "Segment", "TreeLayout", "packed", "places", "segments", "tree_layout"]


MAX_JOINT_STATES = 27
"""The most joint states of a table over several factors: four binary ones, or three if values may be missing, which is
one state more. (Measured: wider tables cost more than they save.)"""


@dataclass(frozen=True)
class Factor:
    """K functions of one variable: input number `position` of input layer `layer`, or the leaf above it."""

    variable: int
    states: int
    layer: int
    position: int


@dataclass(frozen=True)
class Leaves:
    """The leaves on one input layer, in the order of its inputs."""

    layer: int
    """The sum layer that they belong to, perhaps among others."""

    positions: slice | tuple[int, ...]
    """Where they are in it; a slice if they are all of it, in its order."""


@dataclass(frozen=True)
class Segment:
    """Places first, first + 1, ... of a level, whose partners elsewhere are other, other + 1, ..."""

    first: int
    other: int
    length: int

    @property
    def here(self) -> slice:
        """The places."""
        return slice(self.first, self.first + self.length)

    @property
    def there(self) -> slice:
        """Their partners."""
        return slice(self.other, self.other + self.length)

    def rows(self, run_parts: int) -> slice:
        """The places where each has a row for each part of each run (see `memory.py`)."""
        return slice(self.first * run_parts, (self.first + self.length) * run_parts)


@dataclass(frozen=True)
class Level:
    """Sums of one distance from the root, each with its product."""

    start: int
    """The number of sums in earlier levels."""

    sums: tuple[tuple[int, int], ...]
    """The sum layer of the program and the position in it, for each place."""

    inner: int
    """How many places, the first ones, have inner products. The root counts as one of them."""

    factors: tuple[tuple[Factor, ...], ...]
    """The factors of each product."""

    messages: tuple[tuple[Segment, ...], ...]
    """The j-th message of each product that has j messages or more: places here and in the next level."""


@dataclass(frozen=True)
class TreeLayout:
    """A program as levels of messages; level 0 holds the root alone."""

    units: int
    outputs: int
    levels: tuple[Level, ...]
    leaves: dict[int, Leaves]
    """By input layer; the inputs of other layers are factors themselves."""

    @property
    def size(self) -> int:
        """How many sums are no leaves."""
        return self.levels[-1].start + len(self.levels[-1].sums)

    @property
    def widest(self) -> int:
        """How many sums the largest level holds."""
        return max(len(level.sums) for level in self.levels)


def tree_layout(program: Program) -> TreeLayout | None:
    """The levels of a program, or None if it is no latent tree."""
    nodes, roots = program.circuit.nodes, program.circuit.roots
    root = roots[0]
    if len(roots) > 1 or not isinstance(root, Sum) or not isinstance(root.children[0], Product):
        return None
    uses = Counter(child for node in nodes for child in node.children)
    if max(uses.values()) > 1 or not all(_fits(node, root) for node in nodes):
        return None
    place = places(program)
    levels: list[Level] = []
    current, start = [root], 0
    while current:
        by_number: dict[int, list[tuple[int, Sum]]] = defaultdict(list)  # the j-th message of each place
        for i, node in enumerate(current):
            for j, message in enumerate(_messages(node)):
                by_number[j].append((i, message))
        following = sorted((message for pairs in by_number.values() for _, message in pairs), key=_order)
        below = {node: i for i, node in enumerate(following)}
        levels.append(
            Level(
                start,
                tuple(place[node] for node in current),
                sum(not _is_tabulated(node) for node in current) if levels else 1,
                tuple(tuple(_factors(node, place)) for node in current),
                tuple(segments((i, below[message]) for i, message in pairs) for pairs in by_number.values()),
            )
        )
        current, start = following, start + len(current)
    return TreeLayout(root.children[0].units, root.units, tuple(levels), _leaves(program, place))


def segments(pairs: Iterable[tuple[int, int]]) -> tuple[Segment, ...]:
    """Pairs of a place and its partner, as segments in which both go up by one."""
    found: list[Segment] = []
    for place, other in pairs:
        last = found[-1] if found else Segment(-1, -1, 0)
        if (place, other) == (last.first + last.length, last.other + last.length):
            found[-1] = Segment(last.first, last.other, last.length + 1)
        else:
            found.append(Segment(place, other, 1))
    return tuple(found)


def packed(sizes: Iterable[int]) -> list[list[int]]:
    """Factors with these numbers of states, in tables of at most MAX_JOINT_STATES joint states: the sizes in each
    table.

    A product without factors has one table of a single state.
    """
    tables: list[list[int]] = [[]]
    for size in sizes:
        if tables[-1] and math.prod(tables[-1]) * size > MAX_JOINT_STATES:
            tables.append([])
        tables[-1].append(size)
    return tables


def _is_leaf(node: Node) -> bool:
    return isinstance(node, Sum) and isinstance(node.children[0], Input)


def _fits(node: Node, root: Sum) -> bool:
    units = root.children[0].units
    if isinstance(node, Input):
        return has_few_states(node.family)
    if isinstance(node, Product):
        whole = all(select is None for select in node.select)
        return whole and node.units == units and not any(isinstance(child, Product) for child in node.children)
    one = len(node.children) == 1 and not isinstance(node.children[0], Sum)
    return one and node.mask is None and (node is root or node.units == units)


def _messages(node: Sum) -> list[Sum]:
    """The messages of the product below a sum."""
    return [child for child in node.children[0].children if isinstance(child, Sum) and not _is_leaf(child)]


def _inputs(node: Sum) -> list[Input]:
    """The inputs of the factors of the product below a sum."""
    children = (child.children[0] if _is_leaf(child) else child for child in node.children[0].children)
    return [child for child in children if isinstance(child, Input)]


def _states(node: Input) -> int:
    support = node.family.support()
    assert support is not None
    return len(support)


def _is_tabulated(node: Sum) -> bool:
    """True if the product below a sum is tabulated, with missing values (more tables) and without."""
    return not _messages(node) and len(packed(_states(each) + 1 for each in _inputs(node))) == 1


def _order(node: Sum) -> tuple[bool, tuple[int, ...]]:
    """Tabulated products last; those with the same numbers of states together, which makes long segments of tables."""
    return _is_tabulated(node), tuple(_states(each) for each in _inputs(node))


def _factors(node: Sum, place: Mapping[Node, tuple[int, int]]) -> Iterable[Factor]:
    for each in _inputs(node):
        yield Factor(each.variable, _states(each), *place[each])


def _leaves(program: Program, place: Mapping[Node, tuple[int, int]]) -> dict[int, Leaves]:
    found = {}
    parents = {node.children[0]: node for node in program.circuit.sums if _is_leaf(node)}
    for number, inputs in enumerate(program.inputs):
        sums = [place[parents[node]] for node in inputs.nodes if node in parents]
        if sums:
            layer, positions = sums[0][0], tuple(position for _, position in sums)
            everything = positions == tuple(range(len(program.sums[layer].nodes)))
            found[number] = Leaves(layer, slice(None) if everything else positions)
    return found


def places(program: Program) -> dict[Node, tuple[int, int]]:
    """Layer number and position of every input and every sum."""
    found: dict[Node, tuple[int, int]] = {}
    for number, inputs in enumerate(program.inputs):
        found.update((node, (number, position)) for position, node in enumerate(inputs.nodes))
    for number, layer in enumerate(program.sums):
        found.update((node, (number, position)) for position, node in enumerate(layer.nodes))
    return found
