"""Learners and estimators find their trees by the weights of the rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import circurve as cc
from circurve.data import Table, as_table
from circurve.learning import members
from circurve.learning.members import Rows, resampled_tree
from circurve.learning.options import Settings
from circurve.model import Model

RNG = np.random.default_rng(5)
WANTED, OTHER = {(0, 1), (2, 3), (4, 5)}, {(0, 2), (1, 4), (3, 5)}


def rows_of(pairs: set[tuple[int, int]], count: int) -> np.ndarray:
    """In each pair of columns, the second is a copy of the first."""
    data = RNG.integers(0, 2, (count, 6))
    for one, other in pairs:
        data[:, other] = data[:, one]
    return data


GOOD, VALID = rows_of(WANTED, 200), rows_of(WANTED, 80)
X = np.vstack([GOOD, rows_of(OTHER, 1000)])
W = np.repeat([1.0, 1e-6], [200, 1000])
QUICK: dict[str, Any] = {"epochs": 3, "device": "cpu", "progress": False}
FAST: dict[str, Any] = {"n_estimators": 1, "max_epochs": 3, "random_state": 0}


def edges(model: Model) -> set[tuple[int, int]]:
    """Links between latents of a hidden Chow-Liu tree; columns are 0, 1, ... or x0, x1, ..."""
    found = set()
    for node in model.circuit.nodes:
        if node.name.startswith("product"):
            upper = int(node.name[-1])
            below = (int(child.name[-1]) for child in node.children if child.name.startswith("sum"))
            found |= {(min(upper, lower), max(upper, lower)) for lower in below}
    return found


def parts(model: Model, count: int) -> list[Model]:
    return [model] if count == 1 else list(cc.learning.components(model)[0])


LEARNERS: dict[str, Callable[[Any], Model]] = {
    "fit_units": lambda w: cc.fit_units(X, (2, 3), weights=w, valid=VALID, **QUICK).model,
    "fit_ensemble": lambda w: cc.fit_ensemble(X, weights=w, valid=VALID, members=1, units=2, **QUICK).model,
    "fit_ensemble without validation rows": lambda w: (
        cc.fit_ensemble(X, weights=w, valid=False, members=1, units=2, folds=2, **QUICK).model
    ),
    "DensityEstimator": lambda w: cc.DensityEstimator(2, **FAST).fit(X, sample_weight=w).model_,
    "several n_units": lambda w: cc.DensityEstimator((2, 3), **FAST).fit(X, sample_weight=w).model_,
    "ensemble": lambda w: cc.DensityEstimator(2, ensemble=1, **FAST).fit(X, sample_weight=w).model_,
    "partial_fit": lambda w: cc.DensityEstimator(2, **FAST).partial_fit(X, sample_weight=w).model_,
    "CircuitImputer": lambda w: cc.CircuitImputer(2, **FAST).fit(X, sample_weight=w).model_,
    "OutlierDetector": lambda w: cc.OutlierDetector(2, **FAST).fit(X, sample_weight=w).model_,
}


@pytest.mark.parametrize("learner", LEARNERS)
def test_the_tree_is_that_of_the_rows_that_count(learner):
    assert edges(LEARNERS[learner](W)) >= WANTED
    assert edges(LEARNERS[learner](None)) >= OTHER


def test_a_classifier_finds_the_tree_of_each_class_by_the_weights_of_its_rows():
    y = np.arange(len(X)) % 2
    for fit in (cc.CircuitClassifier(2, **FAST).fit, cc.CircuitClassifier(2, **FAST).partial_fit):
        given: dict[str, Any] = {"classes": [0, 1]} if fit.__name__ == "partial_fit" else {}
        for model in fit(X, y, sample_weight=W, **given).models_:
            assert edges(model) >= WANTED


@pytest.mark.parametrize("trees", ["same", "bootstrap"])
def test_all_members_of_an_ensemble_have_trees_of_the_rows_that_count(trees):
    options = {**QUICK, "members": 4, "boosted": 1, "units": 2, "pseudocounts": 0.01, "trees": trees}
    made = cc.fit_ensemble(X, weights=W, valid=VALID, weighting="uniform", **options)
    assert len(made.members) == 4
    assert all(edges(part) >= WANTED for part in parts(made.model, 4))


def test_resampled_rows_are_drawn_by_their_weights_and_then_count_once(monkeypatch):
    seen: list[Table] = []
    monkeypatch.setattr(members, "chow_liu_tree", lambda table, *_, **__: seen.append(table))
    schema = cc.infer_schema(X)
    rows = Rows(cc.data.align(as_table(X, weights=W), schema), None, schema, Settings())
    resampled_tree(rows, None, np.random.default_rng(0))
    assert seen[0].weights is None
    assert len(seen[0]) == len(X)
    assert (seen[0][:, 0] == seen[0][:, 1]).all()
