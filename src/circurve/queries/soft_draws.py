"""Draws of a column with a likelihood or an interval as evidence, from the active unit of each row."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from circurve.inputs import LOG_ZERO, Binomial, Family
from circurve.queries.draws import uniform_numbers
from circurve.queries.evidence import Evidence, Interval, Likelihood
from circurve.queries.states import LOG_BYTES, ROW_BYTES, check_states, state_tensor
from circurve.queries.target import Target

__all__ = ["draw_inside"]

BISECTIONS = 90
STATES_AT_ONCE = 1 << 20
"""Rows times states whose probabilities are held at once, for each run."""

SMALLEST_LEVEL = 2.0**-60
MAX_DEVIATIONS = 2.0**27
"""How many standard deviations a unit's draw can be from its mean: 1 / MAX_DEVIATIONS^2 is the rounding of float64, and
Chebyshev's inequality bounds all distributions."""


def draw_inside(
    target: Target, given: Evidence, column: int, units: Callable[[int], Tensor], seed: int
) -> Tensor:  # (R, N) float64
    """A value for each row, from p_u(x) l(x) with u the active unit of the column; anything where none is active."""
    generator = torch.Generator(target.device).manual_seed(seed)
    level = uniform_numbers(1, 1, given.size, generator)[0]  # (1, N)
    found = torch.zeros(target.runs, given.size, dtype=torch.float64, device=target.device)
    likely = given.likely(column) if column in given.likelihoods else slice(0, 0)
    states = (target.states[column] or ())[likely]
    if len(states):
        widest = max(len(p.groups) * target.program.inputs[p.number].units for p in target.places[column])
        check_states(target, column, "draws", target.runs * (LOG_BYTES * widest + ROW_BYTES), len(states))
    for at, place in enumerate(target.places[column]):
        logs = target.state_logs(column, at, likely) if len(states) else None  # (R, g, K, s)
        active = units(place.number).index_select(1, place.groups)  # (R, g, N)
        for position in range(len(place.groups)):
            own = active[:, position]
            if logs is not None:
                chosen = _states(logs[:, position], given.likelihoods[column][likely], own.clamp_min(0), level)
                values = state_tensor(states, found)[chosen]
            elif isinstance(place.family, Binomial):
                parameters = target.parameters(place)[:, position]
                values = _counts_inside(place.family, parameters, given.intervals[column], own, level)
            else:
                parameters = target.parameters(place)[:, position].double()
                index = own.clamp_min(0).unsqueeze(-1).expand(-1, -1, parameters.shape[-1])
                values = _inside(place.family, parameters.gather(1, index), given.intervals[column], level)
            found = torch.where(own >= 0, values, found)
    return found


def _states(logs: Tensor, likelihood: Likelihood, units: Tensor, level: Tensor) -> Tensor:
    """`_state` of all rows, as many at once as STATES_AT_ONCE allows."""
    size = max(1, STATES_AT_ONCE // logs.shape[-1])
    parts = []
    for start in range(0, units.shape[-1], size):
        rows = slice(start, start + size)
        own = likelihood if likelihood.shape[-1] == 1 else likelihood[:, rows]
        parts.append(_state(logs, own, units[:, rows], level[:, rows]))
    return torch.cat(parts, dim=-1)


def _state(logs: Tensor, likelihood: Likelihood, units: Tensor, level: Tensor) -> Tensor:
    """States drawn from p_u(s) l_s: (R, K, S), (S, N or 1), (R, N), (1, N) -> (R, N)."""
    own = logs.double().gather(1, units.unsqueeze(-1).expand(-1, -1, logs.shape[-1]))  # (R, N, S)
    sums = (own + likelihood.T.log().clamp_min(LOG_ZERO)).softmax(-1).cumsum(-1)
    return (sums <= (level * sums[..., -1]).unsqueeze(-1)).sum(-1).clamp_max(logs.shape[-1] - 1)


def _counts_inside(
    family: Binomial, parameters: Tensor, interval: Interval, units: Tensor, level: Tensor
) -> Tensor:  # (R, N) float64
    """Draws of the rows that have a unit, 0 elsewhere: parameters (R, K, 1), units (R, N), below 0 for none."""
    run, row = (units >= 0).nonzero(as_tuple=True)  # (B,) each
    found = torch.zeros(units.shape, dtype=torch.float64, device=units.device)
    if len(run):
        low, high = (end.expand(units.shape[1])[row] for end in interval)
        found[run, row] = family.draw_inside(parameters[run, units[run, row]], low, high, level[0, row])
    return found


def _inside(family: Family, parameters: Tensor, interval: Interval, level: Tensor) -> Tensor:  # (R, N, P) -> (R, N)
    """The value at which the mass from the lower end on is `level` of that of the interval, by bisection."""
    units = parameters.unsqueeze(2)  # each row is a group of one unit, (R, N, 1, P)
    low, high = (end.double().expand(len(parameters), level.shape[1]) for end in interval)

    def log_mass(end: Tensor) -> Tensor:  # (R, N)
        return family.log_mass(units, low.unsqueeze(-1), end.unsqueeze(-1))[..., 0, 0]

    wanted = log_mass(high) + level.clamp_min(SMALLEST_LEVEL).log()
    mean, reach = family.mean(units)[..., 0], MAX_DEVIATIONS * family.variance(units)[..., 0].sqrt() + 1
    below = torch.maximum(low, torch.minimum(mean - reach, high - reach))
    above = torch.minimum(high, torch.maximum(mean + reach, low + reach))
    if family.discrete:
        below, above = (below.clamp_min(0) - 1).ceil(), above.floor()
    for _ in range(BISECTIONS):
        middle = (below + above) / 2
        middle = middle.floor() if family.discrete else middle
        reached = log_mass(middle) >= wanted
        below, above = torch.where(reached, below, middle), torch.where(reached, middle, above)
    return above
