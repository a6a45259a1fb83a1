"""`checkpoint=` of the estimators: interrupted and fitted again, they give the answers of an undisturbed fit."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from tables import iris

import circurve as cc
from circurve.learning.loop import Trainer

X, Y = iris()
QUICK = {"n_units": 2, "n_estimators": 2, "max_epochs": 4, "random_state": 0, "device": "cpu"}

ESTIMATORS = {
    "density": cc.DensityEstimator(**QUICK),
    "ensemble": cc.DensityEstimator(**{**QUICK, "ensemble": 2, "types": ["categorical"] * 4}),
    "classifier": cc.CircuitClassifier(**QUICK),
    "imputer": cc.CircuitImputer(**QUICK),
    "outliers": cc.OutlierDetector(**QUICK),
}


class BreakOffError(Exception):
    """Ends a training as a crash would."""


def answers(name: str, fitted) -> np.ndarray:
    rows = np.round(X) if name == "ensemble" else X
    if name == "classifier":
        return fitted.predict_proba(rows)
    holes = rows.copy()
    holes[::3, 1] = np.nan
    return fitted.transform(holes) if name == "imputer" else fitted.score_samples(holes)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_fit_that_was_broken_off_continues(name, tmp_path, monkeypatch):
    rows = np.round(X) if name == "ensemble" else X
    seen, state, number = [], Trainer._state, 3 if name == "ensemble" else 6

    def broken(self, epoch):
        seen.append(epoch)
        if len(seen) == number:
            raise BreakOffError
        return state(self, epoch)

    whole = clone(ESTIMATORS[name]).fit(rows, Y)
    kept = clone(ESTIMATORS[name]).set_params(checkpoint=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_state", broken)
        with pytest.raises(BreakOffError):
            clone(kept).fit(rows, Y)
    found = clone(kept).fit(rows, Y)
    assert np.array_equal(answers(name, found), answers(name, whole))
    with pytest.raises(cc.OptionError, match="belongs to another training"):
        clone(kept).set_params(n_units=3).fit(rows, Y)


def test_a_seed_is_needed(tmp_path):
    with pytest.raises(cc.OptionError, match="set random_state to a number"):
        cc.DensityEstimator(checkpoint=tmp_path).fit(X)
