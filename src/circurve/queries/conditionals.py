"""Probabilities of evidence, alone and given other evidence: one upward pass, two with intervals or likelihoods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from circurve.errors import DataError
from circurve.queries.evidence import Evidence, Interval, states_inside
from circurve.queries.passes import log_prob, require_possible
from circurve.queries.target import Target
from circurve.words import counted

__all__ = ["conditional", "joined", "marginal"]


def marginal(target: Target, evidence: Evidence) -> Tensor:  # (R, N)
    """log p(e) of each row; -inf for probability zero. Everything that is not observed is summed or integrated out.

    With likelihoods: the logarithm of the expected likelihood. With intervals: of their probability, together with the
    density of the values.
    """
    return log_prob(target, evidence)


def conditional(target: Target, asked: Evidence, given: Evidence) -> Tensor:  # (R, N)
    """log p(asked | given) = log p(asked, given) - log p(given), for N rows, or for one and N.

    Intervals that are asked for give their probability. Given evidence of probability zero is an error.
    """
    both = joined(target, asked, given)
    if given.soft or both.soft:
        known, found = log_prob(target, given), log_prob(target, both)
    else:  # a pass over a few rows costs little more than one over half as many
        values = log_prob(target, _one_after_the_other(given, both))
        known, found = values[:, : given.size], values[:, given.size :]
    require_possible(target, given, known)
    return found - known.expand(-1, both.size)


def _one_after_the_other(first: Evidence, second: Evidence) -> Evidence:
    """The rows of both; neither has likelihoods or intervals."""
    runs = max(len(first.x), len(second.x))
    pairs = ((first.x, second.x), (first.observed, second.observed))
    x, observed = (torch.cat([part.expand(runs, -1, -1) for part in pair], dim=-1) for pair in pairs)
    labels = None
    if first.labels is not None and second.labels is not None:
        labels = torch.cat([first.labels, second.labels])
    return Evidence(x, observed, labels)


def joined(target: Target, first: Evidence, second: Evidence) -> Evidence:
    """The evidence of both; one may be a single row for all rows of the other. A cell may be in one of them only."""
    if first.size != second.size and 1 not in (first.size, second.size):
        raise DataError(
            f"there are {counted(first.size, 'row')} of one kind of evidence and {second.size} of the other"
        )
    rows = max(first.size, second.size)
    a, b = (_stretched(evidence, rows) for evidence in (first, second))
    twice = (_says(target, a) & _says(target, b)).any(0)  # (V, N)
    if bool(twice.any()):
        column, row = (int(i) for i in twice.nonzero()[0])
        raise DataError(
            f"{target.label(column)}, row {row + 1}: this column is both asked for and given; leave it out on one side"
        )
    runs = max(len(a.x), len(b.x))
    x = torch.where(a.observed > 0, a.x, b.x).expand(runs, -1, -1)
    observed = torch.maximum(a.observed, b.observed).expand(runs, -1, -1)
    one = x.new_ones(1, 1)
    soft = {c: a.likelihoods.get(c, one) * b.likelihoods.get(c, one) for c in {*a.likelihoods, *b.likelihoods}}
    intervals = _both_intervals(a.intervals, b.intervals)
    for column in soft.keys() & intervals.keys():
        soft[column] = soft[column] * states_inside(target, column, intervals.pop(column))
    labels = a.labels if b.labels is None else b.labels
    return Evidence(x, observed, labels, soft, intervals)


def _both_intervals(a: Mapping[int, Interval], b: Mapping[int, Interval]) -> dict[int, Interval]:
    found = dict(a)
    for column, (low, high) in b.items():
        first, last = found.get(column, (low, high))
        found[column] = (torch.maximum(low, first), torch.minimum(high, last))
    return found


def _stretched(evidence: Evidence, rows: int) -> Evidence:
    if evidence.size == rows:
        return evidence
    shape = (-1, -1, rows)
    labels = None if evidence.labels is None else evidence.labels.expand(rows)
    return replace(evidence, x=evidence.x.expand(shape), observed=evidence.observed.expand(shape), labels=labels)


def _says(target: Target, evidence: Evidence) -> Tensor:  # (R or 1, V, N) bool
    """The cells with evidence."""
    known = evidence.observed > 0
    if evidence.soft:
        known = known.clone()
    for column, likelihood in evidence.likelihoods.items():
        known[:, column] |= (likelihood != likelihood[:1]).any(0)
    for column, (low, high) in evidence.intervals.items():
        known[:, column] |= (low > -torch.inf) | (high < torch.inf)
    return known
