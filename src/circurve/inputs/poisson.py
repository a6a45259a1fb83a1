"""Poisson inputs: a column of counts without an upper end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from circurve.inputs.common import (
    LARGEST_WHOLE,
    blend,
    cancelling_log_prob,
    draw_rows,
    use_and_total,
    wrong_whole_value,
)
from circurve.inputs.family import LOG_ZERO, Family

__all__ = ["Poisson"]

RATE_FLOOR = 1e-6
"""The M-step aims at rates >= RATE_FLOOR: a unit that saw only zeros still allows a one."""

SMALL_MASS = 1e-12
"""Intervals of less mass are added up term by term: a difference of two gamma functions has lost too many digits."""

TAIL_TERMS = 256
"""Terms of such a sum. An interval of less mass than SMALL_MASS is at least 7 standard deviations from the rate, or
is narrow; for rates up to 1000 each term is then at most 0.82 of the one before: what is left out is below 1e-20."""
LARGEST_LOG_RATE = 60.0
"""Gradient descent keeps the rate between exp(-60) and exp(60), well within float32."""


@dataclass(frozen=True)
class Poisson(Family):
    """A column of counts: p(x) = rate^x exp(-rate) / x! for x = 0, 1, 2, ...; one parameter, the rate.

    Examples
    --------
    >>> import circurve as cc
    >>> orders = cc.Input(0, cc.Poisson())
    >>> model = cc.Model.from_parameters(cc.Circuit(orders), inputs={orders: [[2.0]]})
    >>> round(model.marginal({0: 0}), 3)
    0.135
    """

    name: ClassVar[str] = "poisson"
    discrete: ClassVar[bool] = True

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return ("rate",)

    def check_values(self, column: np.ndarray) -> str | None:
        """Whole numbers that float32 holds exactly."""
        return wrong_whole_value(column)

    def check_parameters(self, parameters: Tensor) -> str | None:
        positive = (parameters > 0) & parameters.isfinite()
        return None if bool(positive.all()) else "a rate is not positive and finite"

    def to_free(self, parameters: Tensor) -> Tensor:
        """The logarithm of the rate."""
        return parameters.log()

    def from_free(self, free: Tensor) -> Tensor:
        return free.clamp(-LARGEST_LOG_RATE, LARGEST_LOG_RATE).exp()

    def initialize(self, column: np.ndarray, units: int, generator: torch.Generator) -> Tensor:
        """Half the column's mean and half the value of a random row, times a uniform draw from [0.5, 1.5].

        An empty column counts as having mean 1.
        """
        values = column if column.size else np.ones(1)
        centre = 0.5 * float(values.mean(dtype=np.float64)) + 0.5 * draw_rows(values, units, generator)
        draw = torch.rand(units, generator=generator, dtype=torch.float64)
        return (centre * (0.5 + draw)).clamp_min_(RATE_FLOOR).unsqueeze(-1)

    def log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        """-log x! + x log(rate) - rate."""
        rate, count = parameters[..., 0].double(), x.double()
        log_rate = rate.log().clamp_min_(LOG_ZERO)
        return cancelling_log_prob(count, -torch.lgamma(count + 1), log_rate, -rate).to(parameters.dtype)

    def features(self, x: Tensor, observed: Tensor | None) -> Tensor:
        return use_and_total(x, observed)

    def maximize(self, parameters: Tensor, statistics: Tensor, pseudocount: Tensor, step: Tensor) -> Tensor:
        """rate~ = (total + pseudocount rate) / (uses + pseudocount), at least RATE_FLOOR.

        The pseudocount acts as that many observations of the unit's current distribution.
        """
        uses, total = statistics[..., :1], statistics[..., 1:]  # (R, G, K, 1)
        weight = uses + pseudocount
        best = total / weight + pseudocount / weight * parameters  # a share of the rate: no product can overflow
        return blend(parameters, best.clamp_min(RATE_FLOOR), uses, step)

    def sample(self, parameters: Tensor, generator: torch.Generator) -> Tensor:
        return torch.poisson(parameters[..., 0], generator=generator)

    def mode(self, parameters: Tensor) -> Tensor:
        """The rate rounded down."""
        return parameters[..., 0].floor()

    def mean(self, parameters: Tensor) -> Tensor:
        return parameters[..., 0]

    def variance(self, parameters: Tensor) -> Tensor:
        return parameters[..., 0]

    def log_mass(self, parameters: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """A difference of regularised incomplete gamma functions, in float64: P(x <= h) = Q(h + 1, rate).

        The difference is taken in the tail that contains the interval. Where it is too small for that, the
        probabilities are added up from the end next to the rate, each from the one before.
        """
        rate = parameters[..., :1].double()  # (R, G, K, 1)
        first = low.double().ceil().clamp_min(0).unsqueeze(-2)
        last = high.double().floor().unsqueeze(-2)  # (R or 1, G, 1, N)
        beyond = (last + 1).clamp_min(0)
        below = torch.special.gammaincc(beyond, rate) - torch.special.gammaincc(first, rate)
        above = torch.special.gammainc(first, rate) - torch.special.gammainc(beyond, rate)
        mass = torch.where(first > rate, above, below)
        small = (mass <= SMALL_MASS) & (first <= last)
        log_mass = torch.where(mass > SMALL_MASS, mass, 1.0).log()
        if bool(small.any()):
            log_mass[small] = _tail(*(part.expand_as(mass)[small] for part in (rate, first, last)))
        return torch.where(first <= last, log_mass, LOG_ZERO).clamp_min(LOG_ZERO).to(parameters.dtype)

    def interval_moments(self, parameters: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """From E[x; a..b] = rate P(a-1..b-1) and E[x (x-1); a..b] = rate^2 P(a-2..b-2)."""
        exact, low, high = parameters.double(), low.double().ceil().clamp_min(0), high.double().floor()
        rate, log_mass = exact[..., :1], self.log_mass(exact, low, high)
        first, second = ((self.log_mass(exact, low - n, high - n) - log_mass).exp() for n in (1, 2))
        mean = rate * first
        possible = log_mass > LOG_ZERO / 2
        spread = (rate.square() * second + mean - mean.square()).clamp_min(0)
        return torch.where(possible, mean, rate), torch.where(possible, spread, rate)


def _tail(rate: Tensor, first: Tensor, last: Tensor) -> Tensor:  # (P,) each -> (P,)
    """log of the sum of p(x) from first to last, both on one side of the rate: a few terms from the nearer end."""
    upper = first > rate
    start = torch.where(upper, first, last.clamp_max(LARGEST_WHOLE)).clamp_min(0)
    log_start = start * rate.log() - rate - torch.lgamma(start + 1)
    total, term = torch.ones_like(log_start), torch.ones_like(log_start)
    for step in range(TAIL_TERMS):
        ratio = torch.where(upper, rate / (start + step + 1), (start - step).clamp_min(0) / rate)
        inside = torch.where(upper, start + step + 1 <= last, start - step - 1 >= first)
        term = term * ratio.clamp_max(1.0) * inside
        total = total + term
    return log_start + total.log()
