"""What the records of a study say: for each label the setting that validation chooses, and its scores over seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from circurve.experiments.records import identify, is_failed

__all__ = ["Chosen", "Spread", "choose", "choose_all", "score", "spread", "upper_half"]

Record = dict[str, Any]


@dataclass(frozen=True)
class Spread:
    """A mean over seeds, and the standard deviation with n - 1: None for a single seed. Not known: a mean of NaN."""

    mean: float
    std: float | None = None
    count: int = 1


@dataclass(frozen=True, eq=False)
class Chosen:
    """The runs of the setting that was chosen for a label, one for each seed, in the order of seeds."""

    dataset: str
    fraction: float
    label: str
    method: dict[str, Any]
    records: tuple[Record, ...]
    candidates: int
    """How many settings it was chosen from."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of its runs."""
        return tuple(record["seed"] for record in self.records)

    def values(self, name: str) -> list[float]:
        """A score of each run: `train_ll`, `valid_ll`, `test_ll`, `dof` or `sharpness`; NaN where it is not known."""
        return [_number(score(record)[name]) for record in self.records]

    def spread(self, name: str = "test_ll") -> Spread:
        """Mean and standard deviation of a score over seeds."""
        return spread(self.values(name))


def score(record: Record) -> dict[str, Any]:
    """The scores that count by the record's protocol: those of the last or of the best epoch."""
    chosen: dict[str, Any] = record["best" if record.get("choose_epoch") == "best" else "final"]
    return chosen


def spread(values: Sequence[float]) -> Spread:
    """Mean and standard deviation of numbers."""
    deviates = len(values) > 1 and bool(np.isfinite(values).all())
    std = float(np.std(values, ddof=1)) if deviates else None
    return Spread(float(np.mean(values)) if values else math.nan, std, len(values))


def upper_half(shares: Sequence[float]) -> float:
    """What the upper half of a profile over depth holds; of an odd number of partitions the middle one counts half."""
    middle = len(shares) // 2
    return sum(shares[:middle]) + (shares[middle] / 2 if len(shares) % 2 else 0.0)


def choose(records: Iterable[Record], dataset: str, fraction: float, label: str) -> Chosen | None:
    """The setting with the best mean validation log-likelihood over seeds, the first of equals; None without runs.

    Runs that failed do not count.
    """
    settings: dict[str, list[Record]] = {}
    for record in records:
        case = (record["dataset"], record["fraction"], record["label"])
        if case == (dataset, fraction, label) and not is_failed(record):
            settings.setdefault(identify(record["method"]), []).append(record)
    if not settings:
        return None
    best = max(settings.values(), key=_validation)
    runs = tuple(sorted(best, key=lambda record: record["seed"]))
    return Chosen(dataset, fraction, label, runs[0]["method"], runs, len(settings))


def choose_all(records: Sequence[Record]) -> list[Chosen]:
    """The choice for each data set, fraction and label, in the order of the records."""
    cases = dict.fromkeys((record["dataset"], record["fraction"], record["label"]) for record in records)
    chosen = [choose(records, *case) for case in cases]
    return [item for item in chosen if item is not None]


def _validation(runs: list[Record]) -> float:
    values = [_number(score(record)["valid_ll"], unknown=-math.inf) for record in runs]
    return float(np.mean(values))


def _number(value: float | None, unknown: float = math.nan) -> float:
    return unknown if value is None else float(value)
