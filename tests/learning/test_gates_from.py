"""Gates that are held for an epoch, and strengths against the counts of all rows, each against its definition."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from learning_helpers import assert_same_model, binary_rows, quick, quick_fleet, small_circuit

import circurve as cc
from circuits import Case, Truth, assert_close, cases
from circurve.errors import OptionError
from circurve.learning import Gated, Global, Run, Vanilla
from circurve.learning.gates import max_norm
from circurve.learning.plan import Plan

TRAIN = binary_rows(60)
CIRCUIT = small_circuit(TRAIN)


def pooled(case: Case, batches: list[Case], estimator: str) -> torch.Tensor:  # (M,)
    """t^ of all sum units over the samples of all batches, sample by sample."""
    found = [torch.zeros(0).double()]
    for node in [node for layer in case.program.sums for node in layer.nodes]:
        trace, ratio, mass = torch.zeros(node.units).double(), torch.zeros(()).double(), 0.0
        for batch in batches:
            truth = Truth.of(batch)
            weight = batch.weight * (truth.root > 0)
            for n in range(len(batch.x)):
                rho = truth.ratio(node)[..., n]
                if weight[n] > 0:
                    trace, ratio = trace + weight[n] * rho.square().sum(1), ratio + weight[n] * rho
                    mass += float(weight[n])
        mean_ratio = (ratio / mass).square().sum(1) if mass else torch.zeros(node.units).double()
        found.append(trace / (mass or 1.0) if estimator == "mean_trace" else mean_ratio)
    return torch.cat(found)


@given(
    case=cases(),
    estimator=st.sampled_from(["mean_trace", "mean_ratio"]),
    source=st.sampled_from(["epoch", "first"]),
)
@settings(max_examples=40, deadline=None)
def test_a_gate_is_shown_all_samples_of_the_epoch_at_its_end(case, estimator, source):
    seen: list[torch.Tensor] = []

    def spy(curvature):
        seen.append(curvature.local)
        return torch.ones_like(curvature.local)

    assume(case.circuit.sums)
    other = case.with_x(case.x[:3])
    batches = [case, other]
    assume(all(float(batch.statistics().weight) > 0 for batch in batches))
    plan = Plan(case.program, [Gated(0.1, spy, estimator=estimator, gates_from=source)], case.params.inputs[0])
    for epoch in range(3):
        for batch in batches[: 1 + (epoch != 1)]:  # the second epoch has one batch alone
            plan.maximize(case.params, batch.statistics(), [1.0], [0.1])
            assert plan.omega is not None
            assert bool((plan.omega == float(epoch > 0)).all())
        plan.end_epoch()
    assert len(seen) == (3 if source == "epoch" else 1)
    for found, of in zip(seen, (batches, [case], batches), strict=False):
        assert_close(found, pooled(case, of, estimator), 1e-9)


def by_hand(epochs: int, source: str, mu: float) -> cc.Model:
    """Full-batch EM with step 1: gates 0 in the first epoch, then those of the epoch before, or of the first one."""
    start = quick(CIRCUIT, TRAIN, epochs=1, batch_size=None, step_size=1e-300, seed=3).model
    model, gates = start, None
    for _ in range(epochs):
        measured = torch.from_numpy(cc.curvature(model, TRAIN).local)
        held = torch.zeros_like(measured) if gates is None else gates
        method = Gated(mu, lambda _, held=held: held)
        after = quick(CIRCUIT, TRAIN, epochs=1, batch_size=None, step_size=1.0, method=method, start=model).model
        if gates is None or source == "epoch":
            gates = measured / measured.max()
        model = after
    return model


@pytest.mark.parametrize("source", ["epoch", "first"])
def test_training_with_held_gates_equals_epochs_by_hand(source):
    method = Gated(0.5, max_norm, gates_from=source)
    found = quick(CIRCUIT, TRAIN, epochs=4, batch_size=None, step_size=1.0, method=method, seed=3)
    assert_same_model(found, by_hand(4, source, 0.5), 1e-7)
    other = by_hand(4, "first" if source == "epoch" else "epoch", 0.5)
    with pytest.raises(AssertionError):
        assert_same_model(found, other, 1e-7)


def test_runs_with_held_gates_do_not_depend_on_their_neighbours():
    train, valid = binary_rows(25, noise=0.25), binary_rows(60, seed=2, noise=0.25)
    methods = [
        *(Gated(0.2, estimator=name, gates_from="epoch") for name in ("mean_trace", "mean_ratio", "geometric")),
        Gated(0.2, gates_from="first"),
        Gated(0.2),
        Vanilla(),
        Global(1.0),
    ]
    runs = [Run(method, seed) for seed, method in enumerate(methods)]
    options = {"valid": valid, "batch_size": 10, "epochs": 12, "patience": 2, "select": "last"}
    fleet = quick_fleet(CIRCUIT, train, runs, **options)
    assert len({len(result.history) for result in fleet}) > 1
    for run, found in zip(runs, fleet, strict=True):
        assert_same_model(found, quick_fleet(CIRCUIT, train, [run], **options)[0])


@pytest.mark.parametrize("kind", [Global, Gated])
def test_counts_of_all_rows_are_a_weaker_penalty_on_the_counts_of_a_batch(kind):
    options = {"batch_size": 20, "epochs": 3, "seed": 1}
    found = quick(CIRCUIT, TRAIN, method=kind(0.6, mu_scale="data"), **options)
    assert_same_model(found, quick(CIRCUIT, TRAIN, method=kind(0.6 * 20 / 60), **options))


def test_counts_of_all_rows_are_those_of_a_full_batch():
    options = {"batch_size": None, "epochs": 3, "seed": 1}
    found = quick(CIRCUIT, TRAIN, method=Global(0.6, mu_scale="data"), **options)
    assert_same_model(found, quick(CIRCUIT, TRAIN, method=Global(0.6), **options))


def test_memory_and_held_gates_exclude_each_other():
    with pytest.raises(
        OptionError, match="gate_memory has no effect with gates_from='epoch'; leave one of the two out"
    ):
        Gated(0.1, gate_memory=0.5, gates_from="epoch")
    with pytest.raises(OptionError, match=r"^gates_from must be"):
        Gated(0.1, gates_from="never")
