"""The distribution of each column, in the data and under the model, on the same states or bins."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from circurve.data import Table
from circurve.model import Model
from circurve.queries.distributions import MixtureDistribution, column_distribution
from circurve.queries.evidence import Evidence, no_evidence
from circurve.queries.passes import Posterior, posterior
from circurve.queries.target import Target
from circurve.report.columns import value_text
from circurve.report.record import Marginal
from circurve.report.states import StateTables, state_counts
from circurve.schema import Column

__all__ = ["GRID_POINTS", "Marginals", "marginals", "mixture_of", "observed_values"]

Array = NDArray[np.float64]

MAX_STATES = 24
"""States of a column that are drawn one by one; the others are one bar."""

BINS = 24
GRID_POINTS = 101
MAX_NUMBERS = 120_000
"""The largest count of numbers in all marginals together; if there are more, the best fits are left out."""

TAIL = 0.001
"""Grids reach from this quantile of the model to its opposite."""


@dataclass(frozen=True)
class Marginals:
    """All columns, the worst fit first, and the pass that their distributions come from."""

    target: Target
    evidence: Evidence
    posterior: Posterior
    found: tuple[Marginal, ...]


def marginals(model: Model, target: Target, table: Table) -> Marginals:
    """Compare every column of a checked table with the model. One pass up and one down for all of them."""
    evidence = no_evidence(target)
    found = posterior(target, evidence)
    every = []
    for columns, probability in StateTables.of(target).probabilities(found):  # (c, S, 1)
        for place, one in zip(columns.tolist(), probability[:, :, 0], strict=True):
            every.append(_of_states(place, model.schema.columns[place], observed_values(table, place), one, target))
    for place, states in enumerate(target.states):
        if states is None:
            one = mixture_of(target, evidence, found, place)
            every.append(_of_numbers(place, observed_values(table, place), one))
    every.sort(key=lambda marginal: (-marginal.distance, marginal.column))
    sizes = np.cumsum([len(m.data) * 2 + 2 * len(m.grid or ()) for m in every])
    return Marginals(target, evidence, found, tuple(every[: max(int((sizes <= MAX_NUMBERS).sum()), 1)]))


def observed_values(table: Table, column: int) -> Array:  # (rows,)
    """The values of a column that are there."""
    values = table.values[:, column].double().cpu().numpy()
    return values if table.observed is None else values[table.observed[:, column].cpu().numpy()]


def mixture_of(target: Target, evidence: Evidence, found: Posterior, column: int) -> MixtureDistribution:
    """The distribution of a column without finitely many states."""
    flows = [found.flows[place.number].index_select(1, place.groups) for place in target.places[column]]
    return column_distribution(target, evidence, column, flows)


def _of_states(place: int, column: Column, values: Array, model: Array, target: Target) -> Marginal:
    states = np.array(target.states[place], dtype=np.float64)
    counts = state_counts(values, target.states[place] or ()).astype(np.float64)
    data = counts / max(len(values), 1)
    distance, chance = distances(data, model, len(values))
    labels = [value_text(column, float(state)) for state in states[: 4 * MAX_STATES]]
    if len(states) > MAX_STATES:
        kept = np.sort(np.argsort(-np.maximum(data, model), kind="stable")[: MAX_STATES - 1])
        labels = [value_text(column, float(states[at])) for at in kept] + [f"{len(states) - len(kept):,} others"]
        data, model = (np.append(part[kept], max(1 - part[kept].sum(), 0.0)) for part in (data, model))
    shown = (tuple(data.tolist()), tuple(model.tolist()))
    return Marginal(place, len(values), tuple(labels), None, *shown, None, None, distance, chance)


def _of_numbers(place: int, values: Array, found: MixtureDistribution) -> Marginal:
    low, high = (float(found.quantile(level)[0, 0]) for level in (TAIL, 1 - TAIL))
    if len(values):
        low, high = min(low, float(values.min())), max(high, float(values.max()))
    edges = _whole_edges(low, high) if found.discrete else np.linspace(low, high if high > low else low + 1, BINS + 1)
    counts = np.histogram(values, edges)[0]
    data = counts / max(len(values), 1)
    cumulative = found.cdf(torch.from_numpy(edges[1:-1]))[0, 0].cpu().numpy()
    model = np.diff(np.concatenate([[0.0], cumulative, [1.0]]))  # the outer bins hold the tails
    grid, density = None, None
    if not found.discrete:
        points = np.linspace(edges[0], edges[-1], GRID_POINTS)
        height = found.density(torch.from_numpy(points))[0, 0].cpu().numpy()
        grid, density = tuple(points.tolist()), tuple(height.tolist())
    distance, chance = distances(data, model, len(values))
    bars = (tuple(edges.tolist()), tuple(data.tolist()), tuple(model.tolist()))
    return Marginal(place, len(values), None, *bars, grid, density, distance, chance)


def _whole_edges(low: float, high: float) -> Array:
    """Bins around whole numbers, several in each where there are many."""
    first, last = math.floor(low), math.ceil(high)
    width = max(-(-(last - first + 1) // BINS), 1)
    count = max(-(-(last - first + 1) // width), 2)
    return first - 0.5 + width * np.arange(count + 1, dtype=np.float64)


def distances(data: Array, model: Array, rows: int) -> tuple[float, float]:  # (B,) each
    """Total variation 1/2 sum |q - p|, and what to expect of it for rows drawn from p.

    A share q of n draws has E|q - p| of about sqrt(2 p (1 - p) / (pi n)).
    """
    if not rows:
        return 0.0, 0.0
    chance = np.sqrt(2 * np.clip(model * (1 - model), 0, None) / (math.pi * rows)).sum() / 2
    return float(np.abs(data - model).sum() / 2), float(chance)
