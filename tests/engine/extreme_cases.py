"""Circuits and samples at the edge of float32: tiny and huge sample weights, weights at the floor, far outliers."""

from __future__ import annotations

import numpy as np
import torch

from circuits import Case
from circurve.graph import Circuit, Input, Node, Product, Sum
from circurve.inputs import Bernoulli, Gaussian

__all__ = [
    "FLOOR",
    "bernoulli",
    "equal_children",
    "impossible_samples",
    "outlier_chain",
    "rare_child",
    "rare_leaf",
    "wide_product",
]

FLOOR = 1e-12
"""The smallest weight that training gives."""

LOW = 1e-6
"""The smallest probability of a state that training gives."""


def bernoulli(*probabilities: float) -> torch.Tensor:  # (units, 1)
    return torch.tensor(probabilities, dtype=torch.float64)[:, None]


def rare_child(weight: float, sample_weight: float, masked: bool = False) -> Case:
    """One sum of three products; only the second, of that weight, explains the first sample, which has a weight too.

    With the mask the third child is left out.
    """
    leaves = [Input(v, Bernoulli(), 3) for v in range(4)]
    inputs: dict[Node, torch.Tensor] = {leaf: bernoulli(LOW, 1 - LOW, 0.5) for leaf in leaves}
    row = [1 - weight, weight, 0.0] if masked else [1 - 2 * weight, weight, weight]
    root = Sum(Product(leaves), 1, np.array([[True, True, False]]) if masked else None)
    x = np.array([[1, 1, 1, 1], [0, 1, 1, 1], [0, 0, 0, 0]], dtype=float)
    return _case(root, {root: [row]}, inputs, x, [sample_weight, 1.0, 2.0])


def rare_leaf(weight: float, sample_weight: float, low: float = LOW) -> Case:
    """Four sums over inputs; only the child of that weight explains the first sample, which has a weight too."""
    leaves = [Input(v, Bernoulli(), 2) for v in range(4)]
    inputs: dict[Node, torch.Tensor] = {leaf: bernoulli(low, 1 - low) for leaf in leaves}
    sums = [Sum(leaf, 2) for leaf in leaves]
    root = Sum(Product(sums))
    weights = {node: [[1 - weight, weight], [0.5, 0.5]] for node in sums}
    x = np.array([[1, 1, 1, 1], [0, 1, 1, 1], [0, 0, 0, 0]], dtype=float)
    return _case(root, weights, inputs, x, [sample_weight, 1.0, 2.0])


def equal_children(count: int, sample_weight: float) -> Case:
    """One sum of this many equal children: the sum of squares is their number."""
    leaf = Input(0, Bernoulli(), count)
    other = Input(1, Bernoulli(), count)
    root = Sum(Product([leaf, other]))
    inputs: dict[Node, torch.Tensor] = {node: bernoulli(*[0.5] * count) for node in (leaf, other)}
    return _case(root, {}, inputs, np.array([[1.0, 0.0], [1.0, 1.0]]), [sample_weight, 1.0])


def outlier_chain(depth: int, distance: float, masked: bool = False) -> Case:
    """A chain of sums of ten units over one Gaussian, and a sample this many standard deviations away from it.

    At every level one child of weight 1/10 has nearly all the probability, so S is 1/10 and log S is -2.3.
    """
    units = 10
    mask = np.ones((units, units), dtype=bool)
    mask[1, -1] = not masked
    outlier = Input(0, Gaussian(), units)
    inputs: dict[Node, torch.Tensor] = {outlier: torch.tensor([[float(k), 1.0] for k in range(units)]).double()}
    node: Node = outlier
    for level in range(depth):
        leaf = Input(level + 1, Bernoulli(), units)
        inputs[leaf] = bernoulli(1 - LOW, *[LOW] * (units - 1))
        node = Product([Sum(node, units, mask if masked else None), leaf])
    x = np.ones((2, depth + 1))
    x[:, 0] = [-distance, 0.0]
    return _case(Sum(node), {}, inputs, x, None)


def wide_product(factors: int) -> Case:
    """Children that are products of this many inputs, with weights at the floor; logs down to 13.8 times their
    number."""
    leaves = [Input(v, Bernoulli(), 4) for v in range(factors)]
    inputs: dict[Node, torch.Tensor] = {
        leaf: bernoulli(LOW, 1 - LOW, LOW if v % 2 else 1 - LOW, 0.5) for v, leaf in enumerate(leaves)
    }
    root = Sum(Product(leaves))
    x = np.stack([np.ones(factors), np.zeros(factors), np.arange(factors) % 2]).astype(float)
    return _case(root, {root: [[1 - 3 * FLOOR, FLOOR, FLOOR, FLOOR]]}, inputs, x, None)


def impossible_samples(masked: bool = False) -> Case:
    """All samples of four binary variables; those whose last one is zero are impossible, and so are some children."""
    mask = np.array([[1, 1, 0], [0, 1, 1], [1, 1, 1]], dtype=bool) if masked else None
    leaves = [Input(v, Bernoulli(), 3) for v in range(3)]
    last = Input(3, Bernoulli(), 3)
    inputs: dict[Node, torch.Tensor] = {leaf: bernoulli(0.0, 1.0, 0.5) for leaf in leaves}
    inputs[last] = bernoulli(1.0, 1.0, 1.0)
    middle = Sum(Product([Sum(leaf, 3, mask) for leaf in leaves]), 3, mask)
    x = np.array(list(np.ndindex(2, 2, 2, 2)), dtype=float)
    return _case(Sum(Product([middle, last])), {}, inputs, x, None)


def _case(
    root: Sum, weights: dict[Node, list[list[float]]], inputs: dict[Node, torch.Tensor], x: np.ndarray, sample_weights
) -> Case:
    domains = tuple("real" if isinstance(f, Gaussian) else "binary" for f in Circuit(root).families)
    tensors = {node: torch.tensor(rows, dtype=torch.float64) for node, rows in weights.items()}
    given = None if sample_weights is None else torch.tensor(sample_weights, dtype=torch.float64)
    return Case(Circuit(root), domains, tensors, inputs, x, given)
