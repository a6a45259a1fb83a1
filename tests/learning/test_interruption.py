"""Ctrl-C ends a training at any moment, and what was learned comes back."""

import math
from dataclasses import replace

import pytest
from learning_helpers import assert_same_model, binary_rows, quick, quick_fleet, same_parameters, small_circuit

from circurve import Grid, Run, fit_ensemble
from circurve.engine import Params
from circurve.learning import FleetResult, Global, auto, boost, fitting, fitting_ensembles, members, units
from circurve.learning.checkpoints import Checkpoints
from circurve.learning.loop import Trainer
from circurve.learning.plan import Plan
from circurve.learning.score import Scorer

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
    assert (result.stopped, result.epoch, len(result.history)) == ("interrupted", 2, 2)
    assert_same_model(result, whole, 1e-12)
    assert result.train_ll == pytest.approx(whole.train_ll, rel=1e-12)


def test_an_interruption_of_the_very_first_step_returns_the_start(monkeypatch):
    start = quick(CIRCUIT, TRAIN, valid=VALID, epochs=0)
    interrupt_step(monkeypatch, 0)
    result = quick(CIRCUIT, TRAIN, valid=VALID, epochs=20)
    assert (result.stopped, result.epoch, result.history) == ("interrupted", 0, ())
    assert same_parameters(result, start)
    assert result.valid_ll == start.valid_ll


@pytest.mark.parametrize("epoch", [1, 3])
def test_an_interruption_in_the_middle_of_an_epoch_returns_its_steps(monkeypatch, epoch):
    interrupt_step(monkeypatch, 3 * (epoch - 1) + 2)
    result = quick(CIRCUIT, TRAIN, epochs=20, batch_size=20)
    assert (result.stopped, result.epoch, len(result.history)) == ("interrupted", epoch, epoch - 1)
    for whole in (epoch - 1, epoch):
        assert not same_parameters(result, quick(CIRCUIT, TRAIN, epochs=whole, batch_size=20))


def test_an_interruption_while_the_first_epoch_is_scored_returns_its_steps(monkeypatch):
    whole = quick(CIRCUIT, TRAIN, valid=VALID, epochs=1)
    interrupt_call(monkeypatch, Scorer, "score")
    result = quick(CIRCUIT, TRAIN, valid=VALID, epochs=20)
    assert (result.stopped, result.epoch, result.history) == ("interrupted", 1, ())
    assert same_parameters(result, whole)
    assert result.valid_ll == whole.valid_ll


def test_a_second_interruption_in_the_middle_of_an_epoch_knows_its_steps(monkeypatch):
    interrupt_step(monkeypatch, 2)
    interrupt_call(monkeypatch, Trainer, "_stop")
    result = quick(CIRCUIT, TRAIN, epochs=20, batch_size=20)
    assert (result.stopped, result.epoch, result.history) == ("interrupted", 1, ())


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


def interrupt_call(monkeypatch, owner: object, name: str, number: int = 0) -> None:
    """Ctrl-C as the call of that number of a function begins, from 0; the other calls are as ever."""
    calls, function = iter(range(10**6)), getattr(owner, name)

    def interrupted(*arguments, **options):
        if next(calls) == number:
            raise KeyboardInterrupt
        return function(*arguments, **options)

    monkeypatch.setattr(owner, name, interrupted)


@pytest.mark.parametrize(("call", "known"), [(0, ()), (1, ("train_ll",)), (2, ("train_ll",))])
def test_an_interruption_of_the_final_scores_leaves_only_them_out(monkeypatch, call, known):
    """Held-out rows were scored after the epoch."""
    options = {"valid": VALID, "test": VALID[:30], "epochs": 2, "track": True}
    whole = quick(CIRCUIT, TRAIN, **options)
    interrupt_call(monkeypatch, Scorer, "score", 4 + call)
    result = quick(CIRCUIT, TRAIN, **options)
    assert (result.stopped, result.epoch, len(result.history), result.sharpness) == ("interrupted", 2, 2, None)
    assert same_parameters(result, whole)
    assert math.isnan(result.train_ll) == ("train_ll" not in known)
    assert (result.valid_ll, result.test_ll) == pytest.approx((whole.valid_ll, whole.test_ll), rel=1e-12)
    assert result.dof is None or known
    assert "nan" in result._repr_html_() or known


def test_an_interruption_of_the_sharpness_keeps_the_scores(monkeypatch):
    interrupt_call(monkeypatch, Trainer, "_sharpness")
    result = quick(CIRCUIT, TRAIN, epochs=2, track=True)
    assert (result.stopped, result.sharpness) == ("interrupted", None)
    assert result.train_ll == quick(CIRCUIT, TRAIN, epochs=2).train_ll


def test_a_second_interruption_leaves_the_scores_out_too(monkeypatch):
    interrupt_call(monkeypatch, Scorer, "score")
    fleet = quick_fleet(CIRCUIT, TRAIN, [Run(), Run(seed=1)], epochs=20, callbacks=[interrupt_at(2)])
    assert [(result.stopped, result.epoch) for result in fleet] == [("interrupted", 2)] * 2
    assert all(math.isnan(result.train_ll) for result in fleet)
    assert same_parameters(fleet[0], quick_fleet(CIRCUIT, TRAIN, [Run(), Run(seed=1)], epochs=2)[0])


def test_a_second_interruption_while_the_training_ends_loses_nothing(monkeypatch, tmp_path):
    interrupt_call(monkeypatch, Checkpoints, "save")
    interrupt_call(monkeypatch, Trainer, "_interrupt")
    result = quick(CIRCUIT, TRAIN, epochs=20, callbacks=[interrupt_at(3)], checkpoint=tmp_path / "runs")
    assert (result.stopped, result.epoch) == ("interrupted", 3)
    assert_same_model(result, quick(CIRCUIT, TRAIN, epochs=3))


def test_an_interruption_while_the_last_checkpoint_is_written_is_told(monkeypatch, tmp_path):
    interrupt_call(monkeypatch, Checkpoints, "save")
    result = quick(CIRCUIT, TRAIN, epochs=3, checkpoint=tmp_path / "runs")
    assert (result.stopped, result.epoch) == ("interrupted", 3)
    assert quick(CIRCUIT, TRAIN, epochs=3, checkpoint=tmp_path / "runs").stopped == "epochs"


def test_an_interrupted_choice_takes_a_run_whose_score_is_known(monkeypatch):
    results = quick_fleet(CIRCUIT, TRAIN, [Run(seed=seed) for seed in range(3)], valid=VALID, epochs=2)
    unknown = replace(results[0], valid_ll=math.nan)
    assert FleetResult((unknown, *results[1:])).best() is max(results[1:], key=lambda result: result.valid_ll)
    assert FleetResult((unknown,)).best() is unknown


def test_an_interruption_of_the_comparison_with_plain_em_keeps_the_best(monkeypatch):
    options = {"valid": VALID, "method": Global("auto"), "epochs": 2}
    interrupt_call(monkeypatch, auto, "_simplest")
    result = quick(CIRCUIT, TRAIN, **options, refit=True)
    assert result.stopped == "interrupted"
    assert result.valid_ll == max(candidate.valid_ll for candidate in result.path)


def test_an_interruption_before_a_refit_keeps_the_winners(monkeypatch):
    runs = [Run(Global(Grid((0.01, 0.1))), seed=seed) for seed in range(2)]
    options = {"valid": VALID, "epochs": 2}
    chosen = quick_fleet(CIRCUIT, TRAIN, runs, **options)
    interrupt_call(monkeypatch, fitting, "_refit", 1)
    fleet = quick_fleet(CIRCUIT, TRAIN, runs, **options, refit=True)
    assert [result.stopped for result in fleet] == ["epochs", "interrupted"]
    assert not same_parameters(fleet[0], chosen[0])
    assert same_parameters(fleet[1], chosen[1])


@pytest.mark.parametrize("step", [0, 1])
def test_an_interruption_in_the_middle_of_a_refit_keeps_the_winner(monkeypatch, step):
    """A refit of a few steps is worse than the model that was chosen."""
    options = {"valid": VALID, "epochs": 2, "batch_size": 20, "method": Global(Grid((0.01, 0.1)))}
    chosen = quick(CIRCUIT, TRAIN, **options)
    interrupt_step(monkeypatch, 2 * 3 + step)
    result = quick(CIRCUIT, TRAIN, **options, refit=True)
    assert result.stopped == "interrupted"
    assert same_parameters(result, chosen)


def test_an_interruption_between_two_sizes_takes_the_best_so_far(monkeypatch):
    interrupt_call(monkeypatch, units, "train_fleet", 1)
    choice = units.fit_units(TRAIN, (2, 3), valid=VALID, epochs=2, device="cpu")
    assert ([tried.units for tried in choice.path], choice.result.stopped) == ([2], "interrupted")
    interrupt_call(monkeypatch, units, "train_fleet", 0)
    with pytest.raises(KeyboardInterrupt):  # nothing was trained
        units.fit_units(TRAIN, (2, 3), valid=VALID, epochs=2, device="cpu")


ENSEMBLE = {"members": 3, "units": (2, 3), "pseudocounts": (0.01,), "epochs": 2, "device": "cpu", "seed": 0}


@pytest.mark.parametrize(
    ("owner", "name", "number", "members"),
    [
        (members, "train_fleet", 1, 2),
        (fitting_ensembles, "held_out_scores", 0, 3),
        (fitting_ensembles, "weigh", 0, 3),
    ],
)
def test_an_interruption_of_an_ensemble_mixes_the_members_that_exist(monkeypatch, owner, name, number, members):
    interrupt_call(monkeypatch, owner, name, number)
    found = fit_ensemble(TRAIN, valid=VALID, trees="same", **ENSEMBLE)
    assert found.stopped == "interrupted"
    assert len(found.members) + len(found.left_out) == members
    assert found.weights.sum() == pytest.approx(1)


@pytest.mark.parametrize("number", [0, 1])
def test_an_interruption_while_a_member_is_grown_mixes_the_others(monkeypatch, number):
    """Before its first round, and between its rounds."""
    interrupt_call(monkeypatch, boost, "_log_prob", 2 * number)
    found = fit_ensemble(TRAIN, valid=VALID, **ENSEMBLE, boosted=1)
    assert found.stopped == "interrupted"
    assert len(found.members) + len(found.left_out) == 2 + number


def test_an_interruption_after_joint_training_keeps_the_mixture_before_it(monkeypatch):
    before = fit_ensemble(TRAIN, valid=VALID, **ENSEMBLE)
    interrupt_call(monkeypatch, fitting_ensembles, "_parts")
    found = fit_ensemble(TRAIN, valid=VALID, **ENSEMBLE, joint_epochs=2)
    assert (found.stopped, found.valid_ll) == ("interrupted", before.valid_ll)


@pytest.mark.parametrize(("name", "number"), [("held_out_scores", 1), ("train_members", 1), ("train_members", 4)])
def test_an_interruption_of_a_cross_validated_ensemble_keeps_what_was_trained_last(monkeypatch, name, number):
    interrupt_call(monkeypatch, fitting_ensembles, name, number)
    found = fit_ensemble(TRAIN, valid=False, folds=3, **ENSEMBLE)
    assert found.stopped == "interrupted"
    assert found.members
