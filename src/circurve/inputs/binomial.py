"""Binomial inputs: a column of successes among a fixed number of trials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from circurve.inputs.common import (
    FLOOR,
    blend,
    cancelling_log_prob,
    check_whole,
    from_logit,
    to_logit,
    use_and_total,
    wrong_probability,
    wrong_whole_value,
)
from circurve.inputs.family import LOG_ZERO, Family
from circurve.inputs.one_peak import Inside, draws_inside, sums_inside

__all__ = ["Binomial"]


@dataclass(frozen=True)
class Binomial(Family):
    """A column of successes out of n trials: p(x) = C(n, x) p^x (1-p)^(n-x), one parameter p.

    Parameters
    ----------
    trials : int
        n, the largest value of the column.

    Examples
    --------
    >>> import circurve as cc
    >>> heads = cc.Input(0, cc.Binomial(trials=4))
    >>> model = cc.Model.from_parameters(cc.Circuit(heads), inputs={heads: [[0.5]]})
    >>> model.marginal({0: 2})
    0.375
    """

    trials: int

    name: ClassVar[str] = "binomial"
    discrete: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "trials", check_whole("trials", self.trials, least=1))

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return ("probability",)

    def check_values(self, column: np.ndarray) -> str | None:
        return wrong_whole_value(column, self.trials)

    def check_parameters(self, parameters: Tensor) -> str | None:
        return wrong_probability(parameters)

    def to_free(self, parameters: Tensor) -> Tensor:
        """The logit of p."""
        return to_logit(parameters)

    def from_free(self, free: Tensor) -> Tensor:
        return from_logit(free)

    def initialize(self, column: np.ndarray, units: int, generator: torch.Generator) -> Tensor:
        """The column's share of successes, mixed half and half with a uniform draw for each unit."""
        mean = float(column.mean(dtype=np.float64)) / self.trials if column.size else 0.5
        draw = torch.rand(units, 1, generator=generator, dtype=torch.float64)
        return (0.5 * mean + 0.5 * draw).clamp_(FLOOR, 1 - FLOOR)

    def log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        """log C(n, x) + x (log p - log(1-p)) + n log(1-p)."""
        probability, count = parameters[..., 0].double(), x.double()
        log_success = probability.log().clamp_min_(LOG_ZERO)
        log_failure = (-probability).log1p_().clamp_min_(LOG_ZERO)
        log_ways = torch.lgamma(count.new_full((), self.trials + 1))
        log_ways = log_ways - torch.lgamma(count + 1) - torch.lgamma(self.trials - count + 1)
        slope, offset = log_success - log_failure, self.trials * log_failure  # (R, G, K)
        return cancelling_log_prob(count, log_ways, slope, offset).to(parameters.dtype)

    def features(self, x: Tensor, observed: Tensor | None) -> Tensor:
        return use_and_total(x, observed)

    def maximize(self, parameters: Tensor, statistics: Tensor, pseudocount: Tensor, step: Tensor) -> Tensor:
        """p~ = (successes/n + pseudocount/2) / (uses + pseudocount), within [FLOOR, 1 - FLOOR]."""
        uses, successes = statistics[..., :1], statistics[..., 1:]  # (R, G, K, 1)
        best = (successes / self.trials + pseudocount / 2) / (uses + pseudocount)
        return blend(parameters, best.clamp(FLOOR, 1 - FLOOR), uses, step)

    def sample(self, parameters: Tensor, generator: torch.Generator) -> Tensor:
        probability = parameters[..., 0]
        return torch.binomial(torch.full_like(probability, self.trials), probability, generator=generator)

    def mode(self, parameters: Tensor) -> Tensor:
        """(n + 1) p rounded down, at most n."""
        return ((self.trials + 1) * parameters[..., 0]).floor().clamp_max(self.trials)

    def mean(self, parameters: Tensor) -> Tensor:
        return self.trials * parameters[..., 0]

    def variance(self, parameters: Tensor) -> Tensor:
        """n p (1-p)."""
        return self.trials * parameters[..., 0] * (1 - parameters[..., 0])

    def log_mass(self, parameters: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """Added up from the peak inside the interval to both sides, in float64."""
        possible, inside = self._inside(parameters, low, high)
        return torch.where(possible, inside.log_mass.reshape(possible.shape), LOG_ZERO).to(parameters.dtype)

    def interval_moments(self, parameters: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        possible, inside = self._inside(parameters, low, high)
        mean, variance = (part.reshape(possible.shape) for part in (inside.mean, inside.variance))
        return torch.where(possible, mean, 0.0), torch.where(possible, variance, 0.0)

    def draw_inside(self, parameters: Tensor, low: Tensor, high: Tensor, level: Tensor) -> Tensor:
        """The value at which the mass from `low` on is `level` of that of the interval; parameters (B, 1), all others
        (B,)."""
        first, last = low.ceil().clamp(0, self.trials), high.floor().clamp(0, self.trials)
        return draws_inside(self, self.trials, parameters.double(), (first, torch.maximum(first, last)), level)

    def _inside(self, parameters: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Inside]:
        """Whether each interval holds a value, (R, G, K, N), and the sums of all units inside, flat."""
        ends = low.double().ceil().clamp_min(0), high.double().floor().clamp_max(self.trials)
        shape = (*parameters.shape[:-1], max(end.shape[-1] for end in ends))
        first, last = (end.unsqueeze(-2).expand(shape).reshape(-1) for end in ends)
        flat = parameters.double().unsqueeze(-2).expand(*shape, 1).reshape(-1, 1)
        possible = first <= last
        inside = sums_inside(self, self.trials, flat, torch.where(possible, first, 0.0), torch.where(possible, last, 0))
        return possible.reshape(shape), inside

    def support(self) -> range:
        return range(self.trials + 1)
