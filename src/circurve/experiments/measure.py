"""From a trained run to the plain values of its record."""

from __future__ import annotations

import math
import warnings

import numpy as np

from circurve.curvature import Curvature, concentration, curvature, depth_profile, reversals
from circurve.curvature.record import By
from circurve.data import Table
from circurve.errors import CircurveWarning, DataError
from circurve.experiments.records import Record
from circurve.learning import Failure, FitResult
from circurve.learning.history import EpochRecord

__all__ = ["describe_failed", "measure_run"]

DIGITS = 5
"""Digits after the point of log-likelihoods in nats."""

LIKELIHOODS = ("train_ll", "valid_ll", "test_ll")
SHARES = (0.9, 0.99, 0.9999)
POINTS = 60
DEPTH_BINS = 10


def measure_run(result: FitResult, train: Table) -> Record:
    """Scores of the last and of the best epoch, the history, and the curvature of the last epoch's model.

    `train_ll` and `sharpness` of an epoch before the last are those of the history: means over the epoch's batches,
    each taken just before its M-step. All others are those of the very parameters.
    """
    curv = _curvature(result, train)
    final = _scores(result, None if curv is None else curv.trace)
    chosen = max(result.history, key=_validation)  # the first of equals
    best = final if chosen.epoch == result.epoch else _scores(chosen, chosen.sharpness)
    return {
        "final": final,
        "best": best,
        "history": {
            **{name: [_ll(getattr(epoch, name)) for epoch in result.history] for name in LIKELIHOODS},
            "sharpness": [_significant(epoch.sharpness) for epoch in result.history],
        },
        "curvature": None if curv is None else describe_curvature(curv),
    }


def describe_failed(failure: Failure) -> Record:
    """The part of a record that says that a run failed: in which epoch, and why. It has no scores."""
    return {"status": "failed", "failure": {"epoch": failure.epoch, "reason": failure.reason}}


def _curvature(result: FitResult, train: Table) -> Curvature | None:
    """None if every training row has probability zero; single rows of that kind were warned of in training."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CircurveWarning)
        try:
            return curvature(result.model, train)
        except DataError:
            return None


def _scores(source: FitResult | EpochRecord, sharpness: float | None) -> Record:
    return {
        "epoch": source.epoch,
        **{name: _ll(getattr(source, name)) for name in LIKELIHOODS},
        "dof": None if source.dof is None else round(source.dof, 7),
        "sharpness": _significant(sharpness),
    }


def describe_curvature(curv: Curvature) -> Record:
    """Where the trace sits: concentration of T^ and t^, profile over depth, and how often T^ and t^ disagree."""
    profile = depth_profile(curv, "total", DEPTH_BINS)
    return {
        "trace": _significant(curv.trace),
        "sum_nodes": len(curv),
        "total": _concentration(curv, "total"),
        "local": _concentration(curv, "local"),
        "depth": [_significant(float(share)) for share in profile.share],
        "reversals": _significant(reversals(curv, most=0).share),
    }


def _concentration(curv: Curvature, by: By) -> Record:
    found = concentration(curv, by)
    units = len(curv)  # numbers of units from 1 to all, in even ratios: few, and dense where the curve bends
    at = np.unique(np.geomspace(1, units, POINTS).round().astype(int)).tolist() if units else [0]
    return {
        "fractions": {f"{share:g}": _significant(found.fraction_for(share)) for share in SHARES},
        "curve": [[_significant(float(found.curve_nodes[k])), round(float(found.curve_share[k]), 7)] for k in at],
    }


def _validation(epoch: EpochRecord) -> float:
    return -math.inf if epoch.valid_ll is None or math.isnan(epoch.valid_ll) else epoch.valid_ll


def _ll(value: float | None) -> float | None:
    """Rounded; None for minus infinity, which JSON does not have: some row has probability zero."""
    return None if value is None or not math.isfinite(value) else round(value, DIGITS)


def _significant(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")
