"""Mixtures of factorised distributions, and the factorised distribution itself."""

from __future__ import annotations

from collections.abc import Sequence

from circurve.graph import Circuit, Input, Node, Product, Sum
from circurve.inputs import Family
from circurve.structures.arguments import Families, as_families, check_count, schema_of

__all__ = ["factorized_node", "fully_factorized", "mixture"]


def mixture(families: Families, components: int) -> Circuit:
    """p(x) = sum_k theta_k prod_v p(x_v | k), a mixture of independent variables. Building it is O(V).

    Parameters
    ----------
    families : sequence of Family, (Family, int), int or Schema
        One for each variable; `(family, count)`; or a count of binary variables.
    components : int
        The number of terms k.

    Returns
    -------
    Circuit
        One sum over products of inputs.

    Examples
    --------
    >>> import circurve as cc
    >>> cc.mixture([cc.Gaussian(), cc.Bernoulli()], components=4)
    <Circuit: 2 variables, 4 nodes, 1 output>
    """
    check_count("components", components)
    chosen = as_families(families)
    root = Sum(factorized_node(range(len(chosen)), chosen, components), 1, name="root")
    return Circuit(root, schema=schema_of(families))


def fully_factorized(families: Families) -> Circuit:
    """p(x) = prod_v p(x_v): all variables independent, no sum at all. Building it is O(V).

    Parameters
    ----------
    families : sequence of Family, (Family, int), int or Schema
        One for each variable; `(family, count)`; or a count of binary variables.

    Returns
    -------
    Circuit
        One product of V inputs.

    Examples
    --------
    >>> import circurve as cc
    >>> cc.fully_factorized([cc.Gaussian(), cc.Bernoulli()])
    <Circuit: 2 variables, 3 nodes, 1 output>
    """
    chosen = as_families(families)
    return Circuit(factorized_node(range(len(chosen)), chosen, units=1), schema=schema_of(families))


def factorized_node(variables: Sequence[int], families: Sequence[Family], units: int, label: str = "") -> Node:
    """`units` products of one input unit of each variable; a single variable needs no product.

    `label`, where given, ends the names of the nodes.
    """
    inputs = [Input(v, families[v], units, name=f"input {v}{label}") for v in variables]
    return inputs[0] if len(inputs) == 1 else Product(inputs, name=f"product{label}")
