"""The estimators of local curvature: each against its definition sample by sample, and against dead edges."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from circuits import Case, Truth, assert_close, cases
from circurve.engine.numerics import WEIGHT_FLOOR
from circurve.errors import OptionError
from circurve.graph import Circuit, Input, Product, Sum
from circurve.inputs import Bernoulli
from circurve.learning import Gated
from circurve.learning.local_curvature import ESTIMATORS, RATIO_FLOOR
from circurve.learning.plan import Plan

ROBUST = ("flow_weighted", "geometric", "clipped")
FLOOR = 0.2
"""In the ratios: some weights of the generated circuits lie below it and some above."""


def local(case: Case, estimator: str, truths: list[tuple[float, Case]], floor: float = FLOOR) -> torch.Tensor:  # (M,)
    """t^ of all sum units over weighted batches, sample by sample from the definitions."""
    nodes = [node for layer in case.program.sums for node in layer.nodes]
    found = [torch.zeros(0).double()]
    for node in nodes:
        above, below = (torch.zeros(node.units).double() for _ in range(2))
        for share, batch in truths:
            truth = Truth.of(batch)
            weight = batch.weight * (truth.root > 0)
            for n in range(len(batch.x)):
                theta, rho, flow = truth.weights[node][..., 0], truth.ratio(node)[..., n], truth.flow[node][:, n]
                mass = share * weight[n] / weight.sum().clamp_min(1e-300)
                if estimator == "clipped":
                    above += mass * (theta * rho / theta.clamp_min(floor)).square().sum(1)
                    below += share * weight[n] / weight.sum().clamp_min(1e-300)
                else:
                    trace = rho.square().sum(1)
                    above += mass * torch.xlogy(flow, trace) if estimator == "geometric" else mass * flow * trace
                    below += mass * flow
        mean = above / torch.where(below > 0, below, 1.0)
        found.append(torch.where(below > 0, mean.exp() if estimator == "geometric" else mean, 0.0))
    return torch.cat(found)


@given(case=cases(), memory=st.sampled_from([0.0, 0.75]), estimator=st.sampled_from(ROBUST))
@settings(max_examples=40, deadline=None)
def test_a_gate_is_shown_the_estimate_of_the_definition(case, memory, estimator):
    """With a memory, samples of the past and of the present count together, those of the past less."""
    seen: list[torch.Tensor] = []

    def spy(curvature):
        seen.append(curvature.local)
        return torch.zeros_like(curvature.local)

    other = case.with_x(case.x[:3])
    method = Gated(0.1, spy, estimator=estimator, gate_memory=memory, ratio_floor=FLOOR)
    plan = Plan(case.program, [method], case.params.inputs[0])
    for batch in (case, other):
        plan.maximize(case.params, batch.statistics(), [1.0], [0.1])
    assume(case.circuit.sums)
    assert_close(seen[0], local(case, estimator, [(1.0, case)]), 1e-9)
    assert_close(seen[1], local(case, estimator, [(memory, case), (1 - memory, other)]), 1e-9)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_batch_without_samples_leaves_a_running_mean_as_it_is(estimator):
    case, seen = dead_edge(1e3), []

    def spy(curvature):
        seen.append(torch.stack([curvature.local, curvature.total, curvature.flow_squared]))
        return torch.zeros_like(curvature.local)

    plan = Plan(case.program, [Gated(0.1, spy, estimator=estimator, gate_memory=0.75)], case.params.inputs[0])
    nothing = replace(case, sample_weights=torch.zeros(len(case.x), dtype=torch.float64))
    for batch in (nothing, case, nothing):
        plan.maximize(case.params, batch.statistics(), [1.0], [0.1])
    alone = Plan(case.program, [Gated(0.1, spy, estimator=estimator)], case.params.inputs[0])
    alone.maximize(case.params, case.statistics(), [1.0], [0.1])
    assert float(seen[1][0].min()) > 0
    assert torch.equal(seen[0], torch.zeros_like(seen[0]))
    assert torch.equal(seen[1], seen[3])
    assert torch.equal(seen[2], seen[3])


@given(case=cases(missing=False))
@settings(max_examples=20, deadline=None)
def test_the_geometric_mean_is_never_larger_and_a_floor_of_zero_clips_nothing(case):
    assume(case.circuit.sums)
    arithmetic, geometric = (local(case, name, [(1.0, case)]) for name in ("flow_weighted", "geometric"))
    assert bool((geometric <= arithmetic * (1 + 1e-12)).all())
    sums = case.statistics()
    weight = float(sums.weight)
    assume(weight > 0)
    plain = torch.cat([layer.flatten() for layer in sums.curvature.local]) / weight
    assert_close(local(case, "clipped", [(1.0, case)], floor=1e-300), plain, 1e-9)
    assert bool((local(case, "clipped", [(1.0, case)]) <= plain * (1 + 1e-12)).all())


def dead_edge(ratio: float) -> Case:
    """One sum node of two units over two children; the second child of the first unit has a weight at the floor.

    The root gives the last of 100 samples to its second unit. There the first unit has only its dead edge left, with
    this ratio.
    """
    low = 1 / ratio - WEIGHT_FLOOR  # p_1 of the last sample, and p_2 = 1 - 1e-6
    left, right = Input(0, Bernoulli(), 2), Input(1, Bernoulli(), 2)
    middle = Sum(Product([left, right]), 2)
    root = Sum(middle)
    inputs = {
        left: torch.tensor([[low], [1 - 1e-6]], dtype=torch.float64),
        right: torch.tensor([[0.5], [0.5]], dtype=torch.float64),
    }
    weights = {
        middle: torch.tensor([[1 - WEIGHT_FLOOR, WEIGHT_FLOOR], [0.5, 0.5]], dtype=torch.float64),
        root: torch.tensor([[0.5, 0.5]], dtype=torch.float64),
    }
    x = np.zeros((100, 2))
    x[-1, 0] = 1
    return Case(Circuit(root), ("binary", "binary"), weights, inputs, x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_dead_edge_moves_no_robust_estimator_by_more_than_its_bound(estimator, dtype):
    """theta = 1e-12 and rho = 5e11 in one of 100 samples; `local_curvature.py` derives the bounds."""
    ratio, samples = 5e11, 100
    case = dead_edge(ratio)
    seen: list[torch.Tensor] = []

    def spy(curvature):
        seen.append(curvature.local[0, 0] if curvature.local.dim() > 1 else curvature.local[0])
        return torch.zeros_like(curvature.local)

    method = Gated(0.1, spy, estimator=estimator)
    plan = Plan(case.program, [method], case.params.to(dtype=dtype).inputs[0])
    sums = case.statistics(dtype)
    plan.maximize(case.params.to(dtype=dtype), sums, [1.0], [0.1])
    flow = float(sums.curvature.flow[0].flatten()[0])
    (found,) = (float(value) for value in seen)
    alive = 1.0  # t of the first unit in all other samples, to 1e-6
    bounds = {
        "flow_weighted": alive + 2 * ratio / flow * 1.01,
        "geometric": alive * math.exp(4 * WEIGHT_FLOOR * math.log(ratio**2) / flow) + 1e-5,
        "clipped": alive + (WEIGHT_FLOOR * ratio / RATIO_FLOOR) ** 2 / samples * 1.01,
    }
    if estimator in bounds:
        assert alive * 0.99 < found <= bounds[estimator]
    elif estimator == "mean_trace":
        assert found > 0.1 * ratio**2 / samples  # captured by this one edge in one sample


@pytest.mark.parametrize("floor", [0, -1e-4, 1.5, math.nan, "a", None])
def test_a_floor_must_be_a_weight(floor):
    with pytest.raises(OptionError, match=r"^ratio_floor must be above 0 and at most 1, not"):
        Gated(0.1, estimator="clipped", ratio_floor=floor)


def test_an_unknown_estimator_is_refused_by_name():
    with pytest.raises(OptionError, match=r"^estimator must be .*geometric.*'median'"):
        Gated(0.1, estimator="median")
