"""Hand-made circuits whose shapes are awkward for a compiler."""

from __future__ import annotations

import numpy as np

from circuits import Case, Shape, with_parameters
from circurve.graph import Circuit, Input, Node, Product, Sum
from circurve.inputs import Bernoulli, Categorical


def wide() -> list[Node]:
    """Products of up to 12 children beside narrow ones, and nodes with up to 14 parents."""
    leaves = [Input(v, Bernoulli(), 2) for v in range(12)]
    mixed = [Sum(leaf, 2) for leaf in leaves]
    products = [Product([*mixed[:v], *leaves[v:]]) for v in range(12)]
    nested = Product([Product(leaves[:10]), mixed[10], leaves[11]], [[1, 0, 1]] * 3)
    return [Sum([*products, nested]), Sum([nested, *products[::3]], 2)]


def crossed() -> Node:
    """Three sums of one layer, read by the sums above in another order than they lie: the narrow one lies last."""
    a, b, c = (Input(v, Bernoulli(), 2) for v in range(3))
    narrow = Sum(Product([Product([a, b]), c]), 2)
    broad, other = Sum(Product([Sum(a, 2), b, c]), 2), Sum(Product([a, Sum(b, 2), c]), 2)
    return Sum([Sum(broad, 2), Sum(narrow, 2), Sum(other, 2)])


def straddling() -> Node:
    """Two inputs of one layer whose flows lie side by side, but one ends a block and the other begins the next."""

    def others(*variables: int) -> list[Node]:
        return [Input(v, Categorical(2)) for v in variables]

    ends = Product([Input(0, Bernoulli()), *others(1)])
    begins = Product([Input(2, Bernoulli()), *others(3)])
    return Product([Sum([Sum(Product(others(0, 1))), ends]), Sum([begins, Product(others(2, 3))])])


A, B = Input(0, Bernoulli(), 2), Input(1, Bernoulli(), 2)
AB, SWAPPED = Product([A, B]), Product(A, [[1, 0]])

SHAPES: dict[str, Node | list[Node]] = {
    "an input is the root": Input(0, Bernoulli()),
    "a product is the root": AB,
    "a product has one child": Sum(Product([Product([Product(A), B])])),
    "sums in a row": Sum(Sum(Sum(Sum(AB, 2), 3), 2)),
    "a sum has the same child twice": Sum([AB, AB, Product([A, B])]),
    "a product is shared by a sum and products": Sum(
        [Product([SWAPPED, B]), Product([Sum(SWAPPED, 2), B]), Product([SWAPPED, Sum(B, 2)])]
    ),
    "a unit that nobody selects": Product([Sum(A, 3), B], [[2], [0]]),
    "a unit selected many times": Sum(Product([A, B], [[1] * 9, [0, 1] * 4 + [0]])),
    "a root inside another": [Sum(AB), Sum([AB, Product([A, B])]), AB],
    "branches of uneven depth": Sum([Product([Sum(Sum(Sum(A, 2), 2), 2), B]), AB]),
    "very many parents and children": wide(),
    "a block read in another order": crossed(),
    "flows that straddle two blocks": straddling(),
}


def case_of(name: str, seed: int = 0) -> Case:
    """A circuit of `SHAPES` with random parameters and samples."""
    circuit = Circuit(SHAPES[name])
    return with_parameters(circuit, ("binary",) * circuit.variables, Shape(), np.random.default_rng(seed))
