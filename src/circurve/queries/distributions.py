"""The distribution of one missing value of each row: probabilities of states, or a mixture of input units.

Both records have the same methods. Axes: R runs, N rows, S states, M points of a grid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from circurve.errors import DataError, OptionError
from circurve.inputs import LOG_ZERO, Family
from circurve.queries.evidence import Evidence, log_weights
from circurve.queries.passes import Posterior, chunked, posterior, require_possible
from circurve.queries.states import check_masses, check_states, pieces_of_states, state_tensor, unit_log_prob
from circurve.queries.target import Place, Target
from circurve.queries.units import likely_masses, state_shares, unit_moments

__all__ = [
    "Distribution",
    "MixtureDistribution",
    "StateDistribution",
    "column_distribution",
    "distribution",
    "state_probabilities",
    "state_weights",
]

BISECTIONS, RESOLUTION = 700, 1e-12
"""Halvings, at most, of the interval that holds a quantile, and its size, relative to the quantile, that is enough. The
interval for the smallest level, 5e-324, is 1e162 standard deviations wide: 580 halvings."""

LEVEL_ROUNDING = 1e-12
"""A level counts as reached when less than this share of it, and of what is above it, is missing."""

STATE_BYTES = 24
"""Bytes of the probability of a state in one row: in float64, as it is put together, and in the answer."""

ZOOMS, POINTS = 6, 17
"""Rounds of the search for a density's peak, and points in each: the interval shrinks by 8 in a round."""


@dataclass(frozen=True)
class StateDistribution:
    """p(x = s | e) of a column with finitely many states."""

    states: Tensor  # (S,) float64, increasing
    probability: Tensor  # (R, N, S) float64, sums to one

    def mean(self) -> Tensor:  # (R, N)
        """The expected value, states read as numbers."""
        return self.probability @ self.states

    def variance(self) -> Tensor:  # (R, N)
        """The variance, states read as numbers."""
        return ((self.states - self.mean().unsqueeze(-1)).square() * self.probability).sum(-1)

    def mode(self) -> Tensor:  # (R, N)
        """The most probable state, the first of equals."""
        return self.states[self.probability.argmax(-1)]

    def quantile(self, level: float) -> Tensor:  # (R, N)
        """The first state at which the distribution function reaches `level`."""
        _check_level(level)
        reached = self.probability.cumsum(-1) >= _rounded(level)
        reached[..., -1] = True
        return self.states[reached.to(torch.int8).argmax(-1)]

    def density(self, grid: Tensor) -> Tensor:  # (M,) -> (R, N, M)
        """The probability of each value of a grid; 0 for what is no state."""
        points = grid.to(self.states).contiguous()
        at = torch.searchsorted(self.states, points).clamp_max(len(self.states) - 1)  # (M,)
        return self.probability[..., at] * (self.states[at] == points)

    def cdf(self, grid: Tensor) -> Tensor:  # (M,) -> (R, N, M)
        """P(x <= value) for each value of a grid."""
        count = torch.searchsorted(self.states, grid.to(self.states).contiguous(), right=True)  # (M,)
        return torch.nn.functional.pad(self.probability.cumsum(-1), (1, 0))[..., count]


@dataclass(frozen=True)
class MixtureDistribution:
    """p(x | e) = sum_u F_u f_u(x) of a column without a finite list of states, within an interval if one is given."""

    families: tuple[Family, ...]
    parameters: tuple[Tensor, ...]  # (R, g, K, P) for each family, float64
    shares: tuple[Tensor, ...]  # F_u, (R, g, K, N) for each, float64; they sum to one over all
    interval: tuple[Tensor, Tensor] | None  # (N,) each
    moments: tuple[Tensor, Tensor]  # mean and variance, (R, N)

    @property
    def discrete(self) -> bool:
        """Whether values are whole numbers."""
        return self.families[0].discrete

    def row(self, number: int) -> MixtureDistribution:
        """The distribution of one row."""
        at = slice(number, number + 1)
        ends = self.interval
        return replace(
            self,
            shares=tuple(share[..., at] for share in self.shares),
            interval=None if ends is None else (ends[0][at], ends[1][at]),
            moments=(self.moments[0][:, at], self.moments[1][:, at]),
        )

    def run(self, number: int) -> MixtureDistribution:
        """The distributions of one run."""
        at = slice(number, number + 1)
        return replace(
            self,
            parameters=tuple(values[at] for values in self.parameters),
            shares=tuple(share[at] for share in self.shares),
            moments=(self.moments[0][at], self.moments[1][at]),
        )

    def mean(self) -> Tensor:  # (R, N)
        """The expected value."""
        return self.moments[0]

    def variance(self) -> Tensor:  # (R, N)
        """The variance."""
        return self.moments[1]

    def density(self, grid: Tensor) -> Tensor:  # (M,) -> (R, N, M)
        """The density, or the probability of whole numbers, at each point of a grid."""
        if self.interval is None:
            points = grid.to(self.shares[0])
            return self._mixed(lambda family, p: unit_log_prob(family, p, points.expand(1, p.shape[1], -1)))
        return torch.stack([self._density(point.double().expand(1, self._rows)) for point in grid], dim=-1)

    def cdf(self, grid: Tensor) -> Tensor:  # (M,) -> (R, N, M)
        """P(x <= point) for each point of a grid."""
        if self.interval is None:
            ends = torch.stack([torch.full_like(grid, -torch.inf), grid]).to(self.shares[0])
            return self._mixed(lambda family, p: family.log_mass(p, *ends[:, None, None].expand(-1, 1, p.shape[1], -1)))
        return torch.stack([self._cdf(point.double().expand(1, self._rows)) for point in grid], dim=-1)

    def quantile(self, level: float) -> Tensor:  # (R, N)
        """Where the distribution function reaches `level`, by bisection; for whole numbers the first that does.

        By Chebyshev's inequality it is at most sqrt(1 / min(level, 1 - level)) standard deviations from the mean of one
        of the units; an interval that is given bounds it too.
        """
        _check_level(level)
        low, high = self._bracket(min(level, 1 - level))
        narrow = 0.0 if self.discrete else RESOLUTION
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            if self.discrete:
                middle = middle.floor()
            reached = self._cdf(middle) >= _rounded(level)
            low, high = torch.where(reached, low, middle), torch.where(reached, middle, high)
            if bool((high - low <= narrow * (1 + high.abs()) + float(self.discrete)).all()):
                break
        return high

    def mode(self) -> Tensor:  # (R, N)
        """A peak: the best of the units' modes, then the best point around it, closer and closer.

        The result is a local maximum at least as high as the density at every unit's mode.
        """
        peaks = torch.cat([f.mode(p).flatten(1) for f, p in zip(self.families, self.parameters, strict=True)], dim=1)
        best = self._inside(peaks[:, :1].expand(-1, self._rows))
        height = self._density(best)
        for peak in peaks.unbind(1):
            best, height = self._better(best, height, self._inside(peak.unsqueeze(1).expand(-1, self._rows)))
        width = self._widths()
        for _ in range(ZOOMS):
            start = best
            for step in torch.linspace(-1, 1, POINTS).tolist():
                best, height = self._better(best, height, self._inside(start + step * width))
            width = width / ((POINTS - 1) / 2)
        return best

    def _mixed(self, values: Callable[[Family, Tensor], Tensor]) -> Tensor:  # (R, N, M)
        """sum_u F_u exp(values of unit u at M points), given values (R, g, K, M) of the units of each family."""
        total = self.shares[0].new_zeros(())
        for family, parameters, share in zip(self.families, self.parameters, self.shares, strict=True):
            table = values(family, parameters).exp().flatten(1, 2)
            total = total + torch.matmul(share.flatten(1, 2).transpose(1, 2), table)
        return total

    @property
    def _rows(self) -> int:
        return int(self.shares[0].shape[-1])

    def _better(self, best: Tensor, height: Tensor, point: Tensor) -> tuple[Tensor, Tensor]:  # (R, N) each
        found = self._density(point)
        return torch.where(found > height, point, best), torch.maximum(found, height)

    def _inside(self, x: Tensor) -> Tensor:  # (R, N)
        """The nearest value that is allowed."""
        x = x.round() if self.discrete else x
        if self.interval is None:
            return x.clamp_min(0) if self.discrete else x
        low, high = self.interval
        if self.discrete:
            low, high = low.ceil().clamp_min(0), high.floor()
        return torch.minimum(torch.maximum(x, low), high)

    def _density(self, x: Tensor) -> Tensor:  # (R or 1, N) -> (R, N)
        total = x.new_zeros(self.shares[0].shape[0], self._rows)
        for family, parameters, share in zip(self.families, self.parameters, self.shares, strict=True):
            value = unit_log_prob(family, parameters, x.unsqueeze(1).expand(-1, parameters.shape[1], -1))
            total = total + (share * (value - self._log_mass(family, parameters)).exp()).sum((1, 2))
        if self.interval is not None:
            total = total * ((x >= self.interval[0]) & (x <= self.interval[1]))
        return total

    def _cdf(self, x: Tensor) -> Tensor:  # (R or 1, N) -> (R, N)
        low = torch.full_like(x, -torch.inf)
        if self.interval is not None:
            low, x = torch.maximum(low, self.interval[0]), torch.minimum(x, self.interval[1])
        total = x.new_zeros(self.shares[0].shape[0], self._rows)
        for family, parameters, share in zip(self.families, self.parameters, self.shares, strict=True):
            ends = (end.unsqueeze(1).expand(-1, parameters.shape[1], -1) for end in (low, x))
            mass = family.log_mass(parameters, *ends) - self._log_mass(family, parameters)
            total = total + (share * mass.exp()).sum((1, 2))
        return total

    def _log_mass(self, family: Family, parameters: Tensor) -> Tensor | float:  # (R, g, K, N)
        """log of each unit's mass in the interval; at least LOG_ZERO / 2, so that nothing is divided by zero."""
        if self.interval is None:
            return 0.0
        ends = (end.expand(1, parameters.shape[1], -1) for end in self.interval)
        return family.log_mass(parameters, *ends).clamp_min(LOG_ZERO / 2)

    def _units(self) -> tuple[Tensor, Tensor]:  # (R, units) each
        """Mean and standard deviation of all units."""
        pairs = list(zip(self.families, self.parameters, strict=True))
        means = torch.cat([f.mean(p).flatten(1) for f, p in pairs], dim=1)
        return means, torch.cat([f.variance(p).flatten(1) for f, p in pairs], dim=1).sqrt()

    def _widths(self) -> Tensor:  # (R, 1)
        return self._units()[1].amax(1, keepdim=True)

    def _bracket(self, tail: float) -> tuple[Tensor, Tensor]:  # (R, N) each
        mean, deviation = self._units()
        distance = (1 / tail) ** 0.5 * deviation + 1
        low, high = (mean - distance).amin(1), (mean + distance).amax(1)
        low, high = (end.unsqueeze(1).expand(-1, self._rows) for end in (low, high))
        if self.interval is not None:
            # an interval in a tail: what is left of a unit there is no wider than the unit
            first, last = self.interval
            reach = distance.amax(1, keepdim=True)
            low = torch.maximum(first, torch.minimum(low, last - reach))
            high = torch.minimum(last, torch.maximum(high, first + reach))
        if self.discrete:
            low, high = (low.clamp_min(0) - 1).ceil(), high.ceil()
        return low, high


Distribution: TypeAlias = StateDistribution | MixtureDistribution


def distribution(target: Target, column: int, given: Evidence) -> Distribution:
    """p(x_v | e) of one column for each row, from one pass up and one down."""
    known = given.observed[:, column] > 0
    if bool(known.any()):
        row = int(known.any(0).nonzero()[0])
        raise DataError(
            f"{target.label(column)}, row {row + 1}: its value is given; leave it out to ask for its distribution"
        )
    listed = target.states[column]
    if listed is not None:

        def states(part: Evidence) -> Tensor:
            found = posterior(target, part)
            require_possible(target, part, found.log_evidence)
            return state_probabilities(target, part, found, column)

        each = STATE_BYTES * (1 + target.runs * given.size)
        left = check_states(target, column, f"the distribution of {_rows(given.size)}", each)
        probability = chunked(target, given, states, budget=left).transpose(-1, -2)
        return StateDistribution(state_tensor(listed, probability), probability)
    places = target.places[column]

    def flows(part: Evidence) -> Tensor:  # (R, units, N)
        found = posterior(target, part)
        require_possible(target, part, found.log_evidence)
        return torch.cat([found.flows[p.number].index_select(1, p.groups).flatten(1, 2) for p in places], dim=1)

    shapes = [(len(place.groups), target.program.inputs[place.number].units) for place in places]
    parts = torch.split(chunked(target, given, flows), [g * k for g, k in shapes], 1)
    shaped = [part.reshape(len(part), g, k, -1) for part, (g, k) in zip(parts, shapes, strict=True)]
    return column_distribution(target, given, column, shaped)


def state_probabilities(target: Target, evidence: Evidence, found: Posterior, column: int) -> Tensor:  # (R, S, N)
    """p(x_v = s | e) of a column with finitely many states, float64; only of use where it is not observed.

    With a likelihood l_s it is sum_u F_u l_s f_u(s) / sum_s' l_s' f_u(s').
    """
    states = target.states[column]
    assert states is not None
    pieces = [part for _, part in state_weights(target, evidence, found, column, [slice(0, len(states))])]
    total = pieces[0].double() if len(pieces) == 1 else torch.cat(pieces, dim=1).double()
    return total.div_(total.sum(1, keepdim=True))


def state_weights(
    target: Target, evidence: Evidence, found: Posterior, column: int, chosen: Sequence[slice]
) -> Iterator[tuple[slice, Tensor]]:  # (R, s, N)
    """p(x_v = s | e) times the flow of the column, a piece of the chosen states, which are in order, at a time."""
    flows = [found.flows[place.number].index_select(1, place.groups).flatten(1, 2) for place in target.places[column]]
    soft = column in evidence.likelihoods or column in evidence.intervals
    masses = likely_masses(target, evidence, column) if soft else None
    pieces = (piece for part in chosen for piece in pieces_of_states(target, column, evidence.size, part))
    for piece in pieces:  # likelihoods of zero give weights of zero
        total: Tensor | float = 0.0
        weights = log_weights(target, evidence, column, piece) if soft else None
        for at, flow in enumerate(flows):  # (R, g K, N)
            logs = target.state_logs(column, at, piece)
            if masses is None or weights is None:
                table = logs.exp().unsqueeze(-1).to(flow.dtype).flatten(1, 2)
            else:
                table = state_shares(logs, weights, masses[at]).to(flow.dtype).flatten(1, 2)
            if table.shape[-1] == 1:
                total = total + torch.matmul(table[..., 0].transpose(-1, -2), flow)
            else:
                total = total + (table * flow.unsqueeze(2)).sum(1)
        assert isinstance(total, Tensor)
        yield piece, total


def column_distribution(target: Target, given: Evidence, column: int, flows: Sequence[Tensor]) -> MixtureDistribution:
    """The mixture of a column without finitely many states, given the flows (R, g, K, N) at each of its places."""
    places = target.places[column]
    check_masses(target, column)
    exact = [flow.double() for flow in flows]
    total = torch.stack([flow.sum((1, 2)) for flow in exact]).sum(0)[:, None, None]
    shares = tuple(flow / total for flow in exact)
    interval = given.intervals.get(column)
    ends = None if interval is None else [end.double().expand(given.size) for end in interval]
    return MixtureDistribution(
        families=tuple(place.family for place in places),
        parameters=tuple(target.parameters(place).double() for place in places),
        shares=shares,
        interval=None if ends is None else (ends[0], ends[1]),
        moments=_moments(target, given, places, shares),
    )


def _moments(
    target: Target, given: Evidence, places: Sequence[Place], shares: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:  # (R, N) each
    """Mean and variance of a mixture of units."""
    units = [unit_moments(target, given, place.number) for place in places]
    chosen = [[m.index_select(1, p.groups) for m in pair] for pair, p in zip(units, places, strict=True)]
    shift = chosen[0][0].mean((1, 2, 3), keepdim=True)  # (R, 1, 1, 1)
    mean = shift[:, 0, 0].expand(-1, given.size)
    for (m, _), share in zip(chosen, shares, strict=True):
        mean = mean + (share * (m - shift)).sum((1, 2))
    variance = torch.zeros_like(mean)
    for (m, v), share in zip(chosen, shares, strict=True):
        variance = variance + (share * (v + (m - mean[:, None, None]).square())).sum((1, 2))
    return mean, variance


def _rows(count: int) -> str:
    return "one row" if count == 1 else f"{count:,} rows"


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise OptionError(f"a quantile's level must be a number above 0 and below 1, not {level!r}")


def _rounded(level: float) -> float:
    """A level with room for the rounding of cumulative probabilities."""
    return level - LEVEL_ROUNDING * min(level, 1 - level)
