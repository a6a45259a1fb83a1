"""Claims about curvature: how sharp, where, and what penalties change."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from circurve.experiments.claim import Claim, Shelves, judge, listed, rows_with
from circurve.experiments.summary import Chosen
from circurve.experiments.table_a import improvement

__all__ = [
    "overfitting_falls",
    "shallow_nodes_dominate",
    "sharpness_falls",
    "trace_is_concentrated",
    "usage_concentrates",
]


def sharpness_falls(shelves: Shelves) -> Claim | None:
    """The regularisers do what they are made for."""
    return _falls(shelves, "sharpness", "Sharpness falls under global and under gated.", "{:.0f} %")


def overfitting_falls(shelves: Shelves) -> Claim | None:
    """And what it is good for."""
    text = "The degree of overfitting falls under global and under gated, with all training rows."
    return _falls(shelves, "dof_points", text, "{:.2f} points")


def _falls(shelves: Shelves, measure: str, text: str, form: str) -> Claim | None:
    rows = rows_with(shelves, "paper", "table-b", "vanilla", "global", "gated")
    if not rows:
        return None
    told, answers = [], []
    for name, row in rows.items():
        falls = [improvement(row[label], row["vanilla"])[measure] for label in ("global", "gated")]
        answers += [fall > 0 for fall in falls]
        told.append(f"{name} {' and '.join(form.format(fall) for fall in falls)}")
    return Claim(text, judge(answers), f"Lower than vanilla's by, global and gated: {listed(told)}.")


def trace_is_concentrated(shelves: Shelves) -> Claim | None:
    """Less than a tenth of the nodes hold 99.99 % of T; more than 60 % are needed for t."""
    rows = rows_with(shelves, "paper", "table-b", "vanilla")
    shares = {n: [_share(row["vanilla"], by, "0.9999") for by in ("total", "local")] for n, row in rows.items()}
    shares = {n: pair for n, pair in shares.items() if not any(math.isnan(x) for x in pair)}
    if not shares:
        return None
    told = [f"{name} {total:.1%} and {local:.1%}" for name, (total, local) in shares.items()]
    return Claim(
        "Less than 10 % of the sum nodes hold 99.99 % of the trace T, and more than 60 % are needed for as much of t.",
        judge([answer for total, local in shares.values() for answer in (total < 0.1, local > 0.6)]),
        f"Shares of the nodes, T and t, vanilla: {listed(told)}.",
    )


def _share(chosen: Chosen, by: str, of: str) -> float:
    found = [r["curvature"][by]["fractions"][of] for r in chosen.records if r["curvature"] is not None]
    return float(np.mean(found)) if found else math.nan


def usage_concentrates(shelves: Shelves) -> Claim | None:
    """What is left of the paper's reading if its percentages are not met: T is more concentrated than t."""
    rows = rows_with(shelves, "paper", "table-b", "vanilla")
    shares = {n: [_share(row["vanilla"], by, "0.99") for by in ("total", "local")] for n, row in rows.items()}
    shares = {n: pair for n, pair in shares.items() if not any(math.isnan(x) for x in pair)}
    if not shares:
        return None
    told = [f"{name} {total:.1%} and {local:.1%}" for name, (total, local) in shares.items()]
    return Claim(
        "T is more concentrated than t: fewer nodes hold 99 % of it.",
        judge([total < local for total, local in shares.values()]),
        f"Shares of the nodes that hold 99 % of T and of t, vanilla: {listed(told)}.",
    )


def shallow_nodes_dominate(shelves: Shelves) -> Claim | None:
    """The trace sits in the upper half of the depths."""
    rows = rows_with(shelves, "paper", "table-b", "vanilla")
    shares = {}
    for name, row in rows.items():
        upper = [_upper(r["curvature"]["depth"]) for r in row["vanilla"].records if r["curvature"] is not None]
        if upper:
            shares[name] = float(np.mean(upper))
    if not shares:
        return None
    return Claim(
        "The trace sits in early partitions: the upper half of the depths holds more than half of it.",
        judge([share > 0.5 for share in shares.values()]),
        f"Share of the upper half, vanilla: {listed([f'{name} {share:.0%}' for name, share in shares.items()])}.",
    )


def _upper(depth: Sequence[float]) -> float:
    return float(sum(depth[: (len(depth) + 1) // 2]))
