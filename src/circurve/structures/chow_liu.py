"""The Chow-Liu tree: the maximum spanning tree of pairwise mutual information (Chow and Liu, 1968).

`chow_liu_tree` finds the tree, `chow_liu` makes it a circuit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from circurve.data.convert import column_label
from circurve.errors import OptionError
from circurve.graph import Circuit, Input, Node, Product, Sum
from circurve.inputs import Family, Indicator
from circurve.schema import Schema
from circurve.structures.arguments import Families, as_table_with_schema
from circurve.structures.mutual_information import mutual_information
from circurve.structures.tree import Tree, root_at_centre

__all__ = ["chow_liu", "chow_liu_tree", "maximum_spanning_tree"]

MAX_TREE_STATES = 256
"""The most states of a column of `chow_liu`: an edge between two such columns has 65,536 weights."""

DECIMALS = 12
"""Weights closer than this are ties: the last bits of a logarithm differ between machines, the tree must not."""


def chow_liu_tree(
    data: object,
    families: Families | Family | None = None,
    pseudocount: float = 1.0,
    bins: int = 8,
    missing: int | None = None,
) -> Tree:
    """The tree over the columns of data (N, V) with the largest sum of mutual information, rooted at its centre.

    Among trees of equal weight the choice depends on the order of the columns only, not on the machine. Computing the
    mutual information takes longest; the tree itself is O(V^2 log V).

    Parameters
    ----------
    data : array, data frame or Table
        NaN marks a missing value; a pair of columns is compared in the rows where both are observed.
    families : Family or sequence of Family, optional
        The families of the columns; None infers them.
    pseudocount : float, default 1
        Added to the counts of each pair of columns, spread evenly.
    bins : int, default 8
        Real numbers are cut into so many parts of equal count.
    missing : int, optional
        A number that marks missing values, in addition to NaN.

    Returns
    -------
    Tree
        With `parents`, `information`, `root`, `edges`.

    Examples
    --------
    >>> import circurve as cc
    >>> rows = [[0, 0, 0], [0, 0, 1], [1, 1, 0], [1, 1, 1], [1, 1, 1], [0, 0, 0]]
    >>> tree = cc.chow_liu_tree(rows)
    >>> tree.parents.tolist()
    [-1, 0, 0]
    >>> [(parent, child, round(bits, 3)) for parent, child, bits in tree.edges]
    [(0, 1, 0.436), (0, 2, 0.041)]
    """
    weights = mutual_information(data, families, pseudocount, bins, missing)
    links = maximum_spanning_tree(np.round(weights, DECIMALS))
    parents = root_at_centre(links)
    information = np.where(parents < 0, 0.0, weights[np.arange(len(parents)), parents])
    return Tree(parents, information)


def chow_liu(
    data: object,
    families: Families | Family | None = None,
    tree: Tree | Sequence[int] | NDArray[np.integer] | None = None,
    missing: int | None = None,
    schema: Schema | None = None,
) -> Circuit:
    """The Chow-Liu tree of data (N, V) as a circuit, for columns of finitely many states.

    With S_v the states of variable v, u its parent and c its children in the tree::

        product_v(s) = 1[x_v = s] prod_c sum_c(s),    sum_v(r) = sum_s p(x_v = s | x_u = r) product_v(s),

    and the root is sum_s p(x_root = s) product_root(s). The indicators let one child of each sum be positive at a time,
    so the circuit is deterministic. On complete rows one EM step on all of them is the maximum likelihood solution
    p(s | r) = (n_rs + pseudocount / S_v) / (n_r + pseudocount), and most probable completions are exact. With missing
    values, fit needs more epochs. The circuit has sum_v S_u S_v weights; building it is O(V), finding the tree
    O(N V^2).

    Parameters
    ----------
    data : array, data frame or Table
        NaN marks a missing value.
    families : Family or sequence of Family, optional
        In place of `schema`: the families of the numbers in the data.
    tree : Tree or sequence of int, optional
        Parents of the variables, -1 at the root; None is `chow_liu_tree(data)`.
    missing : int, optional
        A number that marks missing values, in addition to NaN.
    schema : Schema, optional
        What the columns mean; None is `infer_schema(data)`. In the circuit's own, every family is an `Indicator`.

    Returns
    -------
    Circuit
        A deterministic circuit.

    Raises
    ------
    OptionError
        If a column is not discrete, or has more than 256 states.

    Examples
    --------
    >>> import circurve as cc
    >>> rows = [[0, 0, 0], [0, 0, 1], [1, 1, 0], [1, 1, 1], [1, 1, 1], [0, 0, 0]]
    >>> circuit = cc.chow_liu(rows)
    >>> model = cc.fit(circuit, rows, batch_size=None, epochs=1).model  # maximum likelihood in one step
    >>> round(model.conditional({2: 1}, given={1: 1}), 3)
    0.667
    """
    table, schema = as_table_with_schema(data, families, schema, missing)
    states = [_states(schema, v) for v in range(len(schema))]
    if tree is None:
        tree = chow_liu_tree(table, schema.families)
    elif not isinstance(tree, Tree):
        tree = Tree(tree)
    if len(tree) != len(schema):
        raise OptionError(f"tree has {len(tree)} variables, the data has {len(schema)}")
    indicators = [Indicator(own) for own in states]
    columns = [replace(column, family=own) for column, own in zip(schema.columns, indicators, strict=True)]
    return Circuit(
        _root(tree, indicators, schema.names or range(len(tree))), schema=Schema(tuple(columns), schema.ignored)
    )


def _root(tree: Tree, indicators: Sequence[Indicator], names: Sequence[str | int]) -> Sum:
    """The root of the circuit of a tree, built from the leaves. names: of the columns, or their indices."""
    below: list[list[Node]] = [[] for _ in indicators]  # the sums of the children of each variable
    for v in tree.order[::-1].tolist():
        node: Node = Input(v, indicators[v], len(indicators[v].values), name=f"input {names[v]}")
        if below[v]:
            node = Product([node, *below[v]], name=f"product {names[v]}")
        if v != tree.root:
            parent = int(tree.parents[v])
            below[parent].append(Sum(node, len(indicators[parent].values), name=f"sum {names[v]}"))
    return Sum(node, 1, name="root")


def _states(schema: Schema, variable: int) -> tuple[int, ...]:
    """The values of a column; OptionError if they are too many for a table of their own."""
    family = schema.columns[variable].family
    support = family.support() if family.discrete else None
    if support is None or len(support) > MAX_TREE_STATES:
        label = column_label(schema.names, variable)
        problem = "not finitely many values" if support is None else f"{len(support)} values"
        raise OptionError(
            f"{label} is {family!r}, with {problem}; chow_liu takes columns of at most {MAX_TREE_STATES} states: "
            "cut it into categories, leave it out, or use hclt"
        )
    return tuple(support)


def maximum_spanning_tree(weights: NDArray[np.float64]) -> list[tuple[int, int]]:  # (V, V) -> V-1 links
    """The links of a spanning tree of the complete graph with the largest total weight; weights are symmetric.

    The cost of a link is its place in the order from the heaviest to the lightest, the first one winning a tie. A
    spanning tree depends on that order alone, and with distinct costs there is one only, whatever sort scipy uses.
    """
    from scipy.sparse import coo_array  # noqa: PLC0415 - slow to import, and only structures from data need it
    from scipy.sparse.csgraph import minimum_spanning_tree  # noqa: PLC0415

    variables = len(weights)
    u, v = np.triu_indices(variables, k=1)
    costs = np.empty(len(u))
    costs[np.argsort(-weights[u, v], kind="stable")] = np.arange(1, len(u) + 1)
    tree = minimum_spanning_tree(coo_array((costs, (u, v)), shape=(variables, variables)).tocsr()).tocoo()
    return sorted(zip(tree.row.tolist(), tree.col.tolist(), strict=True))
