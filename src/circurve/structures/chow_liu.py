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
from circurve.structures.mutual_information import InformationBlocks
from circurve.structures.spanning import Forest
from circurve.structures.tree import Tree, root_at_centre
from circurve.words import counted

__all__ = ["chow_liu", "chow_liu_tree"]

MAX_TREE_STATES = 256
"""The most states of a column of `chow_liu`: an edge between two such columns has 65,536 weights."""


def chow_liu_tree(
    data: object,
    families: Families | Family | None = None,
    pseudocount: float = 1.0,
    bins: int = 8,
    missing: int | None = None,
    memory_budget: int | None = None,
) -> Tree:
    """The tree over the columns of data (N, V) with the largest sum of mutual information, rooted at its centre.

    Among trees of equal weight the choice depends on the order of the columns only, not on the machine. Computing the
    mutual information takes longest. Its matrix is never whole in memory: blocks of columns go one by one into a
    spanning forest, which is O(V) in addition to one block.

    Parameters
    ----------
    data : array, data frame or Table
        NaN marks a missing value; a pair of columns is compared in the rows where both are observed. Rows count by
        their weights, if `Examples` gave them some: weight 2 as two rows, weight 0 as none.
    families : Family or sequence of Family, optional
        The families of the columns; None infers them.
    pseudocount : float, default 1
        Added to the counts of each pair of columns, as this many samples in which the two are independent. A sample
        has weight 1; if the weights w of the rows are smaller, sum w^2 / sum w.
    bins : int, default 8
        Real numbers are divided into this many parts of equal count.
    missing : int, optional
        A number that marks missing values, in addition to NaN.
    memory_budget : int, optional
        Memory limit for finding the tree, in bytes; checked before memory is allocated. None is the free memory.

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
    blocks = InformationBlocks.of(data, families, pseudocount, bins, missing)
    blocks.need().left(memory_budget)
    forest = Forest.empty(blocks.variables)
    for a, b, part in blocks:
        forest = forest.with_block(a, b, part)
    parents = root_at_centre(forest.links())
    information = np.zeros(len(parents))
    for u, v, weight in zip(*forest.edges, forest.weights, strict=True):
        information[v if parents[v] == u else u] = weight
    return Tree(parents, information)


def chow_liu(
    data: object,
    families: Families | Family | None = None,
    tree: Tree | Sequence[int] | NDArray[np.integer] | None = None,
    missing: int | None = None,
    schema: Schema | None = None,
    memory_budget: int | None = None,
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
        NaN marks a missing value. Rows count by their weights, as in `chow_liu_tree`.
    families : Family or sequence of Family, optional
        Instead of `schema`: the families of the numbers in the data.
    tree : Tree or sequence of int, optional
        Parents of the variables, -1 at the root; None is `chow_liu_tree(data)`.
    missing : int, optional
        A number that marks missing values, in addition to NaN.
    schema : Schema, optional
        What the columns mean; None is `infer_schema(data)`. In the circuit's own, every family is an `Indicator`.
    memory_budget : int, optional
        Memory limit for finding the tree, in bytes; checked before memory is allocated. None is the free memory.

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
        tree = chow_liu_tree(table, schema.families, memory_budget=memory_budget)
    elif not isinstance(tree, Tree):
        tree = Tree(tree)
    if len(tree) != len(schema):
        raise OptionError(f"tree has {counted(len(tree), 'variable')}, the data has {len(schema)}")
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
        problem = "not finitely many values" if support is None else counted(len(support), "value")
        raise OptionError(
            f"{label} is {family!r}, with {problem}; chow_liu takes columns of at most {MAX_TREE_STATES} states: "
            f"divide it into categories, leave it out, or use hclt"
        )
    return tuple(support)
