"""Random binary trees over the variables: random tensorised circuits (RAT-SPN; Peharz et al., 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from circurve.errors import OptionError
from circurve.graph import Circuit, Node, Product, Sum
from circurve.inputs import Family
from circurve.structures.arguments import Families, as_families, check_count, schema_of
from circurve.structures.mixture import factorized_node

__all__ = ["random_binary_trees"]


@dataclass(frozen=True)
class Region:
    """A set of variables; `path` leads to it from all variables, 0 and 1 for the first and second half."""

    variables: tuple[int, ...]
    path: str = ""


def random_binary_trees(
    families: Families,
    units: int,
    repetitions: int,
    depth: int | None = None,
    seed: int = 0,
    product: Literal["outer", "unitwise"] = "outer",
) -> Circuit:
    """A mixture of `repetitions` random trees, each splitting the variables in halves `depth` times.

    A region of variables that is split has `units` (K) sums over the products of its halves. A region that is not
    split has K products of inputs, so a depth of 0 makes it a mixture. Halves differ by one variable at most; a single
    variable is not split further. One root sum mixes the products at the top of all trees. No two trees share a node.
    Building it is O(repetitions V log V).

    Parameters
    ----------
    families : sequence of Family, (Family, int), int or Schema
        One for each variable; `(family, count)`; or a count of binary variables.
    units : int
        K, the units of each region.
    repetitions : int
        How many trees are mixed.
    depth : int, optional
        How often variables are split; None splits until only single ones are left.
    seed : int, default 0
        Fixes the splits.
    product : {"outer", "unitwise"}, default "outer"
        A split region mixes all K^2 pairs of units of its halves (K^3 weights), or pairs of equal number (K^2 weights).

    Returns
    -------
    Circuit
        One sum at the root over the trees.

    Raises
    ------
    OptionError
        If an option is out of range.

    Examples
    --------
    >>> import circurve as cc
    >>> cc.random_binary_trees(16, units=4, repetitions=2, seed=0)
    <Circuit: 16 variables, 91 nodes, 1 output>
    """
    check_count("units", units)
    check_count("repetitions", repetitions)
    check_count("seed", seed, at_least=0)
    if depth is not None:
        check_count("depth", depth, at_least=0)
    if product not in ("outer", "unitwise"):
        raise OptionError(f"product must be 'outer' or 'unitwise', not {product!r}")
    chosen = as_families(families)
    generator = np.random.default_rng(seed)
    tops = []
    for repetition in range(repetitions):
        levels = _random_splits(len(chosen), depth, generator)
        tops.append(_top_node(levels, chosen, units, product == "outer", f"{repetition}/"))
    return Circuit(Sum(tops, 1, name="root"), schema=schema_of(families))


def _random_splits(variables: int, depth: int | None, generator: np.random.Generator) -> list[list[Region]]:
    """The regions of a tree level by level from the top; the two halves of a region have its path and one digit."""
    levels = [[Region(tuple(range(variables)))]]
    while depth is None or len(levels) <= depth:
        halves = [half for region in levels[-1] if len(region.variables) > 1 for half in _halves(region, generator)]
        if not halves:
            break
        levels.append(halves)
    return levels


def _halves(region: Region, generator: np.random.Generator) -> tuple[Region, Region]:
    mixed = generator.permutation(region.variables).tolist()
    cut = (len(mixed) + 1) // 2
    return Region(tuple(sorted(mixed[:cut])), region.path + "0"), Region(tuple(sorted(mixed[cut:])), region.path + "1")


def _top_node(
    levels: Sequence[Sequence[Region]], families: Sequence[Family], units: int, outer: bool, label: str
) -> Node:
    """The product at the top of one tree (the input or factorised leaf, where nothing was split), built from below."""
    nodes: dict[str, Node] = {}
    numbers = np.arange(units)
    pairs = [np.repeat(numbers, units), np.tile(numbers, units)] if outer else None  # all K^2 pairs of units
    for region in (region for level in reversed(levels) for region in level):
        name = f" {label}{region.path}"
        first, second = nodes.get(region.path + "0"), nodes.get(region.path + "1")
        if first is None or second is None:
            nodes[region.path] = factorized_node(region.variables, families, units, name)
        else:
            product = Product([first, second], pairs, name=f"product{name}")
            nodes[region.path] = Sum(product, units, name=f"sum{name}") if region.path else product
    return nodes[""]
