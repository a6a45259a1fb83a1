"""For circuits too large for the page: what each value of a single column does to the other columns, found beforehand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from circurve.data import Table
from circurve.queries import mean_and_variance
from circurve.queries.evidence import Evidence, no_evidence
from circurve.queries.passes import posterior
from circurve.queries.target import Target
from circurve.report.marginals import Marginals, observed_values, states_of
from circurve.report.record import Conditionals, Influence

__all__ = ["conditionals"]

Array = NDArray[np.float64]

MAX_ROWS = 3000
"""How many single values are tried at most."""

MAX_VALUES = 6
"""Of one column; numbers take quantiles of the data."""

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
MOST_CHANGED = 12
"""How many columns are kept for each value."""

CHUNK = 64
"""Values tried at once."""


@dataclass(frozen=True)
class _Try:
    """One value of one column."""

    column: int
    value: float
    shown: float
    """The place of a state, or the number itself."""


def conditionals(found: Marginals, table: Table) -> Conditionals:
    """Two passes for each value: the columns whose distribution it changes most, with that distribution.

    A value of probability zero changes nothing.
    """
    target = found.target
    tries = _tries(target, table)
    usual = _answers(target, found.evidence)
    influences: list[tuple[Influence, ...]] = []
    for start in range(0, len(tries), CHUNK):
        part = tries[start : start + CHUNK]
        answers = _answers(target, _evidence(target, part))
        influences += [_most_changed(usual, answers, row, one.column) for row, one in enumerate(part)]
    columns = tuple(dict.fromkeys(one.column for one in tries))
    at = {column: [i for i, one in enumerate(tries) if one.column == column] for column in columns}
    return Conditionals(
        columns,
        tuple(tuple(tries[i].shown for i in at[column]) for column in columns),
        tuple(tuple(influences[i] for i in at[column]) for column in columns),
        tuple(tuple(answer[:, 0].tolist()) for answer in usual.values),
    )


def _tries(target: Target, table: Table) -> list[_Try]:
    """All values of columns with few states, the most frequent of others, quantiles of numbers; MAX_ROWS at most."""
    found: list[_Try] = []
    for column, states in enumerate(target.states):
        values = observed_values(table, column)
        if states is None:
            chosen = np.unique(np.quantile(values, QUANTILES, method="nearest")).tolist() if len(values) else []
            found += [_Try(column, value, value) for value in chosen]
        else:
            counts = np.array([(values == state).sum() for state in states])
            kept = np.sort(np.argsort(-counts, kind="stable")[:MAX_VALUES])
            found += [_Try(column, float(states[i]), float(i)) for i in kept]
    return found[:MAX_ROWS]


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
    states: tuple[bool, ...]
    possible: NDArray[np.bool_]  # (N,)


@torch.no_grad()
def _answers(target: Target, evidence: Evidence) -> _Answers:
    found = posterior(target, evidence)
    possible = (found.log_evidence[0] > -torch.inf).cpu().numpy()
    finite = tuple(states is not None for states in target.states)
    moments = None
    if not all(finite) and bool(possible.all()):
        mean, variance = mean_and_variance(target, evidence)  # (R, N, V) each
        moments = torch.stack([mean[0], variance[0].clamp_min(0).sqrt()]).permute(2, 0, 1).cpu().numpy()  # (V, 2, N)
    values = []
    for column, is_finite in enumerate(finite):
        if is_finite:
            values.append(states_of(target, evidence, found, column))
        else:
            values.append(np.full((2, evidence.size), np.nan) if moments is None else moments[column])
    return _Answers(values, finite, possible)


def _most_changed(usual: _Answers, answers: _Answers, row: int, own: int) -> tuple[Influence, ...]:
    if not answers.possible[row]:
        return ()
    distance = np.zeros(len(usual.values))
    for column, (before, after) in enumerate(zip(usual.values, answers.values, strict=True)):
        change = after[:, row] - before[:, 0]
        if usual.states[column]:
            distance[column] = np.abs(change).sum() / 2
        elif before[1, 0] > 0 and np.isfinite(change[0]):
            distance[column] = abs(change[0]) / before[1, 0]
    distance[own] = -1
    order = np.argsort(-distance, kind="stable")[:MOST_CHANGED]
    return tuple(
        Influence(int(c), float(distance[c]), tuple(answers.values[c][:, row].tolist())) for c in order if distance[c] > 0
    )
