"""Ctrl-C ends a training at any moment, and what was learned comes back."""

import pytest
from learning_helpers import assert_same_model, binary_rows, quick, quick_fleet, same_parameters, small_circuit

from circurve import Grid, Run
from circurve.engine import Params
from circurve.learning import Global
from circurve.learning.plan import Plan

TRAIN, VALID = binary_rows(60), binary_rows(120)[60:]
CIRCUIT = small_circuit(TRAIN)


def interrupt_at(epoch: int):
    def callback(event):
        if event.epoch == epoch:
            raise KeyboardInterrupt

    return callback


def interrupt_step(monkeypatch, number: int) -> None:
    """Ctrl-C in the middle of the M-step of that number, from 0."""
    steps, maximize = iter(range(10**6)), Plan.maximize

    def interrupted(self, *arguments):
        if next(steps) == number:
            raise KeyboardInterrupt
        return maximize(self, *arguments)

    monkeypatch.setattr(Plan, "maximize", interrupted)


def test_an_interruption_between_epochs_keeps_the_epochs_before_it():
    result = quick(CIRCUIT, TRAIN, epochs=20, batch_size=None, callbacks=[interrupt_at(3)])
    assert (result.stopped, result.epoch, len(result.history)) == ("interrupted", 3, 3)
    assert_same_model(result, quick(CIRCUIT, TRAIN, epochs=3, batch_size=None), 1e-12)


def test_an_interruption_keeps_the_best_epoch_by_validation():
    full = quick(CIRCUIT, TRAIN[:12], valid=VALID, epochs=20, batch_size=None)
    assert full.epoch < 15
    result = quick(
        CIRCUIT, TRAIN[:12], valid=VALID, epochs=20, batch_size=None, callbacks=[interrupt_at(full.epoch + 3)]
    )
    assert (result.stopped, result.epoch) == ("interrupted", full.epoch)
    assert_same_model(result, full, 1e-12)


def test_an_interruption_within_an_epoch_keeps_the_steps_before_it(monkeypatch):
    whole = quick(CIRCUIT, TRAIN, epochs=2, batch_size=20)
    interrupt_step(monkeypatch, 6)  # the first step of epoch 3
    result = quick(CIRCUIT, TRAIN, epochs=20, batch_size=20)
    assert (result.stopped, len(result.history)) == ("interrupted", 2)
    assert_same_model(result, whole, 1e-12)
    assert result.train_ll == pytest.approx(whole.train_ll, rel=1e-12)


def test_an_interruption_of_the_very_first_step_returns_the_start(monkeypatch):
    start = quick(CIRCUIT, TRAIN, valid=VALID, epochs=0)
    interrupt_step(monkeypatch, 0)
    result = quick(CIRCUIT, TRAIN, valid=VALID, epochs=20)
    assert (result.stopped, result.history) == ("interrupted", ())
    assert same_parameters(result, start)
    assert result.valid_ll == start.valid_ll


def test_an_interrupted_fleet_returns_all_runs():
    runs = [Run(seed=seed) for seed in range(3)]
    fleet = quick_fleet(CIRCUIT, TRAIN, runs, epochs=20, callbacks=[interrupt_at(2)])
    wanted = quick_fleet(CIRCUIT, TRAIN, runs, epochs=2)
    assert [result.stopped for result in fleet] == ["interrupted"] * 3
    for found, other in zip(fleet, wanted, strict=True):
        assert_same_model(found, other, 1e-12)


def test_an_interrupted_choice_of_mu_returns_the_best_so_far():
    result = quick(
        CIRCUIT, TRAIN, valid=VALID, method=Global(Grid((0.01, 0.1))), epochs=20, callbacks=[interrupt_at(2)]
    )
    assert result.stopped == "interrupted"
    assert len(result.path) == 2
    assert result.valid_ll == max(candidate.valid_ll for candidate in result.path)


@pytest.mark.parametrize("call", range(2))
def test_an_interruption_while_the_fleet_shrinks_mixes_up_no_runs(monkeypatch, call):
    """Run 0 stops by patience first; the interruption falls into the copying of the others' parameters."""
    options = {"valid": VALID, "batch_size": None, "epochs": 12, "patience": 2, "select": "last"}
    runs = [Run(), Run(step_size=0.05, seed=1), Run(step_size=0.04, seed=2)]
    whole = quick_fleet(CIRCUIT, TRAIN[:12], runs, **options)
    end = len(whole[0].history)
    assert end < min(len(whole[1].history), len(whole[2].history))
    calls, select = [], Params.select

    def interrupted(self, chosen):
        if len(chosen) == 2 or calls:
            calls.append(chosen)
            if len(calls) == call + 1:
                raise KeyboardInterrupt
        return select(self, chosen)

    monkeypatch.setattr(Params, "select", interrupted)
    fleet = quick_fleet(CIRCUIT, TRAIN[:12], runs, **options)
    wanted = quick_fleet(CIRCUIT, TRAIN[:12], runs, **{**options, "epochs": end, "patience": None})
    for found, run, other in zip(fleet, runs, wanted, strict=True):
        assert found.run == run
        assert_same_model(found, other, 1e-12)
