"""Hidden Chow-Liu trees and hidden Markov models: trees and chains of latents, with the variables hanging on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from circurve.errors import OptionError
from circurve.graph import Circuit, Input, Node, Product, Sum
from circurve.inputs import Family
from circurve.schema import Schema
from circurve.structures.arguments import Families, as_families, as_table_with_schema, check_count, schema_of
from circurve.structures.chow_liu import chow_liu_tree
from circurve.structures.tree import Tree
from circurve.words import counted

__all__ = ["LEAVES", "Leaves", "hclt", "hmm", "latent_tree"]

Leaves: TypeAlias = Literal["own", "shared"]
"""What a variable without children in the tree hangs on: a latent of its own, or the latent of its parent."""

LEAVES: tuple[Leaves, ...] = ("own", "shared")


def hclt(  # noqa: PLR0913 - each parameter is an option
    data: object,
    units: int,
    families: Families | Family | None = None,
    tree: Tree | Sequence[int] | NDArray[np.integer] | None = None,
    missing: int | None = None,
    schema: Schema | None = None,
    *,
    leaves: Leaves = "own",
    memory_budget: int | None = None,
) -> Circuit:
    """The hidden Chow-Liu tree of data (N, V), with `units` states for each latent (Liu and Van den Broeck, 2021).

    With V' variables that have a latent, the circuit has V inputs, V' sums and (V'-1) K^2 + K sum weights; building it
    is O(V), finding the tree O(N V^2) for binary columns.

    Parameters
    ----------
    data : array, data frame, Table or Stream
        The rows whose dependences give the tree; NaN marks a missing value. Rows count by their weights, as in
        `chow_liu_tree`. A stream is read in one pass for the schema and one for the tree; with very many columns,
        evenly spaced rows give the tree. One line says which.
    units : int
        K, the states of each latent. More states give a finer model, at a cost of K^2.
    families : Family or sequence of Family, optional
        Instead of `schema`: the families of the numbers in the data.
    tree : Tree or sequence of int, optional
        Parents of the variables, -1 at the root; None is `chow_liu_tree(data, families)`.
    missing : int, optional
        A number that marks missing values, in addition to NaN.
    schema : Schema, optional
        What the columns mean; None is `infer_schema(data)`. The circuit keeps it.
    leaves : {"own", "shared"}, default "own"
        "own" gives every variable a latent; "shared" lets a variable without children in the tree use the latent of
        its parent.
    memory_budget : int, optional
        Memory limit for finding the tree, in bytes; checked before memory is allocated. None is the free memory.

    Returns
    -------
    Circuit
        One sum for each latent.

    Raises
    ------
    OptionError
        If an option is out of range, or the tree has another number of variables than the data.

    Examples
    --------
    >>> import circurve as cc
    >>> data = cc.load_dataset("digits")
    >>> circuit = cc.hclt(data.train, units=8)
    >>> circuit.describe().sum_units
    505
    """
    check_count("units", units)
    if leaves not in LEAVES:
        raise OptionError(f"leaves must be 'own' or 'shared', not {leaves!r}")
    table, schema = as_table_with_schema(data, families, schema, missing)
    chosen, variables = schema.families, len(schema)
    if tree is None:
        tree = chow_liu_tree(table, chosen, memory_budget=memory_budget)
    elif not isinstance(tree, Tree):
        tree = Tree(tree)
    if len(tree) != variables:
        raise OptionError(f"tree has {counted(len(tree), 'variable')}, the data has {variables}")
    return latent_tree(tree, chosen, units, schema, leaves)


def hmm(families: Families, units: int) -> Circuit:
    """A hidden Markov model over the variables in their order, with `units` states at each step.

    p(x) = sum_z p(z_0) prod_t p(x_t | z_t) prod_{t>0} p(z_t | z_{t-1}); each step has K x K transition weights of its
    own. Building it is O(V).

    Parameters
    ----------
    families : sequence of Family, (Family, int), int or Schema
        One for each variable; `(family, count)`; or a count of binary variables.
    units : int
        K, the number of hidden states.

    Returns
    -------
    Circuit
        One sum for each step.

    Examples
    --------
    >>> import circurve as cc
    >>> cc.hmm((cc.Categorical(4), 10), units=3)  # ten letters of an alphabet of four
    <Circuit: 10 variables, 29 nodes, 1 output>
    """
    check_count("units", units)
    chosen = as_families(families)
    return latent_tree(Tree(np.arange(len(chosen)) - 1), chosen, units, schema_of(families))


def latent_tree(
    tree: Tree, families: Sequence[Family], units: int, schema: Schema | None = None, leaves: Leaves = "own"
) -> Circuit:
    """The circuit of a tree of latents Z_v with K = `units` states, each the cause of its variable X_v.

    With children c of v in the tree, and k the state of Z_v:

        product_v(k) = p(x_v | k) prod_c sum_c(k),    sum_v(k) = sum_j p(Z_v = j | Z_parent = k) product_v(j),

    and the root is sum_k p(Z_root = k) product_root(k). A variable without children needs no product: its input is the
    child of its sum. With leaves="shared" it has no latent either, and sum_v(k) = p(x_v | Z_parent = k) is its input.
    Nodes are named after their columns, `sum age`, or by the columns' indices where these have no names.
    """
    names: Sequence[str | int] = (schema and schema.names) or range(len(tree))
    below: list[list[Node]] = [[] for _ in range(len(tree))]  # what the children give to the product of each variable
    for v in tree.order[::-1].tolist():
        node: Node = Input(v, families[v], units, name=f"input {names[v]}")
        if below[v]:
            node = Product([node, *below[v]], name=f"product {names[v]}")
        if v != tree.root:
            direct = leaves == "shared" and isinstance(node, Input)
            below[tree.parents[v]].append(node if direct else Sum(node, units, name=f"sum {names[v]}"))
    return Circuit(Sum(node, 1, name="root"), schema=schema)
