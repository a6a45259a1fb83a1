"""Claims about curvature: how sharp, where, and what penalties change."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from circurve.experiments.claim import SMOOTHED_OPENINGS, Claim, Shelves, judge, listed, mixed_starts, rows_with
from circurve.experiments.summary import Chosen, upper_half
from circurve.experiments.table_a import improvement

__all__ = [
    "overfitting_falls",
    "shallow_nodes_dominate",
    "sharpness_falls",
    "trace_is_concentrated",
    "usage_concentrates",
]

FALLS = {"sharpness": "{:.0f} %", "dof_points": "{:.2f} points"}
"""Measure -> how its fall is told."""


def sharpness_falls(shelves: Shelves, protocol: str) -> Claim | None:
    """The regularisers do what they are made for."""
    return _falls(shelves, protocol, "sharpness", "sharpness falls under global and under gated.")


def overfitting_falls(shelves: Shelves, protocol: str) -> Claim | None:
    """And what it is good for."""
    text = "the degree of overfitting falls under global and under gated, with all training rows."
    return _falls(shelves, protocol, "dof_points", text)


def _falls(shelves: Shelves, protocol: str, measure: str, text: str) -> Claim | None:
    rows = rows_with(shelves, protocol, "table-b", "vanilla", "global", "gated")
    if not rows:
        return None
    told, answers = [], []
    for name, row in rows.items():
        falls = [improvement(row[label], row["vanilla"])[measure] for label in ("global", "gated")]
        answers += [fall > 0 for fall in falls]
        told.append(f"{name} {' and '.join(FALLS[measure].format(fall) for fall in falls)}")
    starts = mixed_starts(rows, "vanilla", "global", "gated")
    return Claim(
        f"{SMOOTHED_OPENINGS[protocol]}, {text}",
        judge(answers),
        f"Lower than vanilla's by, global and gated: {listed(told)}.{starts}",
    )


def trace_is_concentrated(shelves: Shelves, protocol: str) -> Claim | None:
    """Less than a tenth of the nodes hold 99.99 % of T; more than 60 % are needed for t."""
    shares = _shares(shelves, protocol, "0.9999")
    if not shares:
        return None
    return Claim(
        f"{_in_the_last_model(protocol)}, less than 10 % of the sum nodes hold 99.99 % of the trace T, and more than "
        "60 % are needed for as much of t.",
        judge([answer for total, local in shares.values() for answer in (total < 0.1, local > 0.6)]),
        f"Shares of the nodes, T and t, vanilla: {_both(shares)}.",
    )


def usage_concentrates(shelves: Shelves, protocol: str) -> Claim | None:
    """What is left of the paper's reading if its percentages are not met: T is more concentrated than t."""
    shares = _shares(shelves, protocol, "0.99")
    if not shares:
        return None
    return Claim(
        f"{_in_the_last_model(protocol)}, T is more concentrated than t: fewer nodes hold 99 % of it.",
        judge([total < local for total, local in shares.values()]),
        f"Shares of the nodes that hold 99 % of T and of t, vanilla: {_both(shares)}.",
    )


def shallow_nodes_dominate(shelves: Shelves, protocol: str) -> Claim | None:
    """The trace sits in the upper half of the depths."""
    shares = {}
    for name, row in rows_with(shelves, protocol, "table-b", "vanilla").items():
        upper = [upper_half(r["curvature"]["depth"]) for r in row["vanilla"].records if r["curvature"] is not None]
        if upper:
            shares[name] = float(np.mean(upper))
    if not shares:
        return None
    return Claim(
        f"{_in_the_last_model(protocol)}, the trace sits in early partitions: the upper half of the depths holds more "
        "than half of it.",
        judge([share > 0.5 for share in shares.values()]),
        f"Share of the upper half, vanilla: {listed([f'{name} {share:.0%}' for name, share in shares.items()])}.",
    )


def _in_the_last_model(protocol: str) -> str:
    """The curvature on record is that of the last epoch's model, whichever epoch's scores count."""
    return f"In the last epoch's model (protocol `{protocol}`)"


def _shares(shelves: Shelves, protocol: str, of: str) -> dict[str, tuple[float, float]]:
    """The shares of the nodes that hold so much of T and of t, by data set."""
    rows = rows_with(shelves, protocol, "table-b", "vanilla")
    shares = {n: (_share(row["vanilla"], "total", of), _share(row["vanilla"], "local", of)) for n, row in rows.items()}
    return {name: pair for name, pair in shares.items() if not any(math.isnan(share) for share in pair)}


def _share(chosen: Chosen, by: str, of: str) -> float:
    found = [r["curvature"][by]["fractions"][of] for r in chosen.records if r["curvature"] is not None]
    return float(np.mean(found)) if found else math.nan


def _both(shares: Mapping[str, tuple[float, float]]) -> str:
    return listed([f"{name} {total:.1%} and {local:.1%}" for name, (total, local) in shares.items()])
