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
    presence,
    wrong_whole_value,
)
from circurve.inputs.family import LOG_ZERO, Family

__all__ = ["Binomial"]


@dataclass(frozen=True)
class Binomial(Family):
    """p(x) = C(n, x) p^x (1-p)^(n-x) for x in 0..n = trials; one parameter, the probability p of a success."""

    trials: int

    name: ClassVar[str] = "binomial"
    discrete: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "trials", check_whole("trials", self.trials, least=1))

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """The probability of a success."""
        return ("probability",)

    def check_values(self, column: np.ndarray) -> str | None:
        """Whole numbers up to `trials`."""
        return wrong_whole_value(column, self.trials)

    def check_parameters(self, parameters: Tensor) -> str | None:
        """Probabilities lie in [0, 1]."""
        inside = (parameters >= 0) & (parameters <= 1)
        return None if bool(inside.all()) else "a probability lies outside [0, 1]"

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
        log_ways = _log_factorial(torch.full_like(count, self.trials))
        log_ways = log_ways - _log_factorial(count) - _log_factorial(self.trials - count)
        slope, offset = log_success - log_failure, self.trials * log_failure  # (R, G, K)
        return cancelling_log_prob(count, log_ways, slope, offset).to(parameters.dtype)

    def features(self, x: Tensor, observed: Tensor | None) -> Tensor:
        """(1, x): how often the unit was used, and how many successes it saw."""
        present = presence(x, observed)
        return torch.stack([present, x * present], dim=-2)

    def maximize(self, parameters: Tensor, statistics: Tensor, pseudocount: Tensor, step: Tensor) -> Tensor:
        """p~ = (successes/n + pseudocount/2) / (uses + pseudocount), within [FLOOR, 1 - FLOOR]."""
        uses, successes = statistics[..., :1], statistics[..., 1:]  # (R, G, K, 1)
        best = (successes / self.trials + pseudocount / 2) / (uses + pseudocount)
        return blend(parameters, best.clamp(FLOOR, 1 - FLOOR), uses, step)

    def sample(self, parameters: Tensor, generator: torch.Generator) -> Tensor:
        """The successes of `trials` draws."""
        probability = parameters[..., 0]
        return torch.binomial(torch.full_like(probability, self.trials), probability, generator=generator)

    def mode(self, parameters: Tensor) -> Tensor:
        """(n + 1) p rounded down, at most n."""
        return ((self.trials + 1) * parameters[..., 0]).floor().clamp_max(self.trials)

    def mean(self, parameters: Tensor) -> Tensor:
        """The product n p."""
        return self.trials * parameters[..., 0]

    def support(self) -> tuple[int, ...]:
        """0 to `trials`."""
        return tuple(range(self.trials + 1))


def _log_factorial(count: Tensor) -> Tensor:
    return torch.lgamma(count + 1)
