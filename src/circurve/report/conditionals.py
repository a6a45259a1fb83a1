"""For circuits too large for the page: what each value of a single column does to the others, found beforehand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from circurve.data import Table
from circurve.model import Model
from circurve.queries import mean_and_variance
from circurve.queries.evidence import Evidence, no_evidence
from circurve.queries.passes import posterior
from circurve.queries.target import Target
from circurve.report.marginals import observed_values
from circurve.report.record import Conditionals, Influence
from circurve.report.states import StateTables, state_counts

__all__ = ["conditionals"]

Array = NDArray[np.float64]

MAX_VALUES = 6
"""The number of values tried for a column with states; numbers use quantiles of the data."""

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
MOST_CHANGED = 8
"""How many columns are kept for each value."""

MAX_OPERATIONS = 1e10
"""Weights times values that are tried: about half a minute on two cores."""

CHUNK = 64
"""Values tried at once."""


@dataclass(frozen=True)
class _Try:
    """One value of one column."""

    column: int
    value: float
    shown: float
    """The place of a state, or the number itself."""


def conditionals(model: Model, table: Table) -> Conditionals:
    """Two passes for each value: the columns whose distribution it changes most, with that distribution.

    A value of probability zero changes nothing.
    """
    target = Target.of(model.program, model.params)
    tables = StateTables.of(target)
    edges = sum(node.edges for node in model.circuit.sums)
    tries = _tries(target, table, int(MAX_OPERATIONS / max(edges, 1)))
    usual = _answers(target, tables, no_evidence(target))
    influences: list[tuple[Influence, ...]] = []
    for start in range(0, len(tries), CHUNK):
        part = tries[start : start + CHUNK]
        answers = _answers(target, tables, _evidence(target, part))
        distance = _distances(usual, answers)
        influences += [_most_changed(answers, distance[:, row], row, one.column) for row, one in enumerate(part)]
    columns = tuple(dict.fromkeys(one.column for one in tries))
    at = {column: [i for i, one in enumerate(tries) if one.column == column] for column in columns}
    return Conditionals(
        columns,
        tuple(tuple(tries[i].shown for i in at[column]) for column in columns),
        tuple(tuple(influences[i] for i in at[column]) for column in columns),
        tuple(tuple(answer[:, 0].tolist()) for answer in usual.values),
    )


def _tries(target: Target, table: Table, most: int) -> list[_Try]:
    """The values of columns with few states, the most frequent ones of others, quantiles of numbers.

    Where these are more than `most`, the rarer values of each column come first: they tell more.
    """
    found: list[tuple[int, _Try]] = []
    for column, states in enumerate(target.states):
        values = observed_values(table, column)
        if states is None:
            chosen = np.unique(np.quantile(values, QUANTILES, method="nearest")).tolist() if len(values) else []
            own = [_Try(column, value, value) for value in reversed(chosen)]
        else:
            counts = state_counts(values, states)
            kept = np.argsort(-counts, kind="stable")[:MAX_VALUES]
            own = [_Try(column, float(states[i]), float(i)) for i in reversed(kept.tolist())]
        found += list(enumerate(own))
    kept_tries = sorted(found, key=lambda ranked: ranked[0])[:most]
    return sorted((one for _, one in kept_tries), key=lambda one: (one.column, one.shown))


def _evidence(target: Target, tries: list[_Try]) -> Evidence:
    nothing = no_evidence(target, len(tries))
    x, observed = nothing.x.clone(), nothing.observed.clone()
    for row, one in enumerate(tries):
        x[0, one.column, row], observed[0, one.column, row] = one.value, 1
    return nothing.with_values(x, observed)


@dataclass(frozen=True)
class _Answers:
    """For each column: probabilities of its states (S, N), or mean and standard deviation (2, N)."""

    values: list[Array]
    states: list[NDArray[np.int64]]
    """The columns with states, those with the same ones together."""

    possible: NDArray[np.bool_]  # (N,)


@torch.no_grad()
def _answers(target: Target, tables: StateTables, evidence: Evidence) -> _Answers:
    found = posterior(target, evidence)
    possible = (found.log_evidence[0] > -torch.inf).cpu().numpy()
    values = [np.full((2, evidence.size), np.nan) for _ in target.states]
    states = []
    for columns, probability in tables.probabilities(found):
        states.append(columns)
        for column, one in zip(columns.tolist(), probability, strict=True):
            values[column] = one
    numbers = [column for column, known in enumerate(target.states) if known is None]
    if numbers and bool(possible.all()):
        mean, variance = mean_and_variance(target, evidence)  # (R, N, V) each
        moments = torch.stack([mean[0], variance[0].clamp_min(0).sqrt()]).permute(2, 0, 1).cpu().numpy()  # (V, 2, N)
        for column in numbers:
            values[column] = moments[column]
    return _Answers(values, states, possible)


def _distances(usual: _Answers, answers: _Answers) -> Array:  # (V, N)
    """How far each column moves: total variation, or the shift of the mean in standard deviations."""
    found = np.zeros((len(usual.values), len(answers.possible)))
    done = set()
    for columns in usual.states:
        before, after = (np.stack([part.values[column] for column in columns]) for part in (usual, answers))
        found[columns] = np.abs(after - before).sum(1) / 2
        done |= set(columns.tolist())
    for column in set(range(len(found))) - done:
        before, after = usual.values[column], answers.values[column]
        if before[1, 0] > 0:
            found[column] = np.abs(after[0] - before[0, 0]) / before[1, 0]
    return np.nan_to_num(found)


def _most_changed(answers: _Answers, distance: Array, row: int, own: int) -> tuple[Influence, ...]:
    if not answers.possible[row]:
        return ()
    order = np.argsort(-distance, kind="stable")
    kept = [int(column) for column in order[: MOST_CHANGED + 1] if column != own and distance[column] > 0]
    return tuple(
        Influence(column, _rounded(distance[column]), tuple(map(_rounded, answers.values[column][:, row].tolist())))
        for column in kept[:MOST_CHANGED]
    )


def _rounded(value: float) -> float:
    """Four digits are enough for a picture, and a page holds many of these numbers."""
    return float(f"{value:.4g}")
