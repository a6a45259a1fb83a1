"""Probability zero: -inf from log_prob, no NaN in any sum, impossible samples counted and left out."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from circuits import Case, Truth, all_sums, assert_close, cases
from circurve.graph import Circuit, Input, Product, Sum
from circurve.inputs import Bernoulli, Categorical, Indicator

many = settings(max_examples=100, deadline=None)
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


@DTYPES
@given(case=cases(zeros=True, domains=("binary", "ternary")))
@many
def test_zeros_give_minus_infinity_and_finite_sums(case, dtype):
    truth = Truth.of(case)
    samples, params = case.samples(dtype), case.params.to(dtype=dtype)
    values = case.backend(dtype).log_prob(params, samples.rows(0, len(samples)))[0]
    assert torch.equal(values == -torch.inf, truth.outputs == 0)
    assert not values.isnan().any()
    found = case.statistics(dtype)
    assert all(tensor.isfinite().all() for tensor in all_sums(found))
    assert found.impossible.item() == int(((truth.root == 0) & (case.weight > 0)).sum())
    assert found.weight.item() == pytest.approx(float(case.weight[truth.root > 0].sum()))
    if found.weight > 0:
        assert found.mean_log_likelihood.isneginf().item() == (found.impossible.item() > 0)


@given(case=cases(zeros=True, domains=("binary", "ternary")))
@settings(max_examples=40, deadline=None)
def test_impossible_samples_leave_no_trace(case):
    possible = (Truth.of(case).root > 0).numpy()
    found = case.statistics()
    if not possible.any():
        assert all(not tensor.any() for tensor in all_sums(found))
        return
    labels = None if case.labels is None else case.labels[possible]
    weights = None if case.sample_weights is None else case.sample_weights[possible]
    kept = Case(case.circuit, case.domains, case.weights, case.inputs, case.x[possible], weights, labels)
    for a, b in zip(all_sums(found), all_sums(kept.statistics()), strict=True):
        assert_close(a, b, 1e-11)


def single(weights: list[float], x: list[list[float]]) -> Case:
    """A mixture of the indicators of 0, 1 and 2."""
    node = Sum(Input(0, Indicator((0, 1, 2)), 3))
    block = {node: torch.tensor([weights], dtype=torch.float64)}
    return Case(Circuit(node), ("ternary",), block, {node.children[0]: torch.zeros(3, 0).double()}, np.array(x))


@DTYPES
def test_a_zero_weight_makes_its_value_impossible(dtype):
    case = single([0.25, 0.75, 0.0], [[0], [1], [2], [np.nan]])
    samples = case.samples(dtype)
    found = case.backend(dtype).log_prob(case.params.to(dtype=dtype), samples.rows(0, 4))[0, 0]
    assert_close(found.double(), torch.tensor([0.25, 0.75, 0.0, 1.0]).double().log(), 1e-6)
    sums = case.statistics(dtype)
    assert sums.impossible.tolist() == [1]
    assert sums.weight.tolist() == [3.0]
    assert_close(sums.counts[0][0, 0, 0], torch.tensor([1.25, 1.75, 0.0]), 1e-6)
    assert sums.mean_log_likelihood.tolist() == [-np.inf]


def test_a_value_outside_all_indicators_is_impossible():
    case = single([0.2, 0.3, 0.5], [[7.0]])
    samples = case.samples()
    assert case.backend().log_prob(case.params, samples.rows(0, 1)).item() == -np.inf
    assert case.statistics().impossible.tolist() == [1]


@DTYPES
def test_a_product_of_very_many_impossible_children_stays_finite_inside(dtype):
    """Each child is LOG_ZERO = -1e30; ten thousand of them are -1e34, and float32 ends at 3e38."""
    inputs = [Input(v, Bernoulli()) for v in range(10_000)]
    circuit = Circuit(Sum([Product(inputs), Product([Sum(i) for i in inputs])]))
    sums = {node: torch.ones(1, node.child_units).double() / node.child_units for node in circuit.sums}
    zeros = {node: torch.zeros(1, 1).double() for node in inputs}
    case = Case(circuit, ("binary",) * 10_000, sums, zeros, np.stack([np.ones(10_000), np.zeros(10_000)]))
    samples = case.samples(dtype)
    values = case.backend(dtype).log_prob(case.params.to(dtype=dtype), samples.rows(0, 2))[0, 0]
    assert values.tolist() == [-np.inf, 0.0]
    found = case.statistics(dtype)
    assert found.impossible.tolist() == [1]
    assert all(tensor.isfinite().all() for tensor in all_sums(found))
    assert_close(found.counts[-1].flatten(), torch.tensor([0.5, 0.5]), 1e-6)


def test_weight_zero_hides_an_impossible_sample():
    case = single([0.25, 0.75, 0.0], [[0], [2]])
    hidden = Case(case.circuit, case.domains, case.weights, case.inputs, case.x, torch.tensor([1.0, 0.0]).double())
    found = hidden.statistics()
    assert found.impossible.tolist() == [0]
    assert found.mean_log_likelihood.item() == pytest.approx(np.log(0.25))


def test_a_dead_unit_of_a_possible_sample_has_neither_flow_nor_curvature():
    """Unit 'left' is impossible at x = 1, where 'right' carries the sample; its t has no meaning there."""
    inputs = [Input(0, Indicator((0, 0)), 2), Input(0, Categorical(2))]
    left, right = Sum(inputs[0], name="left"), Sum(inputs[1], name="right")
    root = Sum([left, right], name="root")
    weights = {left: [[0.5, 0.5]], right: [[1.0]], root: [[0.5, 0.5]]}
    parameters = {inputs[0]: torch.zeros(2, 0).double(), inputs[1]: torch.tensor([[0.3, 0.7]]).double()}
    blocks = {node: torch.tensor(block).double() for node, block in weights.items()}
    case = Case(Circuit(root), ("binary",), blocks, parameters, np.ones((4, 1)))
    found = case.statistics()
    (number, g) = next((i, s.nodes.index(left)) for i, s in enumerate(case.program.sums) if left in s.nodes)
    assert not found.unit_flow()[number][0, g].any()
    for name in ("flow_squared", "local", "total", "ratio", "second_moment"):
        assert not getattr(found.curvature, name)[number][0, g].any(), name
