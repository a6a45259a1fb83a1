"""Training histories as curves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from circurve.learning.history import EpochRecord, FitResult, FleetResult
from circurve.learning.methods import describe
from circurve.report.record import Curve, TrainingRun

__all__ = ["Histories", "training_runs"]

Histories: TypeAlias = FitResult | FleetResult
"""What training returned: curves of one run or of several."""

MAX_EPOCHS = 1000
"""The most epochs shown; longer histories are thinned evenly."""

QUANTITIES: dict[str, Callable[[EpochRecord], float | None]] = {
    "train": lambda record: record.train_ll,
    "valid": lambda record: record.valid_ll,
    "test": lambda record: record.test_ll,
    "sharpness": lambda record: record.sharpness,
}


def training_runs(given: Histories | None) -> tuple[TrainingRun, ...]:
    """One entry for each run that finished an epoch."""
    if given is None:
        return ()
    results = [given] if isinstance(given, FitResult) else [result for result in given if result.history]
    methods = [result.run.label or describe(result.run.method) for result in results]
    names = [
        f"{name}, seed {result.run.seed}" if methods.count(name) > 1 else name
        for name, result in zip(methods, results, strict=True)
    ]
    return tuple(_run(name, result) for name, result in zip(names, results, strict=True) if result.history)


def _run(name: str, result: FitResult) -> TrainingRun:
    records = _thinned(result.history)
    curves = []
    for quantity, read in QUANTITIES.items():
        values = tuple(read(record) for record in records)
        if any(value is not None for value in values):
            curves.append(Curve(quantity, values))
    return TrainingRun(name, tuple(record.epoch for record in records), tuple(curves), result.epoch)


def _thinned(history: Sequence[EpochRecord]) -> Sequence[EpochRecord]:
    step = -(-len(history) // MAX_EPOCHS)
    return history[::-1][::step][::-1]
