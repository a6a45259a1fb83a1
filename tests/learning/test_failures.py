"""A run that fails is detected in its epoch, named, and stopped; the others are not affected."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from faults import MARKED, break_data, break_parameters, break_statistics, in_inputs, in_weights
from learning_helpers import binary_rows, quick, quick_fleet, same_parameters, small_circuit

from circurve import (
    CircurveWarning,
    Gated,
    Gaussian,
    Global,
    Grid,
    Model,
    ParameterError,
    Run,
    TrainingError,
    fully_factorized,
    mixture,
)
from circurve.learning import Failure, FitResult, FleetResult
from circurve.learning.graph_steps import GraphSteps
from circurve.learning.steps import PlainSteps

TRAIN, VALID = binary_rows(60), binary_rows(120)[60:]
CIRCUIT = small_circuit(TRAIN)
FIRST, LAST = Run(seed=1), Run(Gated(0.1, gate_memory=0.5), seed=2)
FLEET = [FIRST, MARKED, LAST]
OPTIONS = {"batch_size": 20, "epochs": 5}


def timeless(result: FitResult) -> list[object]:
    return [replace(record, seconds=0.0) for record in result.history]


def assert_equal_to_the_bit(found: FitResult, wanted: FitResult) -> None:
    assert same_parameters(found, wanted)
    assert timeless(found) == timeless(wanted)
    scores = [(r.epoch, r.stopped, r.train_ll, r.valid_ll, r.test_ll, r.sharpness) for r in (found, wanted)]
    assert scores[0] == scores[1]


def all_finite(result: FitResult) -> bool:
    params = result.model.params
    return all(bool(tensor.isfinite().all()) for tensor in (*params.weights, *params.inputs))


def fail_and_compare(message: str, epoch: int, circuit=CIRCUIT, train=TRAIN, **options) -> FleetResult:
    """Train the fleet with its fault, check that it was noticed, and compare the others with a fleet of their own."""
    options = {**OPTIONS, **options}
    with pytest.warns(CircurveWarning, match=message):
        fleet = quick_fleet(circuit, train, FLEET, **options)
    broken = fleet[1]
    assert [result.failed for result in fleet] == [False, True, False]
    assert (broken.stopped, broken.failure.epoch, len(broken.history)) == ("failed", epoch, epoch - 1)
    assert all_finite(broken)
    assert math.isfinite(broken.train_ll)
    others = quick_fleet(circuit, train, [FIRST, LAST], **options)
    for found, wanted in zip((fleet[0], fleet[2]), others, strict=True):
        assert_equal_to_the_bit(found, wanted)
    return fleet


FAULTS = {
    "NaN in a weight": (in_weights(math.nan), "Sum "),
    "infinity in a weight": (in_weights(math.inf), "Sum "),
    "NaN in an input": (in_inputs(math.nan), "Input "),
    "infinity in an input": (in_inputs(-math.inf), "Input "),
}


ANY_NODE = "(Sum|Input) "
"""Within an epoch NaN spreads to the parameters of other nodes, and the first of all is named."""


@pytest.mark.parametrize("before", [False, True], ids=["at the end of an epoch", "before its first step"])
@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_parameter_is_noticed_in_its_epoch_and_named(monkeypatch, name, before):
    fault, node = FAULTS[name]
    break_parameters(monkeypatch, 3, fault, before)
    node = ANY_NODE if before else node
    message = rf"^run 1 \(vanilla, seed 5\) failed in epoch 3: {node}.*: a parameter is not finite; the run keeps the "
    fleet = fail_and_compare(message + r"parameters of epoch 2$", 3, track=True)
    assert fleet[1].epoch == 2


def test_the_last_finite_parameters_are_those_of_the_epoch_before(monkeypatch):
    kept = []
    break_parameters(monkeypatch, 3, in_weights(math.nan))
    with pytest.warns(CircurveWarning, match="the run keeps the parameters of epoch 2"):
        fleet = quick_fleet(
            CIRCUIT, TRAIN, FLEET, **OPTIONS, callbacks=[lambda e: kept.append(e.model(1)) if e.epoch == 2 else None]
        )
    assert same_parameters(fleet[1], kept[0])


def test_a_run_that_breaks_at_once_keeps_its_start(monkeypatch):
    break_parameters(monkeypatch, 1, in_weights(math.nan))
    fleet = fail_and_compare("failed in epoch 1: .*; the run keeps its initial parameters$", 1)
    assert fleet[1].epoch == 0
    assert same_parameters(fleet[1], quick_fleet(CIRCUIT, TRAIN, [MARKED], epochs=0)[0])


def test_the_best_epoch_by_validation_is_kept_where_there_is_one(monkeypatch):
    break_parameters(monkeypatch, 4, in_inputs(math.nan))
    fleet = fail_and_compare("failed in epoch 4", 4, valid=VALID, test=VALID[:20])
    scores = [record.valid_ll for record in fleet[1].history]
    assert fleet[1].epoch == 1 + int(np.argmax(scores))
    assert fleet[1].valid_ll == pytest.approx(max(scores), rel=1e-12)


def test_full_batches_notice_too(monkeypatch):
    break_parameters(monkeypatch, 2, in_weights(math.nan), before=True)
    fail_and_compare("failed in epoch 2", 2, batch_size=None)


def test_circuits_that_are_no_latent_tree_notice_too(monkeypatch):
    rows = np.random.default_rng(0).normal(size=(40, 2))
    circuit = mixture((Gaussian(), 2), 3)
    break_parameters(monkeypatch, 2, in_inputs(math.nan), before=True)
    fail_and_compare(r"failed in epoch 2: Input .*", 2, circuit, rows)


def break_counts(sums, place):
    counts = [layer.clone() for layer in sums.counts]
    counts[0][place].view(-1)[0] = torch.nan
    return replace(sums, counts=tuple(counts))


def break_input_sums(sums, place):
    inputs = [layer.clone() for layer in sums.inputs]
    inputs[0][place].view(-1)[0] = torch.nan
    return replace(sums, inputs=tuple(inputs))


def break_likelihood(sums, place):
    likelihood = sums.log_likelihood.clone()
    likelihood[place] = torch.nan
    return replace(sums, log_likelihood=likelihood)


@pytest.mark.parametrize("change", [break_counts, break_input_sums, break_likelihood])
def test_broken_statistics_are_noticed_in_their_epoch(monkeypatch, change):
    """Three steps an epoch, so the fifth E-step is one in the middle of epoch 2."""
    break_statistics(monkeypatch, 5, change)
    fail_and_compare(r"^run 1 \(vanilla, seed 5\) failed in epoch 2: ", 2)


def test_a_gated_run_with_broken_curvature_is_noticed(monkeypatch):
    def change(sums, place):
        total = [layer.clone() for layer in sums.curvature.total]
        total[0][0].fill_(torch.nan)  # of the gated run, which is the first
        return replace(sums, curvature=replace(sums.curvature, total=tuple(total)))

    break_statistics(monkeypatch, 2, change)
    with pytest.warns(CircurveWarning, match="run 0 .* failed in epoch 1: .* that its gates follow is NaN"):
        fleet = quick_fleet(CIRCUIT, TRAIN, [Run(Gated(0.1)), MARKED], **OPTIONS)
    assert fleet.failed == (0,)


def test_a_users_gate_is_not_blamed_for_a_broken_run(monkeypatch):
    def half(curvature):
        return curvature.local / (1 + curvature.local)

    break_parameters(monkeypatch, 2, in_weights(math.nan), before=True)
    runs = [MARKED, Run(Gated(0.1, half), seed=3)]
    with pytest.warns(CircurveWarning, match=r"run 0 .* failed in epoch 2"):
        fleet = quick_fleet(CIRCUIT, TRAIN, runs, **OPTIONS)
    assert fleet.failed == (0,)


# --- broken data ---


def gaussian_rows(count: int) -> np.ndarray:
    return np.random.default_rng(count).normal(size=(count, 2))


@pytest.mark.parametrize("batch_size", [10, None])
def test_nan_in_the_training_data_on_the_device_breaks_every_run(monkeypatch, batch_size):
    rows = gaussian_rows(30)
    circuit = mixture((Gaussian(), 2), 3)
    break_data(monkeypatch, 30)
    with pytest.raises(TrainingError, match=r"^run 0 \(vanilla, seed 0\) failed in epoch 1: "):
        quick(circuit, rows, batch_size=batch_size)
    with (
        pytest.warns(CircurveWarning) as caught,
        pytest.raises(TrainingError, match=r"^all 2 runs failed; the first: run 0 \(vanilla, seed 1\) failed in epoch"),
    ):
        quick_fleet(circuit, rows, [FIRST, MARKED], batch_size=batch_size)
    assert len(caught) == 2


@pytest.mark.parametrize(("part", "name"), [("valid", "validation"), ("test", "test")])
def test_nan_in_held_out_data_on_the_device_is_noticed(monkeypatch, part, name):
    rows, held = gaussian_rows(30), gaussian_rows(12)
    break_data(monkeypatch, 12)
    with pytest.raises(TrainingError, match=f"all parameters are finite, but the {name} log-likelihood is NaN"):
        quick(fully_factorized((Gaussian(), 2)), rows, **{part: held})


def test_a_start_that_is_broken_already_is_refused():
    start = quick(CIRCUIT, TRAIN, epochs=0).model
    params = start.params.clone()
    params.weights[0].view(-1)[0] = torch.nan
    with pytest.raises(ParameterError, match=r"^the start of training: Sum '.*': a parameter is not finite$"):
        quick(CIRCUIT, TRAIN, start=Model(CIRCUIT, params, start.program))


# --- what becomes of a fleet ---


def test_the_only_run_that_fails_is_an_error_that_names_it(monkeypatch):
    break_parameters(monkeypatch, 2, in_weights(math.nan))
    labelled = replace(MARKED, label="the smoothed one")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the error says it, a warning would say it twice
        with pytest.raises(
            TrainingError, match=r"^the smoothed one \(vanilla, seed 5\) failed in epoch 2: Sum '.*': a par"
        ):
            quick_fleet(CIRCUIT, TRAIN, [labelled])


def test_runs_that_stopped_before_are_results_if_all_others_fail(monkeypatch):
    break_parameters(monkeypatch, 3, in_weights(math.nan))
    runs = [Run(step_size=1e-9), MARKED]
    with pytest.warns(CircurveWarning, match="run 1 .* failed in epoch 3"):
        fleet = quick_fleet(CIRCUIT, TRAIN, runs, epochs=9, batch_size=None, tolerance=1e-4)
    assert [result.stopped for result in fleet] == ["tolerance", "failed"]


def test_the_best_of_a_fleet_is_never_a_failed_run(monkeypatch):
    good = quick(CIRCUIT, TRAIN, valid=VALID)
    failed = replace(good, valid_ll=0.0, stopped="failed", failure=Failure(3, "a test"))
    assert FleetResult((failed, good)).best() is good
    assert FleetResult((failed, good)).failed == (0,)
    with pytest.raises(TrainingError, match=r"^all 2 runs failed; the first: run 1 .* failed in epoch 2"):
        FleetResult((failed, replace(failed, failure=Failure(2, "a test")))).best()
    assert "2 runs, 1 failed" in repr(FleetResult((failed, good)))


def test_a_choice_of_mu_ignores_candidates_that_failed(monkeypatch):
    method = Global(Grid((0.01, 0.1, 1.0)))
    whole = quick(CIRCUIT, TRAIN, valid=VALID, method=method, **OPTIONS)
    best = [candidate.model is whole.model for candidate in whole.path].index(True)
    monkeypatch.setattr("faults.MARKED", replace(MARKED, method=whole.path[best].run.method))
    break_parameters(monkeypatch, 2, in_weights(math.nan))
    with pytest.warns(CircurveWarning, match="failed in epoch 2"):
        found = quick(CIRCUIT, TRAIN, valid=VALID, method=method, **OPTIONS)
    assert [candidate.failed for candidate in found.path] == [place == best for place in range(3)]
    others = [candidate.valid_ll for candidate in whole.path if candidate is not whole.path[best]]
    assert found.valid_ll == max(others)
    assert not found.failed


def test_a_refit_that_fails_keeps_what_was_chosen(monkeypatch):
    method = Global(Grid((0.1, 1.0)))
    options = {"valid": VALID, "method": method, **OPTIONS}
    whole = quick(CIRCUIT, TRAIN, **options)
    plain = Run(seed=4)
    monkeypatch.setattr("faults.MARKED", replace(MARKED, method=whole.run.method))
    break_parameters(monkeypatch, OPTIONS["epochs"] + 1, in_weights(math.nan))  # the first epoch of the refit
    with pytest.warns(CircurveWarning, match=r"^the refit of run 0 \(global, mu .*, seed 0\) failed in epoch 1: Sum "):
        fleet = quick_fleet(CIRCUIT, TRAIN, [Run(method), plain], valid=VALID, refit=True, **OPTIONS)
    assert [result.failed for result in fleet] == [True, False]
    assert same_parameters(fleet[0], whole)


def test_an_interruption_in_the_middle_of_an_epoch_returns_nothing_broken(monkeypatch):
    run = PlainSteps.run
    epochs = iter(range(1, 100))

    def interrupted(self, *arguments):
        totals = run(self, *arguments)
        if next(epochs) == 3:
            self.params = self.params.clone()
            self.params.weights[0][1].view(-1)[0] = torch.nan
            raise KeyboardInterrupt
        return totals

    monkeypatch.setattr(PlainSteps, "run", interrupted)
    with pytest.warns(CircurveWarning, match=r"run 1 .* failed in epoch 3: Sum '.*': a parameter is not finite"):
        fleet = quick_fleet(CIRCUIT, TRAIN, FLEET, **OPTIONS)
    assert [result.stopped for result in fleet] == ["interrupted", "failed", "interrupted"]
    assert all(all_finite(result) for result in fleet)


def test_a_training_without_faults_warns_of_nothing_and_fails_nowhere():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fleet = quick_fleet(CIRCUIT, TRAIN, FLEET, valid=VALID, track=True, **OPTIONS)
    assert fleet.failed == ()
    assert [result.failure for result in fleet] == [None] * 3


# --- the fused kernels ---

FUSED = {"backend": "fused", "precision": "float32", "epochs": 2, "batch_size": 60}


@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("name", FAULTS if torch.cuda.is_available() else [*FAULTS][:1])  # the interpreter is slow
def test_the_fused_kernels_notice_broken_parameters(monkeypatch, name):
    pytest.importorskip("triton")
    fault, _ = FAULTS[name]
    break_parameters(monkeypatch, 2, fault, before=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    fail_and_compare(rf"failed in epoch 2: {ANY_NODE}.*: a parameter", 2, **FUSED, device=device)


@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
def test_the_fused_kernels_notice_broken_statistics(monkeypatch):
    pytest.importorskip("triton")
    m_step = GraphSteps._m_step

    def broken(self, sums):
        if MARKED.method in self.plan.methods:
            sums.counts[0][self.plan.methods.index(MARKED.method)].view(-1)[0].fill_(torch.nan)
        m_step(self, sums)

    monkeypatch.setattr(GraphSteps, "_m_step", broken)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    fail_and_compare("failed in epoch 1", 1, **FUSED, device=device)


@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
def test_the_fused_kernels_notice_broken_data(monkeypatch):
    pytest.importorskip("triton")
    rows = gaussian_rows(30)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    break_data(monkeypatch, 30)
    with pytest.warns(CircurveWarning, match="failed in epoch 1"), pytest.raises(TrainingError, match="all 2 runs"):
        quick_fleet(mixture((Gaussian(), 2), 3), rows, [FIRST, MARKED], **FUSED, device=device)
