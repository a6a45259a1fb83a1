"""Which states of a column of binomials with very many trials matter to an answer, from the peaks of its units.

A unit's probabilities rise up to its mode and fall after it, so the states above a level are consecutive, and their
ends are found by bisection.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from circurve.inputs import LOG_ZERO, Family
from circurve.inputs.one_peak import bounds_above, log_prob_of
from circurve.queries.evidence import Evidence, Interval, best_inside
from circurve.queries.states import MAX_TABLE_STATES
from circurve.queries.target import Target

__all__ = ["states_in_tails", "states_near_modes"]

LOG_ROUNDING = 37.0
"""exp(-LOG_ROUNDING) is below the rounding of float64, 2^-53."""

EQUAL = 1e-3
"""States whose log p is this much above the level count as more probable than it."""

Range = tuple[int, int]
"""The first and the last of consecutive states."""


def states_near_modes(target: Target, part: Evidence, column: int) -> list[slice]:
    """The states that can be the most probable one of a column, given an interval of it or nothing, in some row.

    All units fall below the smallest and above the largest of their peaks. A state at which each of U units is less
    than 1/U of its own peak has less probability than one of the peaks.
    """
    low, high = _ends(target, part, column)
    units, last_state = _units(target, column), len(target.states[column] or ()) - 1
    peaks = [_peaks(family, p, low, high) for family, p in units]  # (B, N or 1) each
    first, last = (int(end) for end in torch.cat([peak.flatten() for peak in peaks]).aminmax())
    first, last = max(0, first - 1), min(last_state, last + 1)
    if last - first <= MAX_TABLE_STATES:
        return [slice(first, last + 1)]
    drop = math.log(sum(len(p) for _, p in units)) + 1
    found: list[Range] = []
    for (family, p), peak in zip(units, peaks, strict=True):
        each, at = p.repeat_interleave(peak.shape[1], 0), peak.flatten()
        found += _above(family, each, at, log_prob_of(family, each, at) - drop)
    return _slices((max(a, first), min(b, last)) for a, b in found)


def states_in_tails(target: Target, column: int, shares: Tensor, level: Tensor) -> list[slice]:
    """The states that count in sums of all p(s) <= exp(level): shares of the units (R, U, N), level (R, N).

    A state is too improbable if all units together have less there than rounding leaves of exp(level), in every row. It
    is too probable if a unit alone has more in every row; of several runs, such states are not left out.
    """
    units, last_state = _units(target, column), len(target.states[column] or ()) - 1
    needed = level.unsqueeze(1) - shares.log()  # (R, U, N): the log p at which a unit reaches the level alone
    asked = level.isfinite().unsqueeze(1)
    spare = LOG_ROUNDING + math.log((last_state + 1) * shares.shape[1])
    lowest = torch.where(asked, needed, torch.inf).amin(-1) - spare  # (R, U)
    highest = torch.where(asked, needed, -torch.inf).amax(-1) + EQUAL
    found: list[Range] = []
    too_probable: list[Range] = []
    sizes = [len(p) // target.runs for _, p in units]
    open_ends = level.new_tensor([-torch.inf]), level.new_tensor([torch.inf])
    for (family, p), low, high in zip(
        units, torch.split(lowest, sizes, 1), torch.split(highest, sizes, 1), strict=True
    ):
        peak = _peaks(family, p, *open_ends)[:, 0]
        found += _above(family, p, peak, low.flatten())
        if target.runs == 1:
            too_probable += _above(family, p, peak, high.flatten())
    return _without(_slices(found), _slices(too_probable)) or [slice(0, 1)]


def _units(target: Target, column: int) -> list[tuple[Family, Tensor]]:
    """The family and the parameters (B, P) float64 of the units at each place of a column, of all runs."""
    return [(place.family, target.parameters(place).double().flatten(0, 2)) for place in target.places[column]]


def _ends(target: Target, part: Evidence, column: int) -> Interval:
    """Of the interval of a column, or of all values if it has none."""
    if column in part.intervals:
        return part.ends(column)
    everything = torch.tensor([[-torch.inf], [torch.inf]], dtype=torch.float64, device=target.device)
    return everything[0], everything[1]


def _peaks(family: Family, parameters: Tensor, low: Tensor, high: Tensor) -> Tensor:  # (B, P) -> (B, N)
    ends = (end.expand(1, len(parameters), -1) for end in (low, high))
    return best_inside(family, parameters[None, :, None], *ends)[0, :, 0].clamp_min(0)


def _above(family: Family, parameters: Tensor, peak: Tensor, least: Tensor) -> list[Range]:
    """For each unit the states with log p >= least: none if that is above its peak. All (B,) but the parameters."""
    top = log_prob_of(family, parameters, peak)
    chosen = (top >= least) & (top > LOG_ZERO / 2)
    if not bool(chosen.any()):
        return []
    support = family.support()
    assert support is not None
    peak = peak[chosen]
    ends = torch.full_like(peak, support[0]), torch.full_like(peak, support[-1])
    first, last = bounds_above(family, parameters[chosen], peak, ends, least[chosen])
    return list(zip(first.long().tolist(), last.long().tolist(), strict=True))


def _slices(ranges: Iterable[Range]) -> list[slice]:
    """All states of some ranges, in order."""
    found: list[slice] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1].stop:
            found[-1] = slice(found[-1].start, max(found[-1].stop, last + 1))
        elif first <= last:
            found.append(slice(first, last + 1))
    return found


def _without(slices: list[slice], others: list[slice]) -> list[slice]:
    """The states of some slices that are in none of the others; both are in order and do not overlap."""
    found: list[slice] = []
    for part in slices:
        start = part.start
        for other in others:
            if other.stop > start and other.start < part.stop:
                if other.start > start:
                    found.append(slice(start, other.start))
                start = max(start, other.stop)
        if start < part.stop:
            found.append(slice(start, part.stop))
    return found
