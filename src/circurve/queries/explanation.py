"""Which cells make a row improbable: log p(x_v | x_-v) for every observed cell, all others of the row being known.

With F_u the flow of the units of column v and f_u(x_v) their densities,

    1 / p(x_v | x_-v) = sum_u F_u / f_u(x_v),

so one pass up and one down give all cells of a row, in float64. Flow that was lost to rounding, and all of it in rows
or units of probability zero, would be missing from that sum. Such cells get a pass of their own, in which the cell is
left out: the flows of that pass are F_u / f_u(x_v) divided by their sum. These shares are those of the mixture
p(x_v | x_-v), which has the mean, the variance and the tail (`tails.py`) that are returned with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from circurve.engine.numerics import FLUSH, IMPOSSIBLE, WEAK_SUM
from circurve.queries.evidence import Evidence, leaf_values
from circurve.queries.passes import Posterior, chunked, log_prob, posterior
from circurve.queries.tails import log_tail
from circurve.queries.target import Target
from circurve.queries.units import unit_moments

__all__ = ["Explanation", "explain"]

LOST_FLOW = FLUSH[torch.float64] / WEAK_SUM[torch.float64]
"""Flow below this may have been flushed on its way down, in float64."""

TOLERANCE = 1e-9
"""The share of 1 / p(x_v | x_-v) that lost flow may amount to before a cell gets a pass of its own."""


@dataclass(frozen=True)
class Explanation:
    """How probable each cell is given the rest of its row, and what to expect. NaN where a cell is not observed."""

    log_conditional: Tensor  # log p(x_v | x_-v), (R, N, V) float64; -inf where it is impossible
    mean: Tensor  # E[x_v | x_-v], (R, N, V) float64
    variance: Tensor  # Var[x_v | x_-v], (R, N, V) float64
    # log P(p(X | x_-v) <= p(x_v | x_-v)) of a value X in place of x_v, (R, N, V) float64; -inf where it is impossible
    log_tail: Tensor


@torch.no_grad()
def explain(target: Target, rows: Evidence) -> Explanation:
    """The probability of each observed cell given the other cells of its row, and the expected value in its place.

    Where the rest of a row is impossible too, whatever the cell holds, the values are NaN.
    """
    exact, given = target.exact, rows.to(torch.float64)

    def work(part: Evidence) -> Tensor:  # (R, V, 4, N)
        found, unsure = _from_flows(exact, part)
        return _left_out(exact, part, unsure & (part.observed > 0), found)

    found = chunked(exact, given, work)
    found = torch.where((given.observed > 0).unsqueeze(2), found, torch.nan)
    return Explanation(*(part.transpose(1, 2) for part in found.unbind(2)))


def _from_flows(target: Target, part: Evidence) -> tuple[Tensor, Tensor]:  # (R, V, 4, N), (R, V, N)
    """log p(x_v | x_-v), mean, variance and log-tail; and the cells where flows are not precise enough."""
    leaves = leaf_values(target, part)
    found = posterior(target, part, leaves)
    shape = (target.runs, target.variables, part.size)
    largest = torch.full(shape, -torch.inf, dtype=torch.float64, device=target.device)
    logs, lost = [], torch.zeros(shape, dtype=torch.float64, device=target.device)
    for number, (flow, value) in enumerate(zip(found.flows, leaves, strict=True)):
        columns = target.reference.variables[number]
        log_share = flow.log() - value  # log(F_u / f_u), (R, G, K, N)
        logs.append(log_share)
        at = columns[:, None].expand(target.runs, -1, part.size)
        largest.scatter_reduce_(1, at, log_share.amax(2), "amax")
        lost.scatter_reduce_(1, at, _lost(flow, value), "amax")
    posteriors = _shares(target, logs, largest)
    total = _sum_by_column(target, [share.sum(2) for share in posteriors], shape)
    log_conditional = -(total.log() + largest)
    mean, variance = _moments(target, part, posteriors, total)
    tails = torch.full_like(log_conditional, torch.nan)
    for column in _observed_columns(part):
        tails[:, column] = _tail(target, column, posteriors, total[:, column], log_conditional[:, column])
    impossible = ~(found.log_evidence > -torch.inf).unsqueeze(1)
    unsure = impossible | (lost.log() + log_conditional > torch.log(torch.tensor(TOLERANCE)))
    return torch.stack([log_conditional, mean, variance, tails], dim=2), unsure


def _observed_columns(part: Evidence) -> list[int]:
    """The columns with a known cell in some row."""
    return (part.observed > 0).any(-1).any(0).nonzero()[:, 0].tolist()


def _tail(target: Target, column: int, shares: list[Tensor], total: Tensor, log_prob: Tensor) -> Tensor:  # (R, N) each
    """The log-tail of a column under shares of its units that sum to `total`."""
    own = [shares[place.number].index_select(1, place.groups) / total[:, None, None] for place in target.places[column]]
    return log_tail(target, column, own, log_prob)


def _lost(flow: Tensor, value: Tensor) -> Tensor:  # (R, G, K, N) -> (R, G, N)
    """The most that F_u / f_u can be for units whose flow may have been flushed; infinite if the unit is impossible."""
    bound = torch.where(value > IMPOSSIBLE, LOST_FLOW * (-value).clamp_max(700).exp(), torch.inf)
    return torch.where(flow <= LOST_FLOW, bound, 0.0).amax(2)


def _shares(target: Target, logs: list[Tensor], largest: Tensor) -> list[Tensor]:  # (R, G, K, N) each
    """F_u / f_u, divided by the largest of the column."""
    columns = target.reference.variables
    scale = [largest.index_select(1, columns[number]).unsqueeze(2) for number in range(len(logs))]
    return [torch.where(log > -torch.inf, (log - s).exp(), 0.0) for log, s in zip(logs, scale, strict=True)]


def _sum_by_column(target: Target, parts: list[Tensor], shape: tuple[int, ...]) -> Tensor:  # (R, G, N) -> (R, V, N)
    total = torch.zeros(shape, dtype=torch.float64, device=target.device)
    for number, part in enumerate(parts):
        total.index_add_(1, target.reference.variables[number], part)
    return total


def _moments(
    target: Target, part: Evidence, shares: list[Tensor], total: Tensor
) -> tuple[Tensor, Tensor]:  # (R, V, N) each
    """Mean and variance of each column under shares of its units that sum to `total`."""
    shape, columns = tuple(total.shape), target.reference.variables
    units = [unit_moments(target, part, number) for number in range(len(shares))]
    first = [(share * m).sum(2) for share, (m, _) in zip(shares, units, strict=True)]
    mean = _sum_by_column(target, first, shape) / total
    second = []
    for number, (share, (m, v)) in enumerate(zip(shares, units, strict=True)):
        distance = m - mean.index_select(1, columns[number]).unsqueeze(2)
        second.append((share * (v + distance.square())).sum(2))
    return mean, _sum_by_column(target, second, shape) / total


def _left_out(target: Target, part: Evidence, unsure: Tensor, found: Tensor) -> Tensor:  # (R, V, N), (R, V, 4, N)
    """The result, with each cell that is unsure in some run computed by a separate pass, in which the cell is left
    out."""
    column, row = unsure.any(0).nonzero(as_tuple=True)  # (P,) each
    if not len(column):
        return found
    found = found.clone()
    for start in range(0, len(column), part.size):
        chosen = slice(start, start + part.size)
        one = _cells(target, part, column[chosen], row[chosen])  # (R, 4, P)
        found[:, column[chosen], :, row[chosen]] = one.movedim(-1, 0)
    return found


def _cells(target: Target, part: Evidence, column: Tensor, row: Tensor) -> Tensor:  # (P,), (P,) -> (R, 4, P)
    cells = part.rows(row)
    observed = cells.observed.clone()
    observed[:, column, torch.arange(len(row), device=row.device)] = 0
    rest = Evidence(cells.x, observed, cells.labels, cells.likelihoods, cells.intervals)
    without: Posterior = posterior(target, rest)
    whole = log_prob(target, cells)
    shape = (target.runs, target.variables, len(row))
    total = _sum_by_column(target, [flow.sum(2) for flow in without.flows], shape)
    mean, variance = _moments(target, rest, list(without.flows), total)
    at = column.expand(target.runs, 1, -1)
    log_conditional = whole - without.log_evidence
    tails = torch.empty_like(log_conditional)
    for one in sorted(set(column.tolist())):
        cell = (column == one).nonzero()[:, 0]
        flows = [flow[..., cell] for flow in without.flows]
        tails[:, cell] = _tail(target, one, flows, total[:, one, cell], log_conditional[:, cell])
    parts = [log_conditional, mean.gather(1, at).squeeze(1), variance.gather(1, at).squeeze(1), tails]
    possible = without.log_evidence > -torch.inf
    return torch.stack([torch.where(possible, value, torch.nan) for value in parts], dim=1)
