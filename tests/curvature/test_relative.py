"""Probabilities at other weights as multiples of those at a model's weights, by the oracle in plain probabilities."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hessian_oracle import measurable, oracle_loss, wide_case
from hypothesis import given, settings

from circuits import Case, assert_close, cases
from circurve import Bernoulli, Circuit, Input, Product, Sum
from circurve.curvature.relative import RelativeValues

some = settings(max_examples=40, deadline=None)


def check(case: Case) -> None:
    """Each weight becomes between a half and three halves of what it was."""
    source = np.random.default_rng(0)
    factors = {node: torch.from_numpy(source.uniform(0.5, 1.5, w.shape)) for node, w in case.weights.items()}
    other = replace(case, weights={node: w * factors[node] for node, w in case.weights.items()})
    relative = RelativeValues(case.backend(), case.params, case.samples().rows(0, len(case.x)))
    before, after = (loss(weights) for loss, weights in map(oracle_loss, (case, other)))
    blocks = [torch.stack([other.weights[node] for node in layer.nodes]) for layer in case.program.sums]
    assert_close(relative(blocks), (before - after).exp(), 1e-9)


@given(case=cases(units=3, depth=3))
@some
def test_values_at_other_weights(case):
    check(measurable(case))


def test_products_of_many_children():
    check(wide_case())


@pytest.mark.parametrize("children", [2, 7, 40, 301])
def test_a_product_of_very_many_children_beside_one_of_two(children):
    leaves = [Input(v, Bernoulli(), 2) for v in range(children)]
    pair = Product([Sum(leaves[0]), Sum(Product([Sum(leaf) for leaf in leaves[1:]]))])
    circuit = Circuit(Sum([Product([Sum(leaf) for leaf in leaves]), pair]))
    source = np.random.default_rng(0)
    weights = {s: torch.from_numpy(source.dirichlet(np.ones(s.child_units), s.units)) for s in circuit.sums}
    inputs = {leaf: torch.from_numpy(source.uniform(0.2, 0.8, (2, 1))) for leaf in leaves}
    x = source.integers(0, 2, (5, children)).astype(float)
    check(Case(circuit, ("binary",) * children, weights, inputs, x))
