"""Curvature sums: per sample from the definitions, then summed with the samples' weights."""

import numpy as np
import pytest
import torch
from expected import assert_same, true_statistics
from hypothesis import given, settings

from circuits import Case, Shape, Truth, assert_close, cases, evaluate, with_parameters
from circurve.engine.numerics import WEAK_SUM
from circurve.graph import Circuit, Input, Sum
from circurve.inputs import Gaussian, Indicator
from shapes import SHAPES, case_of

many = settings(max_examples=120, deadline=None)
some = settings(max_examples=30, deadline=None)


def check_curvature(case: Case) -> None:
    assert_same(case.statistics(), true_statistics(case), 1e-9, 1e-12)


@given(case=cases(zeros=True))
@some
def test_curvature_sums_are_the_same_where_every_sum_is_computed_in_logs(case):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(WEAK_SUM, torch.float64, 2.0)
        patch.setattr("circurve.engine.reference.backend.never_weak", lambda weights: False)
        check_curvature(case)


@pytest.mark.parametrize("name", SHAPES)
def test_curvature_sums_of_a_special_shape_in_logs_or_not(name):
    check_curvature(case_of(name))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(WEAK_SUM, torch.float64, 2.0)
        patch.setattr("circurve.engine.reference.backend.never_weak", lambda weights: False)
        check_curvature(case_of(name))


@given(case=cases(domains=("real", "count")))
@many
def test_total_is_the_squared_gradient_in_the_weights(case):
    """T_n = sum_c (d log p / d theta_nc)^2, over the edges that exist."""
    truth, found = Truth.of(case), case.statistics().curvature
    for number, layer in enumerate(case.program.sums):
        for g, node in enumerate(layer.nodes):
            gradient = truth.gradient[node] * truth.edges[node]
            assert_close(found.total[number][0, g], (gradient.square().sum(1) * case.weight).sum(-1), 1e-9)


@given(case=cases(units=2, depth=3, domains=("real", "count"), roots=1, samples=2, masks=False))
@settings(max_examples=15, deadline=None)
def test_totals_sum_to_the_trace_of_the_hessian_in_the_weights(case):
    """Tr of the Hessian of -log p in the untied sum weights, by differentiating the oracle twice."""
    total = sum((t.sum() for t in case.statistics().curvature.total), torch.zeros(()))
    sums, x = case.circuit.sums, torch.from_numpy(case.x)
    if not sums:
        assert total == 0
        return

    def loss(flat: torch.Tensor) -> torch.Tensor:
        blocks = flat.split([case.weights[s].numel() for s in sums])
        weights = {
            s: b.view(s.units, s.child_units, 1).expand(-1, -1, len(x)) for s, b in zip(sums, blocks, strict=True)
        }
        value = evaluate(case.circuit.roots[0], case, x, weights, {})[0]
        return -(value.log() * case.weight).sum()

    flat = torch.cat([case.weights[s].flatten() for s in sums])
    hessian = torch.autograd.functional.hessian(loss, flat)
    assert_close(total, hessian.trace(), 1e-9)


def test_a_ranking_of_local_curvature_does_not_depend_on_the_batches():
    """Sums of squares per sample, not squares of batch sums: two batches of one are not one batch of two."""
    node = Sum(Input(0, Gaussian(), 3))
    case = with_parameters(Circuit(node), ("real",), Shape(missing=False), np.random.default_rng(3))
    one, other = case.statistics(chunk=1).curvature, case.statistics(chunk=6).curvature
    for name in ("flow_squared", "local", "total", "second_moment"):
        assert_close(getattr(one, name)[0], getattr(other, name)[0])


def test_a_single_sum_by_hand():
    """theta = (1/4, 3/4), p_c = (1, 0) at x = 0: p = 1/4, rho = (4, 0), t = 16; at x = 1: p = 3/4, t = 16/9."""
    node = Sum(Input(0, Indicator((0, 1)), 2))
    circuit = Circuit(node)
    weights = {node: torch.tensor([[0.25, 0.75]], dtype=torch.float64)}
    inputs = {node.children[0]: torch.zeros(2, 0, dtype=torch.float64)}
    case = Case(circuit, ("binary",), weights, inputs, np.array([[0.0], [1.0], [1.0]]))
    found = case.statistics()
    assert found.counts[0].flatten().tolist() == pytest.approx([1, 2])
    curvature = found.curvature
    assert [found.unit_flow()[0].item(), curvature.flow_squared[0].item()] == pytest.approx([3, 3])
    assert [curvature.local[0].item(), curvature.total[0].item()] == pytest.approx([16 + 2 * 16 / 9] * 2)
    assert curvature.ratio[0].flatten().tolist() == pytest.approx([4, 2 * 4 / 3])
    assert curvature.second_moment[0].flatten().tolist() == pytest.approx([1, 2])


def test_nothing_asked_gives_no_curvature():
    case = with_parameters(
        Circuit(Sum(Input(0, Gaussian(), 2))), ("real",), Shape(missing=False), np.random.default_rng(0)
    )
    assert case.backend().statistics(case.params, [case.samples().rows(0, 6)]).curvature is None
