"""units="auto": sizes tried from the smallest on, the best by validation likelihood taken."""

from types import SimpleNamespace

import numpy as np
import pytest
from learning_helpers import binary_rows

import circurve as cc
from circurve.errors import OptionError, TrainingError
from circurve.learning.recipe import UNITS_GRID
from circurve.learning.units import choose_units, units_grid

TRAIN, VALID, TEST = (binary_rows(count, seed=seed, variables=5) for seed, count in enumerate((120, 80, 60)))
FAST = {"epochs": 4, "device": "cpu", "precision": "float64", "progress": False}


def _results(*scores, stopped="epochs"):
    return [SimpleNamespace(valid_ll=score, failed=score is None, failure=None, stopped=stopped) for score in scores]


@pytest.mark.parametrize(
    ("scores", "tried", "chosen"),
    [
        ((-5, -4, -3, -2), 4, 8),
        ((-5, -4, -4.5, -4.1, -3), 4, 2),  # the fifth size is never trained
        ((-5, -4, -4.5, -3, -3.5, -3.6, -1), 6, 8),  # one worse size in between does not stop
        ((-4, -4, -4, -4), 3, 1),  # the smallest of equals
    ],
)
def test_two_worse_sizes_in_a_row_end_the_search(scores, tried, chosen):
    grid = [2**place for place in range(len(scores))]
    trained = []

    def train(units):
        trained.append(units)
        return _results(scores[grid.index(units)], scores[grid.index(units)] - 1)

    found = choose_units(grid, train)
    assert trained == grid[:tried] == [size.units for size in found.path]
    assert found.units == chosen
    assert found.result is found.path[trained.index(chosen)].results[0]


def test_a_size_whose_runs_all_fail_counts_as_worse():
    def train(units):
        if units == 2:
            raise TrainingError("broke")
        return _results(-float(units), None)

    found = choose_units([1, 2, 4, 8], train)
    assert found.units == 1
    assert [len(size.results) for size in found.path] == [2, 0, 2]

    def none_left(units):
        raise TrainingError(f"broke with {units}")

    with pytest.raises(TrainingError, match="broke with 2"):
        choose_units([1, 2], none_left)


def test_an_interrupted_size_is_the_last_one():
    found = choose_units([1, 2, 4], lambda units: _results(float(units), stopped="interrupted"))
    assert [size.units for size in found.path] == [1]


def test_each_size_is_the_fleet_that_fit_fleet_trains():
    found = cc.fit_units(TRAIN, (3, 2), valid=VALID, test=TEST, pseudocounts=(0.01, 0.3), seed=4, **FAST)
    assert [size.units for size in found.path] == [2, 3]
    for size in found.path:
        alone = cc.fit_fleet(
            cc.hclt(TRAIN, size.units),
            TRAIN,
            [cc.Run(cc.Vanilla(added), 4, init="prototypes") for added in (0.01, 0.3)],
            valid=VALID,
            test=TEST,
            step_size=cc.schedules.cosine(0.2, 0.005),
            **FAST,
        )
        for one, other in zip(size.results, alone, strict=True):
            assert (one.valid_ll, one.test_ll) == pytest.approx((other.valid_ll, other.test_ll), rel=1e-9)
    scores = {(size.units, n): r.valid_ll for size in found.path for n, r in enumerate(size.results)}
    assert found.units == max(scores, key=scores.get)[0]
    assert found.result.valid_ll == max(scores.values())
    assert found.model.log_prob(TEST).mean() == pytest.approx(found.result.test_ll)


def test_rows_are_set_aside_where_none_are_given():
    found = cc.fit_units(TRAIN, (2,), pseudocounts=(0.1,), **FAST)
    assert found.result.valid_ll is not None
    with pytest.raises(OptionError, match="leave valid=False out"):
        cc.fit_units(TRAIN, (2,), valid=False, **FAST)


def test_large_circuits_are_trained_in_smaller_fleets_with_the_same_results(monkeypatch):
    whole = cc.fit_units(TRAIN, (3,), valid=VALID, **FAST)
    fleets = []
    fit_fleet = cc.learning.members.fit_fleet
    monkeypatch.setattr("circurve.learning.fleet_size.MAX_WEIGHTS", 2 * cc.hclt(TRAIN, 3).describe().parameters)
    monkeypatch.setattr(
        "circurve.learning.members.fit_fleet",
        lambda c, t, runs, **k: fleets.append(len(runs)) or fit_fleet(c, t, runs, **k),
    )
    parts = cc.fit_units(TRAIN, (3,), valid=VALID, **FAST)
    assert fleets == [2, 1]
    np.testing.assert_allclose(
        [r.valid_ll for r in parts.path[0].results], [r.valid_ll for r in whole.path[0].results], rtol=1e-9
    )


def test_the_grid_is_checked():
    assert units_grid("auto") == UNITS_GRID
    assert units_grid(7) == (7,)
    assert units_grid((8, 4, 8)) == (4, 8)
    for wrong in ("many", (), (0, 2), 2.5, (True,)):
        with pytest.raises(OptionError, match="units must"):
            units_grid(wrong)
