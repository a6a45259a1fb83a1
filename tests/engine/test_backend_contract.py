"""What every backend promises: each property is one test, run on generated circuits for each entry of a table.

The circuits are trees and DAGs with masks, shared children, several roots, missing values, sample weights and labels.
All sums are compared with `expected.true_statistics`, which enumerates and differentiates without the engine.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from backends import REFERENCE, Entry, contract, fleet_of
from expected import CURVATURE, left_out, true_statistics
from hypothesis import assume, given, settings
from torch import Tensor

from circuits import ALL, Case, Truth, all_sums, assert_close, cases
from circurve.engine import Params, Request, Statistics, stack
from circurve.graph import Sum
from circurve.inputs import Gaussian
from circurve.learning import Gated, Global, Vanilla
from circurve.learning.plan import Plan

pytestmark = pytest.mark.filterwarnings(
    "ignore:(divide by zero|invalid value):RuntimeWarning"  # of Triton's interpreter, which computes with numpy
)

MU = 0.3
METHODS = {
    "vanilla": Vanilla(),
    "smoothed": Vanilla(pseudocount=0.5),
    "global": Global(MU),
    "gated": Gated(MU),
    "exact simplex": Gated(MU, simplex="exact"),
    "exact penalty": Gated(MU, penalty="exact"),
    "exact simplex and penalty": Global(MU, simplex="exact", penalty="exact"),
    "mean scale": Gated(MU, mu_scale="mean"),
    "mean ratio": Gated(MU, estimator="mean_ratio"),
    "flow weighted": Gated(MU, estimator="flow_weighted"),
    "geometric": Gated(MU, estimator="geometric", gate_memory=0.5),
    "clipped": Gated(MU, estimator="clipped", ratio_floor=0.2),
    "gate memory": Gated(MU, gate_memory=0.5),
}


def statistics(entry: Entry, case: Case, request: Request | None = ALL) -> Statistics:
    backend = entry.make(case.program, case.params)
    return backend.statistics(entry.params(case.params), [entry.batch(case)], request)


def picked(case: Case, rows: Tensor) -> Case:  # (N,)
    """The case with some of its samples."""
    weights, labels = (None if field is None else field[rows] for field in (case.sample_weights, case.labels))
    return replace(case, x=case.x[rows.numpy()], sample_weights=weights, labels=labels)


def run_of(sums: Statistics, run: int) -> Statistics:
    """The sums of one run of a fleet."""

    def one(field: object) -> object:
        if isinstance(field, Tensor):
            return field[run : run + 1]
        return field if field is None else tuple(tensor[run : run + 1] for tensor in field)

    curvature = sums.curvature
    if curvature is not None:
        curvature = replace(curvature, **{name: one(field) for name, field in vars(curvature).items()})
    parts = {name: one(field) for name, field in vars(sums).items() if name != "curvature"}
    return replace(sums, **parts, curvature=curvature)


# --- against the definitions ---


@contract(80)
def test_log_prob_is_that_of_the_definition(entry, case):
    found = entry.make(case.program, case.params).log_prob(entry.params(case.params), entry.batch(case))
    assert found.dtype == entry.dtype
    entry.assert_close(found[0], Truth.of(case).outputs.log())


@contract(200)
def test_all_sums_are_those_of_the_definition(entry, case):
    found = statistics(entry, case)
    assert all(tensor.dtype == entry.dtype for tensor in found.counts)
    assert found.log_likelihood.dtype == found.weight.dtype == torch.float64
    entry.assert_same(found, true_statistics(case))


@contract(60, zeros=True)
def test_impossible_samples_are_counted_and_left_out(entry, case):
    """Zeros among weights and inputs; among inputs alone for backends that refuse weights of zero."""
    truth = Truth.of(case)
    values = entry.make(case.program, case.params).log_prob(entry.params(case.params), entry.batch(case))[0].cpu()
    assert torch.equal(values == -torch.inf, truth.outputs == 0)
    entry.assert_close(values, truth.outputs.log())
    entry.assert_same(statistics(entry, case), true_statistics(case))


@contract(20, samples=4)
def test_a_row_without_any_value_has_probability_one(entry, case):
    nothing = case.with_x(np.full_like(case.x, np.nan))
    found = entry.make(case.program, case.params).log_prob(entry.params(case.params), entry.batch(nothing))
    entry.assert_close(found[0], torch.zeros(case.circuit.outputs, len(case.x)))


# --- requests, batches and weights ---


@contract(20)
def test_each_request_alone_gives_the_same_as_all_together(entry, case):
    assume(case.circuit.sums)
    together = statistics(entry, case)
    plain = statistics(entry, case, None)
    assert plain.curvature is None
    entry.assert_same(plain, replace(together, curvature=None))
    for asked, names in CURVATURE.items():
        request = Request(**{asked: True})
        found = statistics(entry, case, request)
        assert {name for name, value in vars(found.curvature).items() if value is None} == left_out(request)
        wanted = {name: getattr(together.curvature, name) for name in names}
        entry.assert_same(found, replace(together, curvature=replace(found.curvature, **wanted)))


@contract(20, samples=7, zeros=True)
def test_sums_over_batches_and_sums_of_statistics_add_up(entry, case):
    backend, params = entry.make(case.program, case.params), entry.params(case.params)
    parts = [entry.pick(case, rows[None]) for rows in torch.arange(len(case.x)).split([1, 4, 2])]
    wanted = true_statistics(case)
    entry.assert_same(backend.statistics(params, parts, ALL), wanted)
    first, *others = (backend.statistics(params, [part], ALL) for part in parts)
    entry.assert_same(sum(others, first), wanted)


@contract(20)
def test_a_sample_weight_of_three_is_three_samples(entry, case):
    weights = torch.arange(len(case.x)) % 4
    weighted = statistics(entry, replace(case, sample_weights=weights.double()))
    rows = torch.arange(len(case.x)).repeat_interleave(weights)
    repeated = statistics(entry, picked(replace(case, sample_weights=None), rows))
    entry.assert_same(replace(weighted, impossible=repeated.impossible), repeated)


# --- fleets ---


@contract(25, zeros=True)
def test_a_run_in_a_fleet_equals_the_same_run_alone(entry, case):
    members = fleet_of(case, 3)
    fleet, batch = stack(members), entry.batch(case)
    together = entry.make(case.program, fleet)
    sums, values = together.statistics(entry.params(fleet), [batch], ALL), together.log_prob(entry.params(fleet), batch)
    for run, params in enumerate(members):
        alone, own = entry.make(case.program, params), entry.params(params)
        wanted, found = alone.statistics(own, [batch], ALL), run_of(sums, run)
        entry.assert_close(values[run : run + 1], alone.log_prob(own, batch))
        entry.assert_same(found, wanted)
        if entry.bitwise:
            assert torch.equal(values[run : run + 1], alone.log_prob(own, batch))
            assert all(torch.equal(*pair) for pair in zip(all_sums(found), all_sums(wanted), strict=True))


@contract(25, samples=6)
def test_each_run_sees_the_samples_picked_for_it(entry, case):
    members = fleet_of(case, 3)
    index = torch.from_numpy(np.random.default_rng(0).integers(0, len(case.x), (3, 4)))
    fleet = stack(members)
    sums = entry.make(case.program, fleet).statistics(entry.params(fleet), [entry.pick(case, index)], ALL)
    for run, params in enumerate(members):
        alone = REFERENCE.make(case.program, params).statistics(
            params, [REFERENCE.pick(case, index[run : run + 1])], ALL
        )
        entry.assert_same(run_of(sums, run), alone)


# --- NaN ---


@contract(20)
def test_a_run_with_nan_among_its_parameters_is_broken_and_its_neighbour_is_not(entry, case):
    assume(all(isinstance(root, Sum) for root in case.circuit.roots))
    broken = case.params.map(lambda tensor: torch.full_like(tensor, torch.nan))
    backend, params = entry.make(case.program, stack([case.params] * 2)), entry.params(stack([case.params, broken]))
    values = backend.log_prob(params, entry.batch(case))
    assert values[1].isnan().all()
    assert not values[0].isnan().any()
    sums = backend.statistics(params, [entry.batch(case)], ALL)
    entry.assert_same(run_of(sums, 0), true_statistics(case))
    assert sums.broken[1] == (case.weight > 0).sum()
    assert (sums.impossible[1], sums.weight[1], sums.log_likelihood[1]) == (0, 0, 0)


@contract(20, missing=False, domains=("real", "binary"))
def test_a_sample_that_is_nan_is_counted_and_left_out_of_the_likelihood(entry, case):
    """NaN in a column of real numbers, where the circuit has one."""
    real = [node.variable for node in case.circuit.inputs if node.family == Gaussian()]
    batch = entry.batch(case)
    x, weight = batch.x.clone(), case.weight.clone()
    if real:
        x[:, real[0], 0] = torch.nan
        weight[0] = 0
    backend = entry.make(case.program, case.params)
    values = backend.log_prob(entry.params(case.params), replace(batch, x=x, key=None))
    assert values.isnan().any(dim=1)[0].tolist() == [bool(real), *[False] * (len(case.x) - 1)]
    found = backend.statistics(entry.params(case.params), [replace(batch, x=x, key=None)])
    wanted = true_statistics(replace(case, sample_weights=weight))
    assert found.broken.item() == int(((case.weight > 0) & (weight == 0)).sum())
    assert found.impossible.item() == wanted.impossible.item()
    entry.assert_close(found.weight, wanted.weight)
    entry.assert_close(found.log_likelihood, wanted.log_likelihood)


# --- the M-step ---


def next_parameters(entry: Entry, case: Case) -> Params:
    """One run for each method; the second of two M-steps from the same parameters, so that gates have a memory."""
    params = entry.params(stack([case.params] * len(METHODS)))
    backend = entry.make(case.program, params)
    plan = Plan(case.program, tuple(METHODS.values()), params.inputs[0])
    halves = torch.arange(len(case.x)).split(-(-len(case.x) // 2))
    for rows in halves:
        sums = backend.statistics(params, [entry.batch(picked(case, rows))], plan.request)
        found = plan.maximize(params, sums, [0.5] * len(METHODS), [MU] * len(METHODS))
    return found


@contract(20)
def test_an_m_step_of_every_method_gives_the_parameters_that_the_reference_gives(entry, case):
    found, wanted = next_parameters(entry, case), next_parameters(REFERENCE, case)
    for one, other in zip((*found.weights, *found.inputs), (*wanted.weights, *wanted.inputs), strict=True):
        for run, name in enumerate(METHODS):
            assert one[run].isfinite().all(), name
            entry.assert_close(one[run], other[run])


# --- the rest of the protocol ---


@contract(10)
def test_no_call_changes_the_parameters(entry, case):
    backend, params = entry.make(case.program, case.params), entry.params(case.params).clone()
    before = params.clone()
    backend.log_prob(params, entry.batch(case))
    backend.statistics(params, [entry.batch(case)], ALL)
    backend.release()
    for one, other in zip((*params.weights, *params.inputs), (*before.weights, *before.inputs), strict=True):
        assert torch.equal(one, other)


@contract(10)
def test_released_buffers_are_made_again_with_the_same_answers(entry, case):
    backend, params, batch = entry.make(case.program, case.params), entry.params(case.params), entry.batch(case)
    values, sums = backend.log_prob(params, batch), backend.statistics(params, [batch], ALL)
    kept = [tensor.clone() for tensor in (values, *all_sums(sums))]
    backend.release()
    again = [backend.log_prob(params, batch), *all_sums(backend.statistics(params, [batch], ALL))]
    for one, other in zip(again, kept, strict=True):
        assert torch.equal(one, other)


@contract(10)
def test_a_backend_says_what_it_is_and_how_much_memory_it_needs(entry, case):
    alone, fleet = (entry.make(case.program, stack([case.params] * runs)) for runs in (1, 3))
    assert alone.describe().startswith(alone.name)
    assert (alone.dtype, alone.device.type) == (entry.dtype, entry.device)
    assert alone.program is case.program
    for backward in (False, True):
        assert 0 < alone.bytes_per_sample(backward) < fleet.bytes_per_sample(backward)
    assert alone.bytes_per_sample(False) <= alone.bytes_per_sample(True)


# --- the reference backend is differentiable ---


@given(case=cases(variables=2, units=2, depth=2, samples=2, masks=False, domains=("real",)))
@settings(max_examples=6, deadline=None)
def test_log_prob_of_the_reference_can_be_differentiated_twice(case):
    """By weights, input parameters and values; all against finite differences."""
    backend, batch, sums = case.backend(), case.samples().rows(0, len(case.x)), len(case.params.weights)

    def log_prob(x: Tensor, *parameters: Tensor) -> Tensor:
        return backend.log_prob(Params(parameters[:sums], parameters[sums:]), replace(batch, x=x, key=None))

    given_tensors = (batch.x, *case.params.weights, *case.params.inputs)
    variables = [tensor.clone().requires_grad_() for tensor in given_tensors]
    assert torch.autograd.gradcheck(log_prob, variables)
    assert torch.autograd.gradgradcheck(log_prob, variables)


@given(case=cases())
@settings(max_examples=20, deadline=None)
def test_the_gradient_of_the_reference_is_that_of_the_definition(case):
    """d log p_r / d theta_nc on the edges that exist, masks included."""
    assume(bool(case.params.weights))
    weights = tuple(tensor.clone().requires_grad_() for tensor in case.params.weights)
    batch, truth = case.samples().rows(0, len(case.x)), Truth.of(case)
    values = case.backend().log_prob(Params(weights, case.params.inputs), batch)[0]
    labels = torch.zeros(len(case.x), dtype=torch.int64) if case.labels is None else case.labels
    chosen = values.gather(0, labels[None])[0]
    slopes = torch.autograd.grad(chosen[chosen.isfinite()].sum(), weights, materialize_grads=True)
    for layer, slope in zip(case.program.sums, slopes, strict=True):
        for node, found in zip(layer.nodes, slope[0], strict=True):
            edges = truth.edges[node][..., 0]
            assert_close(found * edges, truth.gradient[node].sum(-1) * edges, 1e-9)
