"""Is one method better than another? Paired over seeds, and counted over data sets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from circurve.experiments.summary import Chosen, Spread

__all__ = ["TIE", "Count", "Paired", "count", "paired", "verdict"]

TIE = 0.01
"""Nats: smaller differences are ties, as in a table with two digits."""

TIE_RULE = (
    f"A tie is a difference of the means of at most {TIE:g} nats or the larger of the two standard deviations, "
    "whichever is more."
)


@dataclass(frozen=True)
class Paired:
    """The differences of two methods, seed by seed."""

    mean: float
    std: float | None
    p: float | None
    """Of the two-sided paired t-test; None for fewer than two common seeds."""

    seeds: int


@dataclass(frozen=True)
class Count:
    """On how many data sets the first of two methods is better, as good and worse."""

    wins: int
    ties: int
    losses: int


def paired(first: Chosen, second: Chosen, name: str = "test_ll") -> Paired:
    """first - second over their common seeds: both start from the same parameters and see rows in the same order."""
    from scipy.stats import ttest_rel  # noqa: PLC0415 - slow to import

    others = dict(zip(second.seeds, second.values(name), strict=True))
    pairs = [(a, others[s]) for s, a in zip(first.seeds, first.values(name), strict=True) if s in others]
    a, b = np.array(pairs, dtype=float).reshape(-1, 2).T
    gap = a - b
    if len(gap) < 2 or not np.isfinite(gap).all():
        return Paired(float(gap.mean()) if len(gap) else np.nan, None, None, len(gap))
    std = float(gap.std(ddof=1))
    p = float(ttest_rel(a, b).pvalue) if std > 0 else float(gap[0] == 0)
    return Paired(float(gap.mean()), std, p, len(gap))


def verdict(first: Spread, second: Spread) -> str:
    """`win`, `tie` or `loss` of the first, where higher is better; see `TIE_RULE`."""
    gap = first.mean - second.mean
    room = max(TIE, first.std or 0.0, second.std or 0.0)
    if not abs(gap) > room:  # also where one is not known
        return "tie"
    return "win" if gap > 0 else "loss"


def count(pairs: Iterable[tuple[Spread, Spread]]) -> Count:
    """Wins, ties and losses of the first over many data sets."""
    found = [verdict(first, second) for first, second in pairs]
    return Count(found.count("win"), found.count("tie"), found.count("loss"))
