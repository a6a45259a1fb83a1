"""Starting parameters, reproducible from a seed on every device: at random, or around rows of the data."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from circurve.data import RowSource, Table
from circurve.engine import Params, Program, random_weights
from circurve.inputs import Bernoulli, Binomial, Categorical, Family, Gaussian, Poisson
from circurve.inputs.common import FLOOR, distinct_rows
from circurve.inputs.gaussian import LARGEST
from circurve.names import INITIALIZATIONS, Initialization

__all__ = ["INITIALIZATIONS", "Initialization", "generator", "initial_params"]

ROWS = 20_000
"""Inputs start from at most this many evenly spaced rows: enough for means and variances."""

REPEATS = 16
"""Of a table with weights, at most this many rows are looked at for each row: those of large weight many times."""

SHARE = 0.6
"""How much of a prototype's distribution is its own row; the rest is uninformative."""

JITTER = 0.1
"""Units that share a row, or a value, still differ by about this much."""

OWN_CHILD_WEIGHT = 0.9
"""The initial weight of unit k on child unit k. With a small one, the first steps mix all rows and make the units
alike, and EM takes long to separate them again."""

Column: TypeAlias = NDArray[np.float64]


def generator(seed: int, stream: int) -> torch.Generator:
    """An independent source of randomness for each purpose (`stream`) of a seed."""
    state = np.random.SeedSequence([seed, stream]).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state) % (1 << 63))


def initial_params(program: Program, seed: int, table: RowSource, init: Initialization = "random") -> Params:
    """Parameters for one run, float64. Rows whose weight is 0 count as absent, equal weights as none.

    random: weights near uniform, inputs spread around their column, in which rows are repeated in proportion to their
    weights.
    prototypes: unit k of every input starts around the value that row i_k has there (see `PROTOTYPES`), the rows drawn
    by the seed, in proportion to their weights; a unit whose row misses the value starts at random. A sum with as many
    units as child units gives most of its weight to the child unit of the same number, so that the values of one row
    stay together.
    """
    source = generator(seed, stream=0)
    used, weights = _used_rows(table)
    rows = None
    if init == "prototypes":
        units = max(layer.units for layer in program.inputs)
        rows = used[distinct_rows(len(used), units, source, weights)]
    spaced = slice(None, None, -(-len(used) // ROWS)) if weights is None else _evenly_spaced(weights)
    sample, looked_at = table.take(used[spaced])
    near = None if rows is None else table.take(rows)
    inputs = []
    for layer in program.inputs:
        drawn, prototype = [], PROTOTYPES.get(type(layer.nodes[0].family))
        for node in layer.nodes:
            column = _observed(sample, looked_at, node.variable)
            start = node.family.initialize(column, layer.units, source)
            if near is not None and prototype is not None:
                own = near[0][near[1][: layer.units].numpy(), node.variable]
                values = torch.from_numpy(own.astype(np.float64))  # (K,)
                missing = values.isnan()
                placed = prototype(node.family, torch.where(missing, 0.0, values), column, source)
                start = torch.where(missing.unsqueeze(-1), start, placed)
            drawn.append(start)
        inputs.append(torch.stack(drawn).unsqueeze(0))
    edges = random_weights(program, source) if rows is None else _loyal_weights(program, source)
    return Params(edges, tuple(inputs))


def _used_rows(table: RowSource) -> tuple[Tensor, Tensor | None]:  # (N,) each
    """The rows of weight above 0, and their weights; None if these are equal."""
    if table.weights is None:
        return torch.arange(len(table)), None
    used = table.weights.nonzero().flatten().cpu()
    weights = table.weights.cpu()[used].double()
    return used, None if bool((weights == weights[:1]).all()) else weights


def _evenly_spaced(weights: Tensor) -> Tensor:  # (N,) -> (M,)
    """Rows at evenly spaced points of the line on which they lie one after another, each as long as its weight."""
    ends = weights.cumsum(0)
    count = min(ROWS, REPEATS * len(weights))
    points = (torch.arange(count, dtype=torch.float64) + 0.5) * (ends[-1] / count)
    return torch.searchsorted(ends, points, right=True).clamp_max_(len(weights) - 1)


def _observed(table: Table, rows: Tensor, variable: int) -> Column:
    """The observed values of a column in some rows."""
    values = table.values[rows, variable]
    present = values if table.observed is None else values[table.observed[rows, variable]]
    return cast("Column", present.numpy().astype(np.float64))


def _loyal_weights(program: Program, source: torch.Generator) -> tuple[Tensor, ...]:
    """Random weights; in each sum with as many units as child units they are mixed with the identity."""
    weights = list(random_weights(program, source))  # (1, G, K, C) each
    for i, layer in enumerate(program.sums):
        if layer.units == layer.child_units:
            mixed = (1 - OWN_CHILD_WEIGHT) * weights[i] + OWN_CHILD_WEIGHT * torch.eye(layer.units, dtype=torch.float64)
            present = mixed if layer.mask is None else mixed * torch.from_numpy(layer.mask)
            weights[i] = present / present.sum(-1, keepdim=True)
    return tuple(weights)


def _uniform(source: torch.Generator, *shape: int) -> Tensor:
    """From -1 to below 1."""
    return 2 * torch.rand(shape, generator=source, dtype=torch.float64) - 1


def _probability(family: Family, values: Tensor, _: Column, source: torch.Generator) -> Tensor:
    """0.2 + 0.6 of the share of ones or successes, plus or minus half of JITTER."""
    share = values / family.trials if isinstance(family, Binomial) else values
    probability = (1 - SHARE) / 2 + SHARE * share + JITTER / 2 * _uniform(source, *share.shape)
    return probability.clamp_(FLOOR, 1 - FLOOR).unsqueeze(-1)


def _categorical(family: Family, values: Tensor, _: Column, source: torch.Generator) -> Tensor:
    """0.6 for the row's state and 0.4 for all of them, nearly evenly."""
    states = cast("Categorical", family).states
    spread = 1 + JITTER * _uniform(source, len(values), states)
    own = torch.nn.functional.one_hot(values.long(), states).double()
    return (1 - SHARE) * spread / spread.sum(-1, keepdim=True) + SHARE * own


def _gaussian(family: Family, values: Tensor, column: Column, source: torch.Generator) -> Tensor:
    """Means at the values, jittered by a tenth of the spread; the variance of the column."""
    spread = float(column.var()) if column.size else 1.0
    variance = max(spread, cast("Gaussian", family).min_variance)
    jitter = torch.randn(len(values), generator=source, dtype=torch.float64)
    mean = (values + JITTER * math.sqrt(variance) * jitter).clamp_(-LARGEST, LARGEST)
    return torch.stack([mean, torch.full_like(mean, variance)], dim=-1)


def _poisson(_: Family, values: Tensor, column: Column, source: torch.Generator) -> Tensor:
    """0.6 of the value and 0.4 of the column's mean, plus or minus a tenth."""
    mean = float(column.mean()) if column.size else 1.0
    rate = (SHARE * values + (1 - SHARE) * mean) * (1 + JITTER * _uniform(source, len(values)))
    return rate.clamp_min_(FLOOR).unsqueeze(-1)


Prototype: TypeAlias = Callable[[Family, Tensor, Column, torch.Generator], Tensor]
"""A family, values (K,), the observed values of their column, and randomness -> parameters (K, P) around the values."""

PROTOTYPES: dict[type[Family], Prototype] = {
    Bernoulli: _probability,
    Binomial: _probability,
    Categorical: _categorical,
    Gaussian: _gaussian,
    Poisson: _poisson,
}
"""The families that can start around a value; the units of others start at random."""
