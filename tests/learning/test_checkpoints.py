"""A training that is interrupted and continued gives, bit by bit, the result of a training without a break."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from broken_off import (
    BreakOffError,
    assert_equal_fleets,
    assert_equal_to_the_bit,
    break_off_at,
    broken_and_continued,
)
from faults import MARKED, break_parameters, in_weights
from learning_helpers import binary_rows, quick, quick_fleet, small_circuit

from circurve import (
    CircurveWarning,
    Gated,
    Gaussian,
    Global,
    Grid,
    Model,
    OptionError,
    Run,
    TrainingError,
    Vanilla,
    fit_ensemble,
    fit_units,
    hclt,
    mixture,
    schedules,
)
from circurve.engine import choose_backend

TRAIN, VALID = binary_rows(90), binary_rows(150)[90:]
CIRCUIT = small_circuit(TRAIN)
OPTIONS = {"epochs": 7, "batch_size": 20, "progress": False}

METHODS = {
    "vanilla": {"method": Vanilla(0.1)},
    "full batches": {"batch_size": None},
    "schedules": {"method": Global(schedules.linear(0.0, 0.2)), "step_size": schedules.cosine(0.3, 0.01)},
    "gate memory": {"method": Gated(0.1, gate_memory=0.5)},
    "held gates": {"method": Gated(0.1, gates_from="epoch", estimator="mean_ratio"), "track": True},
    "first gates": {"method": Gated(0.1, gates_from="first")},
    "driven by overfitting": {"method": Global(schedules.by_overfitting(0.5)), "valid": VALID, "test": VALID[:20]},
    "best epoch": {"valid": VALID, "patience": 2, "batch_size": None, "epochs": 30},
    "weights and labels": {"weights": np.linspace(0.0, 2.0, len(TRAIN))},
    "missing values": {"missing": 1},
}


@pytest.mark.parametrize(("backend", "precision"), [("reference", "float64"), ("tree", "float32")])
@pytest.mark.parametrize("name", METHODS)
def test_a_break_changes_no_bit(name, backend, precision, tmp_path):
    options = {**OPTIONS, **METHODS[name], "backend": backend, "precision": precision}

    def train(**more):
        return quick(CIRCUIT, TRAIN, **options, **more)

    assert_equal_to_the_bit(broken_and_continued(train, tmp_path, 4), train())


@pytest.mark.parametrize("epoch", [1, 2, 7])
def test_a_break_in_any_epoch(epoch, tmp_path):
    def train(**more):
        return quick(CIRCUIT, TRAIN, **OPTIONS, method=Gated(0.1, gate_memory=0.3), **more)

    assert_equal_to_the_bit(broken_and_continued(train, tmp_path, epoch), train())


def test_several_breaks_and_a_checkpoint_every_third_epoch(tmp_path):
    options = {**OPTIONS, "epochs": 11}
    for epoch in (2, 4, 5, 10):
        with pytest.raises(BreakOffError):
            quick(
                CIRCUIT,
                TRAIN,
                **options,
                checkpoint=tmp_path,
                checkpoint_every="3 epochs",
                callbacks=[break_off_at(epoch)],
            )
    found = quick(CIRCUIT, TRAIN, **options, checkpoint=tmp_path, checkpoint_every="3 epochs")
    assert_equal_to_the_bit(found, quick(CIRCUIT, TRAIN, **options))


def test_other_circuits(tmp_path):
    """A mixture of Gaussians uses the reference backend."""
    rows = np.random.default_rng(0).normal(size=(60, 3)) + (np.arange(60) % 2)[:, None]
    circuit = mixture([Gaussian()] * 3, 4)

    def train(**more):
        return quick(circuit, rows, **OPTIONS, **more)

    assert_equal_to_the_bit(broken_and_continued(train, tmp_path, 3), train())


def fleet(**more):
    runs = [
        Run(),
        Run(Gated(0.1, gate_memory=0.5), seed=1, step_size=0.05),
        Run(Gated(0.2, gates_from="epoch"), seed=1),
        Run(Global(0.1, simplex="exact", penalty="exact"), seed=2, step_size=0.4),
    ]
    options = {"valid": VALID, "patience": 2, "epochs": 25, "batch_size": 30, "progress": False}
    return quick_fleet(CIRCUIT, TRAIN[:30], runs, **options, **more)


def test_a_fleet_whose_runs_stop_at_different_times(tmp_path):
    whole = fleet()
    ends = sorted(len(result.history) for result in whole)
    assert ends[0] < ends[-1]
    for epoch in (1, ends[0], ends[-1] - 1):
        assert_equal_fleets(broken_and_continued(fleet, tmp_path / str(epoch), epoch), whole)


@pytest.mark.parametrize("epoch", [1, 2, 4])
def test_a_fleet_with_a_run_that_fails(epoch, tmp_path, monkeypatch):
    """Before, in and after the break; the others do not notice either of them."""
    runs = [Run(seed=1), MARKED, Run(Gated(0.1, gate_memory=0.5), seed=2)]

    def train(**more):
        with monkeypatch.context() as patch:
            break_parameters(patch, 2, in_weights(np.nan))
            with pytest.warns(CircurveWarning, match="failed in epoch 2"):
                return quick_fleet(CIRCUIT, TRAIN, runs, **OPTIONS, **more)

    def after(**more):
        return quick_fleet(CIRCUIT, TRAIN, runs, **OPTIONS, **more)

    whole = train()
    options = {"checkpoint": tmp_path, "checkpoint_every": "1 epoch"}
    with pytest.raises(BreakOffError):
        (train if epoch > 1 else after)(callbacks=[break_off_at(epoch)], **options)
    if epoch == 1:  # nothing is stored: the first epoch was not left
        found = train(**options)
    elif epoch == 2:  # that of epoch 1 is stored: the fault comes again, as the first epoch of this process
        with monkeypatch.context() as patch:
            break_parameters(patch, 1, in_weights(np.nan))
            with pytest.warns(CircurveWarning, match="failed in epoch 2"):
                found = after(**options)
    else:
        found = after(**options)
    assert_equal_fleets(found, whole)
    assert found.failed == (1,)


def test_if_all_runs_failed_the_same_error_comes_at_once(tmp_path, monkeypatch):
    options = {**OPTIONS, "checkpoint": tmp_path, "checkpoint_every": "1 epoch"}
    with monkeypatch.context() as patch:
        break_parameters(patch, 3, in_weights(np.inf))
        with pytest.raises(TrainingError, match="failed in epoch 3"):
            quick_fleet(CIRCUIT, TRAIN, [MARKED], **options)
    with pytest.raises(TrainingError, match="failed in epoch 3"):
        quick_fleet(CIRCUIT, TRAIN, [MARKED], **options)


def test_a_choice_of_mu_and_its_refit(tmp_path):
    def train(**more):
        method = Global(Grid((0.0, 0.1)))
        return quick(CIRCUIT, TRAIN, valid=VALID, method=method, refit=True, **OPTIONS, **more)

    whole = train()
    assert_equal_to_the_bit(broken_and_continued(train, tmp_path, 4), whole)
    assert (tmp_path / "refit-0" / "training.json").exists()


def test_the_kind_of_backend_is_kept_where_the_parameters_would_choose_another(tmp_path):
    """Weights of zero need the reference backend; after one step there are none, but the backend stays the same."""
    start = quick(CIRCUIT, TRAIN, epochs=0)
    weights = tuple(w.clone() for w in start.model.params.weights)
    weights[-1][0, 0, 0] = torch.nn.functional.one_hot(torch.tensor(0), weights[-1].shape[-1])
    params = type(start.model.params)(weights, start.model.params.inputs)
    model = Model(CIRCUIT, params, start.model.program)

    def train(**more):
        return quick(CIRCUIT, TRAIN, start=model, **{**OPTIONS, "precision": "float32"}, **more)

    whole = train()
    assert choose_backend(model.program, params).name == "reference"
    assert choose_backend(model.program, whole.model.params).name != "reference"
    assert_equal_to_the_bit(broken_and_continued(train, tmp_path, 3), whole)


def test_the_chunks_of_the_start_are_kept(tmp_path):
    """Sums in other chunks differ in their last bits; the budget may change, the chunks do not."""

    def train(**more):
        return quick(CIRCUIT, TRAIN.astype(np.int8), **{"epochs": 7, "batch_size": 60, "precision": "float32"}, **more)

    whole = train(memory_budget=22_500)
    with pytest.raises(BreakOffError):
        train(memory_budget=22_500, checkpoint=tmp_path, checkpoint_every="1 epoch", callbacks=[break_off_at(3)])
    assert_equal_to_the_bit(train(checkpoint=tmp_path, checkpoint_every="1 epoch"), whole)


# --- trainings of several parts ---


def events_until(number: int):
    """A callback that interrupts at the epoch of that number, counted over all parts."""
    seen = iter(range(10**6))

    def callback(event):
        if next(seen) == number:
            raise BreakOffError

    return callback


SMALL = {"epochs": 3, "batch_size": 30, "device": "cpu", "progress": False}


def assert_same_tensors(one: Model, other: Model) -> None:
    pairs = zip((*one.params.weights, *one.params.inputs), (*other.params.weights, *other.params.inputs), strict=True)
    assert all(a.equal(b) for a, b in pairs)


ENSEMBLES = {
    "all kinds": {"members": 4, "units": (2, 3), "boosted": 1, "joint_epochs": 2, "valid": VALID},
    "cross-validation": {"members": 2, "units": 2, "folds": 2, "valid": False},
}


@pytest.mark.parametrize("name", ENSEMBLES)
def test_ensembles(name, tmp_path):
    options = {**SMALL, **ENSEMBLES[name]}
    epochs = []
    whole = fit_ensemble(TRAIN, **options, callbacks=[lambda event: epochs.append(event.epoch)])
    for number in (1, len(epochs) // 2, len(epochs) - 1):
        checkpoint = {"checkpoint": tmp_path / str(number), "checkpoint_every": "1 epoch"}
        with pytest.raises(BreakOffError):
            fit_ensemble(TRAIN, **options, **checkpoint, callbacks=[events_until(number)])
        found = fit_ensemble(TRAIN, **options, **checkpoint)
        assert_same_tensors(found.model, whole.model)
        assert [(m.name, m.weight) for m in found.members] == [(m.name, m.weight) for m in whole.members]
    with pytest.raises(OptionError, match=r"another training .*weighting: was 'em', is 'uniform'"):
        fit_ensemble(TRAIN, **options, **checkpoint, weighting="uniform")


def test_a_choice_of_units(tmp_path):
    options = {**SMALL, "valid": VALID, "pseudocounts": (0.01, 0.1)}
    whole = fit_units(TRAIN, (2, 3, 4), **options)
    checkpoint = {"checkpoint": tmp_path, "checkpoint_every": "1 epoch"}
    with pytest.raises(BreakOffError):
        fit_units(TRAIN, (2, 3, 4), **options, **checkpoint, callbacks=[events_until(4)])
    found = fit_units(TRAIN, (2, 3, 4), **options, **checkpoint)
    assert found.units == whole.units
    assert_equal_to_the_bit(found.result, whole.result)
    with pytest.raises(OptionError, match=r"units: was \(2, 3, 4\), is \(2, 3\)"):
        fit_units(TRAIN, (2, 3), **options, **checkpoint)
    with pytest.raises(OptionError, match="function: was fit_units, is fit_fleet"):
        quick(hclt(TRAIN, 2), TRAIN, **SMALL | checkpoint)


@pytest.mark.parametrize(("every", "left"), [("1h", True), ("1h, unfinished", False), ("1 epoch, unfinished", True)])
def test_a_finished_training_is_written_unless_only_unfinished_ones_are(tmp_path, every, left):
    quick(CIRCUIT, TRAIN, **OPTIONS, checkpoint=tmp_path, checkpoint_every=every)
    assert any(path.suffix == ".safetensors" for path in tmp_path.rglob("*")) == left
