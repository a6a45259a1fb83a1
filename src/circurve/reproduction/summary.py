"""What records say: for each label what validation chooses, its scores over seeds, and which of two is better."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from circurve.reproduction.records import Record, RunRecord, identify, is_failed, of_debd

__all__ = ["Chosen", "MeanStd", "Rows", "choose", "choose_all", "choose_rows", "count", "paired", "spread", "verdict"]

TIE = 0.01
"""Nats: smaller differences are ties, as in a table with two digits."""

TIE_RULE = (
    f"A tie is a difference of the means of at most {TIE:g} nats or the larger of the two standard deviations, "
    "whichever is more."
)


@dataclass(frozen=True)
class MeanStd:
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
    method: Record
    records: tuple[RunRecord, ...]
    candidates: int
    """How many settings it was chosen from."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of its runs."""
        return tuple(record["seed"] for record in self.records)

    @property
    def of_debd(self) -> bool:
        """Whether all runs were trained and tested on the files of DEBD."""
        return all(of_debd(record) for record in self.records)

    def values(self, name: str) -> list[float]:
        """A score of each run: `train_ll`, `valid_ll`, `test_ll`, `dof` or `sharpness`; NaN where it is not known."""
        return [_score(record, name, math.nan) for record in self.records]

    def spread(self, name: str = "test_ll") -> MeanStd:
        """Mean and standard deviation of a score over seeds."""
        return spread(self.values(name))

    def mean(self, name: str = "test_ll") -> float:
        """Mean of a score over seeds."""
        return self.spread(name).mean

    def pairs(self, other: Chosen, name: str) -> list[tuple[float, float]]:
        """Pairs of the scores of two methods for the same seed, over the seeds that both have."""
        others = dict(zip(other.seeds, other.values(name), strict=True))
        return [(a, others[s]) for s, a in zip(self.seeds, self.values(name), strict=True) if s in others]

    def curvatures(self) -> list[Record]:
        """The curvature of each run for which it is known."""
        return [record["curvature"] for record in self.records if record["curvature"] is not None]


Rows: TypeAlias = Mapping[str, Mapping[str, Chosen]]
"""Data set -> label -> what validation chose."""


def spread(values: Sequence[float]) -> MeanStd:
    """Mean and standard deviation of numbers."""
    deviates = len(values) > 1 and bool(np.isfinite(values).all())
    std = float(np.std(values, ddof=1)) if deviates else None
    return MeanStd(float(np.mean(values)) if values else math.nan, std, len(values))


def upper_half(shares: Sequence[float]) -> float:
    """What the upper half of a profile over depth holds; of an odd number of partitions the middle one counts half."""
    middle = len(shares) // 2
    return sum(shares[:middle]) + (shares[middle] / 2 if len(shares) % 2 else 0.0)


def choose(records: Iterable[RunRecord], dataset: str, fraction: float, label: str) -> Chosen | None:
    """The setting with the best mean validation log-likelihood over seeds, the first of equals; None without runs.

    Runs that failed do not count.
    """
    settings: dict[str, list[RunRecord]] = {}
    for record in records:
        case = (record["dataset"], record["fraction"], record["label"])
        if case == (dataset, fraction, label) and not is_failed(record):
            settings.setdefault(identify(record["method"]), []).append(record)
    if not settings:
        return None
    best = max(settings.values(), key=lambda runs: np.mean([_score(run, "valid_ll", -math.inf) for run in runs]))
    runs = tuple(sorted(best, key=lambda record: record["seed"]))
    return Chosen(dataset, fraction, label, runs[0]["method"], runs, len(settings))


def choose_all(records: Sequence[RunRecord]) -> list[Chosen]:
    """The choice for each data set, fraction and label, in the order of the records."""
    cases = dict.fromkeys((record["dataset"], record["fraction"], record["label"]) for record in records)
    chosen = [choose(records, *case) for case in cases]
    return [item for item in chosen if item is not None]


def choose_rows(records: Sequence[RunRecord], fraction: float = 1.0) -> dict[str, dict[str, Chosen]]:
    """The choice for each data set and label, with this share of the training rows."""
    found: dict[str, dict[str, Chosen]] = {}
    for item in choose_all(records):
        if item.fraction == fraction:
            found.setdefault(item.dataset, {})[item.label] = item
    return found


def _score(record: RunRecord, name: str, unknown: float) -> float:
    """A score of the epoch that counts by the record's protocol, the last or the best one."""
    value = record["best" if record.get("choose_epoch") == "best" else "final"][name]
    return unknown if value is None else float(value)


@dataclass(frozen=True)
class Paired:
    """The differences of two methods, seed by seed."""

    mean: float
    std: float | None
    p: float | None
    """The p-value of the two-sided paired t-test; None for fewer than two common seeds."""

    seeds: int


@dataclass(frozen=True)
class Count:
    """On how many data sets the first of two methods is better, as good and worse."""

    wins: int
    ties: int
    losses: int

    def text(self) -> str:
        """`3 / 1 / 0`."""
        return f"{self.wins} / {self.ties} / {self.losses}"


def paired(first: Chosen, second: Chosen, name: str = "test_ll") -> Paired:
    """first - second over their common seeds: both start from the same parameters and see rows in the same order."""
    from scipy.stats import ttest_rel  # noqa: PLC0415 - slow to import

    a, b = np.array(first.pairs(second, name), dtype=float).reshape(-1, 2).T
    gap = a - b
    if len(gap) < 2 or not np.isfinite(gap).all():
        return Paired(float(gap.mean()) if len(gap) else np.nan, None, None, len(gap))
    std = float(gap.std(ddof=1))
    p = float(ttest_rel(a, b).pvalue) if std > 0 else float(gap[0] == 0)
    return Paired(float(gap.mean()), std, p, len(gap))


def verdict(first: MeanStd, second: MeanStd) -> str:
    """`win`, `tie` or `loss` of the first, where higher is better; see `TIE_RULE`."""
    gap = first.mean - second.mean
    room = max(TIE, first.std or 0.0, second.std or 0.0)
    if not abs(gap) > room:  # also where one is not known
        return "tie"
    return "win" if gap > 0 else "loss"


def count(pairs: Iterable[tuple[MeanStd, MeanStd]]) -> Count:
    """Wins, ties and losses of the first over many data sets."""
    found = [verdict(first, second) for first, second in pairs]
    return Count(found.count("win"), found.count("tie"), found.count("loss"))
