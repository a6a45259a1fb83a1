"""`refit=True`: the chosen method trained again on training and validation data together."""

import numpy as np
import pytest

import circurve as cc

ROWS = np.random.default_rng(0).integers(0, 2, (120, 4))
GRID = cc.Grid((0.01, 1.0))


def train(**options: object) -> cc.learning.FitResult:
    circuit = cc.hclt(ROWS, units=3)
    method = options.pop("method", cc.Gated(GRID))
    return cc.fit(
        circuit, ROWS[:80], valid=ROWS[80:], method=method, epochs=4, batch_size=None, precision="float64", **options
    )


def test_refit_equals_training_the_winner_on_all_rows():
    result = train(refit=True, select="last")
    assert len(result.path) == 2
    alone = cc.fit(
        cc.hclt(ROWS, units=3), ROWS, method=result.run.method, epochs=4, batch_size=None, precision="float64"
    )
    assert result.train_ll == pytest.approx(alone.train_ll, rel=1e-9)
    assert result.valid_ll is None


def test_refit_stops_at_the_chosen_epoch():
    kept = train(select="best")
    again = train(select="best", refit=True)
    assert again.epoch == kept.epoch
    assert len(again.history) == kept.epoch
    assert again.stopped == kept.stopped


def test_refit_without_a_choice_changes_nothing():
    plain, asked = train(method=cc.Gated(0.1)), train(method=cc.Gated(0.1), refit=True)
    assert plain.train_ll == asked.train_ll
    assert asked.valid_ll is not None


def test_weights_of_one_part_survive_the_join():
    weights = np.linspace(0.5, 2, 80)
    result = train(refit=True, select="last", weights=weights)
    everything = cc.Examples(ROWS, np.concatenate([weights, np.ones(40)]))
    alone = cc.fit(
        cc.hclt(ROWS, units=3), everything, method=result.run.method, epochs=4, batch_size=None, precision="float64"
    )
    assert result.train_ll == pytest.approx(alone.train_ll, rel=1e-9)


def test_refit_refuses_a_strength_that_is_driven_by_validation_data():
    method = cc.Gated(cc.schedules.by_overfitting(1.0, 0.01), gate="auto")
    with pytest.raises(cc.OptionError, match="refit trains on the validation rows too"):
        train(method=method, refit=True)
