"""Mixtures of factorised distributions, and the factorised distribution itself."""

from __future__ import annotations

from collections.abc import Sequence

from circurve.graph import Circuit, Input, Node, Product, Sum
from circurve.inputs import Family
from circurve.structures.arguments import Families, as_families, check_count, schema_of

__all__ = ["factorized_node", "fully_factorized", "mixture"]


def mixture(families: Families, components: int) -> Circuit:
    """p(x) = sum_k theta_k prod_v p(x_v | k) with k over `components`.

    `families`: one for each variable, `(family, count)`, a count of binary variables, or a schema. O(V).
    """
    check_count("components", components)
    chosen = as_families(families)
    root = Sum(factorized_node(range(len(chosen)), chosen, components), 1, name="root")
    return Circuit(root, schema=schema_of(families))


def fully_factorized(families: Families) -> Circuit:
    """p(x) = prod_v p(x_v): all variables independent, no sum at all.

    `families`: one for each variable, `(family, count)`, a count of binary variables, or a schema. O(V).
    """
    chosen = as_families(families)
    return Circuit(factorized_node(range(len(chosen)), chosen, units=1), schema=schema_of(families))


def factorized_node(variables: Sequence[int], families: Sequence[Family], units: int, label: str = "") -> Node:
    """`units` products of one input unit of each variable; a single variable needs no product.

    `label`, where given, ends the names of the nodes.
    """
    inputs = [Input(v, families[v], units, name=f"input {v}{label}") for v in variables]
    return inputs[0] if len(inputs) == 1 else Product(inputs, name=f"product{label}")
