"""Means, variances and covariances of missing values.

With F_u the flow of the units of column v, m_u and s_u^2 their means and variances, and c_v any shift,

    E[x_v | e]   = c_v + sum_u F_u (m_u - c_v)
    Var[x_v | e] = sum_u F_u (s_u^2 + (m_u - c_v)^2) - (E - c_v)^2, with c_v the average of the m_u.

For a covariance, the values of the units of column a are replaced by f_u(e) (m_u - c_a), with c_a below all m_u. Under
the flows F' of that pass up and down, which is one for each column a,

    Cov[x_a, x_b | e] = E[x_a - c_a | e] (sum_u F'_u m_u - sum_u F_u m_u)        for a != b.
"""

from __future__ import annotations

import torch
from torch import Tensor

from circurve.queries.evidence import Evidence, leaf_values
from circurve.queries.passes import Posterior, chunked, posterior, require_possible
from circurve.queries.target import Target
from circurve.queries.units import unit_moments

__all__ = ["covariance", "mean", "mean_and_variance", "variance"]

Units = list[tuple[Tensor, Tensor]]
"""Mean and variance of the units of each input layer, (R, G, K, N or 1)."""


def mean(target: Target, evidence: Evidence) -> Tensor:  # (R, N, V) float64
    """E[x | e] of each cell; the value itself where it is observed."""
    return mean_and_variance(target, evidence)[0]


def variance(target: Target, evidence: Evidence) -> Tensor:  # (R, N, V) float64
    """Var[x | e] of each cell; 0 where it is observed."""
    return mean_and_variance(target, evidence)[1]


def mean_and_variance(target: Target, evidence: Evidence) -> tuple[Tensor, Tensor]:  # (R, N, V) each, float64
    """Mean and variance of each cell, from one pass up and one down."""

    def work(part: Evidence) -> Tensor:  # (2, R, V, N)
        found = posterior(target, part)
        require_possible(target, part, found.log_evidence)
        units = [unit_moments(target, part, number) for number in range(len(target.program.inputs))]
        first = _mean(target, found, units)
        second = _variance(target, found, units, first)
        known = part.observed > 0
        return torch.stack([torch.where(known, part.x.double(), first), torch.where(known, 0.0, second)])

    first, second = chunked(target, evidence, work).transpose(-1, -2)
    return first, second


def covariance(target: Target, evidence: Evidence) -> Tensor:  # (R, N, V, V) float64
    """Cov[x_a, x_b | e] for each row; 0 for observed cells. One pass up and one down for each column, in float64."""
    exact, given = target.exact, evidence.to(torch.float64)

    def work(part: Evidence) -> Tensor:  # (R, V, V, N)
        found = posterior(exact, part)
        require_possible(exact, part, found.log_evidence)
        units = [unit_moments(exact, part, number) for number in range(len(exact.program.inputs))]
        leaves = leaf_values(exact, part)
        first = _mean(exact, found, units)
        rows = [_covariance_row(exact, part, column, units, leaves, first) for column in range(exact.variables)]
        table = torch.stack(rows, dim=1)
        missing = (part.observed == 0).to(table.dtype)
        table = table * missing.unsqueeze(1) * missing.unsqueeze(2)
        table.diagonal(dim1=1, dim2=2).copy_((_variance(exact, found, units, first) * missing).transpose(-1, -2))
        return table

    return chunked(exact, given, work).movedim(-1, 1)


def _covariance_row(
    target: Target, evidence: Evidence, column: int, units: Units, leaves: list[Tensor], first: Tensor
) -> Tensor:  # (R, V, N)
    """Cov[x_a, x_b | e] for one column a and all others; nothing of use for b = a."""
    places = target.places[column]
    means = [units[place.number][0].index_select(1, place.groups) for place in places]  # (R, g, K, N or 1)
    low = torch.stack([m.flatten(1).amin(1) for m in means]).amin(0).view(-1, 1, 1, 1)  # of each run
    high = torch.stack([m.flatten(1).amax(1) for m in means]).amax(0).view(-1, 1, 1, 1)
    shift = low - (high - low) - 1e-3 * (1 + low.abs())
    known = evidence.observed[:, column, None, None] > 0  # (R or 1, 1, 1, N)
    tilted = list(leaves)
    for place, m in zip(places, means, strict=True):
        values = tilted[place.number].index_select(1, place.groups)
        tilted[place.number] = tilted[place.number].index_copy(
            1, place.groups, torch.where(known, values, values + (m - shift).log())
        )
    moved = _mean(target, posterior(target, evidence, tilted), units)
    return (first[:, column] - shift[:, 0, 0]).unsqueeze(1) * (moved - first)


def _mean(target: Target, found: Posterior, units: Units) -> Tensor:  # (R, V, N)
    """E[x_v | e] of all columns."""
    shifts = _shifts(target, units)
    total, first = _sums(target, found, [m - shifts[:, at, None, None] for (m, _), at in _with_columns(target, units)])
    return shifts.unsqueeze(-1) + first / total


def _variance(target: Target, found: Posterior, units: Units, mean: Tensor) -> Tensor:  # (R, V, N)
    """sum_u F_u (s_u^2 + (m_u - c)^2) - (E - c)^2, with c among the means of the column's units."""
    shifts = _shifts(target, units)
    pairs = _with_columns(target, units)
    total, second = _sums(target, found, [v + (m - shifts[:, at, None, None]).square() for (m, v), at in pairs])
    return (second / total - (mean - shifts.unsqueeze(-1)).square()).clamp_min(0)


def _with_columns(target: Target, units: Units) -> list[tuple[tuple[Tensor, Tensor], Tensor]]:
    return list(zip(units, target.reference.variables, strict=True))


def _sums(target: Target, found: Posterior, values: list[Tensor]) -> tuple[Tensor, Tensor]:  # (R, V, N) each
    """By column, the sum of the flows of its units and that of the flows times values (R, G, K, N or 1)."""
    rows = found.log_evidence.shape[-1]
    total, weighted = torch.zeros(
        2, target.runs, target.variables, rows, dtype=torch.float64, device=target.device
    ).unbind()
    for columns, flow, value in zip(target.reference.variables, found.flows, values, strict=True):
        exact = flow.double()
        total.index_add_(1, columns, exact.sum(2))
        weighted.index_add_(1, columns, _weighted(exact, value))
    return total, weighted


def _weighted(flow: Tensor, value: Tensor) -> Tensor:  # (R, G, K, N), (R, G, K, N or 1) -> (R, G, N)
    if value.shape[-1] == flow.shape[-1]:
        return (flow * value).sum(2)
    return torch.matmul(value.transpose(-1, -2), flow).squeeze(2)


def _shifts(target: Target, units: Units) -> Tensor:  # (R, V)
    """For each column a number among the means of its units: what is added up stays as small as their spread."""
    shifts = torch.zeros(target.runs, target.variables, dtype=torch.float64, device=target.device)
    for number, (first, _) in enumerate(units):
        shifts[:, target.reference.variables[number]] = first.mean((2, 3))
    return shifts
