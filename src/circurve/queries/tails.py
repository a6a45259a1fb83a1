"""How unusual a value is: the probability of all values of its column that are not more probable.

    tail(x) = P(p(X) <= p(x)),        X distributed as p(x_v | e).

It is 1 for the most probable value. The probability that it is t or less is at most t, for every column, whatever its
unit and however many values it has. For columns with finitely many values it is a sum. For others it is a sum over the
cells of a grid that the input units determine; in each cell the logarithm of the density is assumed to be linear: of a
cell of mass m with densities a < b at its ends, the part that is at most as dense as p has mass m (p - a) / (b - a).
Masses are exact, so only the places where the density crosses p are approximate; the error is about 0.01 of -log tail.
Each whole number has its own cell if MAX_POINTS allow it, and the tail is exact then.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from circurve.inputs import LOG_ZERO
from circurve.queries.peaks import states_in_tails
from circurve.queries.states import check_masses, has_long_peaks, pieces_of_states, unit_log_prob
from circurve.queries.target import Target

__all__ = ["log_tail"]

EQUAL = 1e-6
"""Values whose log-probabilities differ by less are taken as equally probable."""

STEPS = (0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1, 1.25, 1.5, 1.8, 2.1, 2.5, 3, 3.5, 4, 5, 6, 8, 10, 15, 25, 50)
"""Where the points of a grid are, in standard deviations from the mean of a unit, on both sides."""

MAX_POINTS = 1 << 9
"""Points of a grid; where units give more, they are thinned out."""

LEAST_PLAIN = 1e-200
"""Smaller tails are computed in logarithms."""

TERMS_AT_ONCE = 1 << 20
"""Rows times cells of a grid that are held at once, for each run."""


def log_tail(target: Target, column: int, shares: Sequence[Tensor], log_prob: Tensor) -> Tensor:  # (R, N) -> (R, N)
    """log P(p(X) <= p(x)) of a column's value in each row, float64.

    shares: of the units at each of the column's places, (R, g, K, N), summing to one. log_prob: log p(x), -inf for an
    impossible value, whose tail is -inf too.
    """
    flat = torch.cat([share.double().flatten(1, 2) for share in shares], dim=1)  # (R, U, N)
    if target.states[column] is None:
        check_masses(target, column)
        return _tail_of(_cell_tables(target, column), flat, log_prob)
    every = slice(0, len(target.states[column] or ()))
    chosen = states_in_tails(target, column, flat, log_prob) if has_long_peaks(target, column) else [every]
    pieces = [
        _tail_of(_state_tables(target, column, piece), flat, log_prob)
        for part in chosen
        for piece in pieces_of_states(target, column, flat.shape[1], part)
    ]
    return pieces[0] if len(pieces) == 1 else torch.stack(pieces).logsumexp(0).clamp_max(0.0)


def _tail_of(tables: Sequence[Tensor], flat: Tensor, log_prob: Tensor) -> Tensor:  # (R, N) -> (R, N)
    """The log-tail from tables of all values of a column, or the part of it from tables of some of them."""
    plain, level = [table.exp() for table in tables], log_prob.double()
    size = max(1, TERMS_AT_ONCE // tables[0].shape[-1])
    parts = [
        _plain_tail(plain, flat[..., start : start + size], level[:, start : start + size].exp())
        for start in range(0, flat.shape[-1], size)
    ]
    found = torch.cat(parts, dim=1)
    rare = (~(found > LEAST_PLAIN)).any(0).nonzero()[:, 0]
    found = found.log()
    for start in range(0, len(rare), size):
        rows = rare[start : start + size]
        found[:, rows] = _tail_in_logs(tables, flat[..., rows], level[:, rows])
    return found.clamp_max(0.0)


def _plain_tail(tables: Sequence[Tensor], shares: Tensor, level: Tensor) -> Tensor:  # (R, N) -> (R, N)
    """The mass that is at most as dense as each row's value, from tables of masses and densities."""
    mass, *ends = (torch.matmul(shares.transpose(1, 2), table) for table in tables)  # (R, N, M) each
    least, most = _sorted_ends(mass, ends, nothing=0.0)
    p = level.unsqueeze(-1)
    part = (p - least).clamp_min_(0) / (most - least).clamp_min_(torch.finfo(torch.float64).tiny)
    part.masked_fill_(p >= most * (1 - EQUAL), 1.0)
    return (mass * part).sum(-1)


def _tail_in_logs(tables: Sequence[Tensor], shares: Tensor, level: Tensor) -> Tensor:  # (R, N) -> (R, N)
    """The tail from tables of logarithms, for tails that are smaller than the smallest floating number."""
    mass, *ends = (_mixed_logs(table, shares) for table in tables)  # (R, N, M) each
    least, most = _sorted_ends(mass, ends, nothing=LOG_ZERO)
    p = level.unsqueeze(-1)
    # log((p - a) / (b - a)) where a < p < b
    part = p - most + torch.log1p(-(least - p).clamp_max(0).exp()) - torch.log1p(-(least - most).exp())
    part = torch.where(p >= most - EQUAL, 0.0, torch.where(p <= least, -torch.inf, part))
    return (mass + part).logsumexp(-1)


def _mixed_logs(table: Tensor, shares: Tensor) -> Tensor:  # (R, U, M), (R, U, N) -> (R, N, M)
    """log sum_u F_u exp(table_um)."""
    largest = table.amax(1, keepdim=True)  # (R, 1, M)
    return torch.matmul(shares.transpose(1, 2), (table - largest).exp()).log() + largest


def _sorted_ends(mass: Tensor, ends: Sequence[Tensor], nothing: float) -> tuple[Tensor, Tensor]:  # (R, N, M) each
    """The lower and the higher of the densities at the ends of each cell.

    ends: empty for states, which are as dense as their mass; the densities at both ends; or, where cells touch, at the
    points between them, beyond which there is nothing.
    """
    if not ends:
        return mass, mass
    first, last = ends if len(ends) == 2 else (pad(ends[0], side, value=nothing) for side in ((1, 0), (0, 1)))
    return torch.minimum(first, last), torch.maximum(first, last)


def _state_tables(target: Target, column: int, piece: slice) -> list[Tensor]:  # (R, U, s)
    """log p of some states under each unit."""
    places = range(len(target.places[column]))
    return [torch.cat([target.state_logs(column, at, piece).double().flatten(1, 2) for at in places], dim=1)]


def _cell_tables(target: Target, column: int) -> list[Tensor]:  # (R, U, M)
    """Under each unit, log of the mass of each cell, and of the densities at its ends as `_sorted_ends` takes them."""
    low, high = _cells(target, column)
    points = [low, high] if target.places[column][0].family.discrete else [low[:, 1:]]
    tables: list[list[Tensor]] = [[] for _ in range(1 + len(points))]
    for place in target.places[column]:
        parameters = target.parameters(place).double()
        ends = (end.unsqueeze(1).expand(-1, parameters.shape[1], -1) for end in (low, high))  # (R, g, M)
        mass = place.family.log_mass(parameters, *ends)
        tables[0].append(mass.masked_fill((low > high)[:, None, None], LOG_ZERO))
        for table, at in zip(tables[1:], points, strict=True):
            far = at.isinf()
            known = at.masked_fill(far, 0.0).unsqueeze(1).expand(-1, parameters.shape[1], -1)
            logs = unit_log_prob(place.family, parameters, known)
            table.append(logs.masked_fill(far[:, None, None], LOG_ZERO))
    return [torch.cat([part.flatten(1, 2) for part in table], dim=1) for table in tables]


def _cells(target: Target, column: int) -> tuple[Tensor, Tensor]:  # (R, M) each
    """The ends of cells that together hold all values, with points around the mean of each unit between them.

    Cells of whole numbers may be empty: they begin after their end.
    """
    pairs = [(place.family, target.parameters(place).double()) for place in target.places[column]]
    mean = torch.cat([family.mean(p).flatten(1) for family, p in pairs], dim=1)  # (R, U)
    deviation = torch.cat([family.variance(p).flatten(1) for family, p in pairs], dim=1).sqrt()
    steps = mean.new_tensor(STEPS)
    points = (mean.unsqueeze(-1) + deviation.unsqueeze(-1) * torch.cat([-steps.flip(0), steps[1:]])).flatten(1)
    points = points.sort(1).values  # (R, P)
    if points.shape[1] > MAX_POINTS:
        kept = torch.linspace(0, points.shape[1] - 1, MAX_POINTS, device=points.device).round().long()
        points = points[:, kept]
    infinite = torch.full_like(points[:, :1], torch.inf)
    if not pairs[0][0].discrete:
        return torch.cat([-infinite, points], dim=1), torch.cat([points, infinite], dim=1)
    points = _whole(points.ceil().clamp_min(0))
    return torch.cat([torch.zeros_like(infinite), points + 1], dim=1), torch.cat([points, infinite], dim=1)


def _whole(points: Tensor) -> Tensor:  # (R, P) -> (R, MAX_POINTS)
    """Every whole number up to the last point in runs where they are few enough, else the points; the last repeated."""
    last = points[:, -1:]
    every = torch.arange(MAX_POINTS, dtype=points.dtype, device=points.device).minimum(last)
    padded = torch.cat([points, last.expand(-1, MAX_POINTS - points.shape[1])], dim=1)
    return torch.where(last < MAX_POINTS, every, padded)
