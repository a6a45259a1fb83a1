"""Statistics add up over batches, and depend neither on chunks, nor on the neighbours in a fleet, nor on precision."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from backends import fleet_of
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from circuits import (
    ALL,
    Case,
    Shape,
    Truth,
    all_sums,
    assert_close,
    cases,
    with_parameters,
)
from circurve.engine import Batch, Reference, Statistics, compile, stack
from circurve.engine.memory import chunk_size
from circurve.errors import OptionError
from circurve.graph import Circuit, Input, Product, Sum
from circurve.inputs import Bernoulli, Gaussian
from shapes import SHAPES, case_of

some = settings(max_examples=40, deadline=None)
few = settings(max_examples=20, deadline=None)


def assert_same(one: Statistics, other: Statistics, tolerance: float = 1e-11) -> None:
    for a, b in zip(all_sums(one), all_sums(other), strict=True):
        assert_close(a, b, tolerance)
    assert torch.equal(one.impossible, other.impossible)


@given(case=cases(samples=7, zeros=True), chunk=st.integers(1, 7))
@some
def test_the_chunk_size_does_not_matter(case, chunk):
    assert_same(case.statistics(chunk=chunk), case.statistics())


@given(case=cases(samples=5))
@few
def test_the_order_of_the_samples_does_not_matter(case):
    order = torch.tensor([[3, 1, 4, 0, 2]])
    assert_same(case.backend().statistics(case.params, [case.samples().pick(order)], ALL), case.statistics())


def test_adding_statistics_without_curvature_leaves_it_out():
    case = small()
    batch = case.samples().rows(0, 6)
    plain = case.backend().statistics(case.params, [batch])
    both = plain + case.statistics()
    assert both.curvature is None
    assert_close(both.counts[0], 2 * plain.counts[0])


@pytest.mark.parametrize("name", SHAPES)
def test_a_run_of_a_special_shape_in_a_fleet_equals_the_same_run_alone(name):
    check_fleet(case_of(name))


def check_fleet(case: Case) -> None:
    members = fleet_of(case, 3)
    fleet, samples = stack(members), case.samples()
    batch = samples.rows(0, len(samples))
    together, single = case.backend(runs=3), case.backend()
    sums, values = all_sums(together.statistics(fleet, [batch], ALL)), together.log_prob(fleet, batch)
    for run, params in enumerate(members):
        assert_close(values[run], single.log_prob(params, batch)[0], 1e-12)
        for a, b in zip(sums, all_sums(single.statistics(params, [batch], ALL)), strict=True):
            assert_close(a[run], b[0], 1e-11)


def test_picked_rows_are_the_rows_with_these_numbers():
    case = small()
    samples = case.samples()
    picked, rows = samples.pick(torch.tensor([[2, 3, 4]])), samples.rows(2, 5)
    assert torch.equal(picked.x, rows.x)
    assert torch.equal(picked.weights, rows.weights)
    assert torch.equal(picked.labels, rows.labels)


def test_selecting_and_stacking_runs_are_inverse():
    members = fleet_of(small(), 3)
    fleet = stack(members)
    back = stack([fleet.select([2]), fleet.select([0, 1])]).select([1, 2, 0])
    for a, b in zip((*back.weights, *back.inputs), (*fleet.weights, *fleet.inputs), strict=True):
        assert torch.equal(a, b)


def test_chunk_size_follows_the_budget_and_is_at_least_one():
    backend = small().backend()
    assert chunk_size(backend, backward=True, memory_budget=1) == 1
    assert chunk_size(backend, backward=True, memory_budget=10 * backend.bytes_per_sample(True)) == 10
    assert backend.bytes_per_sample(backward=True) > backend.bytes_per_sample(backward=False)
    with pytest.raises(OptionError, match="memory_budget must be a positive number of bytes, not 0"):
        chunk_size(backend, backward=True, memory_budget=0)


def test_memory_for_a_sample_does_not_grow_with_the_edges():
    """64 times the edges for 8 times the units: memory follows the units."""
    sizes = []
    for units in (8, 64):
        layers = Sum(Product([Sum(Input(v, Bernoulli(), units), units) for v in range(4)]))
        program = compile(Circuit(layers))
        sizes.append(Reference(program, 1, torch.device("cpu"), torch.float64).bytes_per_sample(True))
    assert sizes[1] < 8.5 * sizes[0]


@given(case=cases(zeros=True), float32=st.booleans())
@settings(max_examples=30, deadline=None)
def test_the_workspace_is_no_larger_than_announced_and_can_be_given_back(case, float32):
    params = case.params.to("cpu", torch.float32) if float32 else case.params
    backend = Reference.of(case.program, params)
    batch = Batch.rows(case.samples().table, 0, len(case.x), params.dtype)
    for backward in (False, True):
        with torch.no_grad():
            backend.log_prob(params, batch)
        if backward:
            backend.statistics(params, [batch], ALL)
        assert 0 < backend.workspace.bytes <= len(case.x) * backend.bytes_per_sample(backward)
    backend.release()
    assert backend.workspace.bytes == 0


def test_no_result_lies_in_memory_that_the_next_call_overwrites():
    case = small()
    backend, batch = case.backend(), case.samples().rows(0, len(case.x))

    def results() -> list[torch.Tensor]:
        with torch.no_grad():
            values = backend.log_prob(case.params, batch)
        down = backend.passes(case.params, batch)
        steps = [tensor for step in down.sums() for tensor in (step.flow, step.ratio, step.values.sums)]
        return [values, *all_sums(backend.statistics(case.params, [batch], ALL)), *steps]

    found = results()
    kept = [tensor.clone() for tensor in found]
    other = replace(batch, x=1 - batch.x)
    backend.statistics(case.params, [other], ALL)
    backend.log_prob(case.params, other)
    assert all(torch.equal(*pair) for pair in zip(found, kept, strict=True))


def test_memory_made_in_inference_mode_can_be_used_outside_of_it():
    case = small()
    backend, batch = case.backend(), case.samples().rows(0, len(case.x))
    with torch.inference_mode():
        inside = backend.log_prob(case.params, batch).clone()
    with torch.no_grad():
        assert torch.equal(backend.log_prob(case.params, batch), inside)


def test_the_trace_sums_total_curvature_over_all_sums():
    case = small()
    truth = Truth.of(case)
    wanted = sum((truth.total(node) * case.sample_weights).sum() for node in case.circuit.sums)
    assert_close(case.statistics().curvature.trace(), wanted[None])


def test_a_circuit_without_sums_has_no_trace():
    case = with_parameters(Circuit(Input(0, Bernoulli())), ("binary",), Shape(), np.random.default_rng(0))
    found = case.statistics()
    assert found.counts == ()
    assert float(found.curvature.trace()) == 0


@given(case=cases(domains=("real", "binary")))
@few
def test_the_mean_log_likelihood_is_weighted(case):
    truth, found = Truth.of(case), case.statistics()
    weight = case.weight
    assume(weight.sum() > 0)
    used = weight > 0
    wanted = (truth.root[used].log() * weight[used]).sum() / weight.sum()
    assert_close(found.mean_log_likelihood[0], wanted)


def small() -> Case:
    """Two outputs over a Gaussian and a binary variable, with sample weights and labels."""
    a, b = Input(0, Gaussian(), 3), Input(1, Bernoulli(), 3)
    circuit = Circuit([Sum(Product([Sum(a, 2), Sum(b, 2)])), Sum(Product([a, b]))])
    case = with_parameters(circuit, ("real", "binary"), Shape(missing=False), np.random.default_rng(0))
    return replace(case, sample_weights=torch.tensor([1.0, 0.0, 2.0, 0.5, 1.0, 3.0]).double())
