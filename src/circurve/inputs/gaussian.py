"""Gaussian inputs: a column of real numbers."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from circurve.errors import OptionError
from circurve.inputs.common import draw_rows, presence
from circurve.inputs.family import LOG_ZERO, Family

__all__ = ["Gaussian"]

LARGEST = 1e18
"""Values and means stay within +-LARGEST, so that squares of differences are finite in float32."""

SMALLEST_VARIANCE, LARGEST_VARIANCE = 1e-30, 1e30
"""The range of variances: far from the ends of float32."""

NEAREST = 1e-6
"""How close to `min_variance`, as a share of it, a variance may be for gradient descent: log 0 has no derivative."""


@dataclass(frozen=True)
class Gaussian(Family):
    """A column of real numbers: p(x) = exp(-(x - m)^2 / (2 v)) / sqrt(2 pi v), parameters mean m and variance v.

    Parameters
    ----------
    min_variance : float, default 1e-4
        The smallest variance that an M-step returns. Without one, a unit that fits a single value drives the
        likelihood to infinity. The default, a standard deviation of 0.01, suits columns with a spread of about 1; for
        a column with standard deviation s take 1e-4 s^2, as `infer_families` and `infer_schema` do. Inputs that
        differ in `min_variance` only share a layer of the engine.

    Examples
    --------
    >>> import circurve as cc
    >>> height = cc.Input(0, cc.Gaussian())
    >>> model = cc.Model.from_parameters(cc.Circuit(height), inputs={height: [[170.0, 64.0]]})
    >>> round(model.interval({0: (162, 178)}), 3)
    0.683
    """

    min_variance: float = 1e-4

    name: ClassVar[str] = "gaussian"
    discrete: ClassVar[bool] = False

    def __post_init__(self) -> None:
        value: object = self.min_variance
        number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
        if not number or not SMALLEST_VARIANCE <= self.min_variance <= LARGEST_VARIANCE:
            raise OptionError(
                f"min_variance must be a number from {SMALLEST_VARIANCE:g} to {LARGEST_VARIANCE:g}, not {value!r}"
            )
        object.__setattr__(self, "min_variance", float(self.min_variance))

    @property
    def layer_key(self) -> Hashable:
        return Gaussian

    def merged(self, families: Sequence[Family]) -> Family:
        floors = tuple(cast("Gaussian", family).min_variance for family in families)
        return self if set(floors) == {self.min_variance} else GaussianLayer(min(floors), floors)

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return ("mean", "variance")

    def check_values(self, column: np.ndarray) -> str | None:
        """Finite numbers of a size whose square float32 can hold."""
        wrong = column[~(np.abs(column) <= LARGEST)]
        return f"{wrong[0]:g} is not a number between -{LARGEST:g} and {LARGEST:g}" if wrong.size else None

    def check_parameters(self, parameters: Tensor) -> str | None:
        """Means within +-LARGEST, variances positive and finite."""
        mean, variance = parameters[..., 0], parameters[..., 1]
        if not bool((mean.abs() <= LARGEST).all()):
            return f"a mean is not between -{LARGEST:g} and {LARGEST:g}"
        positive = (variance >= SMALLEST_VARIANCE) & variance.isfinite()
        return None if bool(positive.all()) else f"a variance is not finite or below {SMALLEST_VARIANCE:g}"

    def to_free(self, parameters: Tensor) -> Tensor:
        """The mean, and the logarithm of the distance of the variance from `min_variance`, at least NEAREST times
        it."""
        mean, variance = parameters.unbind(-1)
        above = (variance - self.min_variance).clamp_min(NEAREST * self.min_variance)
        return torch.stack([mean, above.log()], dim=-1)

    def from_free(self, free: Tensor) -> Tensor:
        """v = min_variance + exp(free), so that no unit drives the likelihood to infinity; within the bounds."""
        mean, log_above = free.unbind(-1)
        variance = self.min_variance + log_above.clamp_max(math.log(LARGEST_VARIANCE)).exp()
        return torch.stack([mean.clamp(-LARGEST, LARGEST), variance], dim=-1)

    def initialize(self, column: np.ndarray, units: int, generator: torch.Generator) -> Tensor:
        """Means: values of distinct rows, jittered by a tenth of the spread; variance: that of the column.

        An empty column counts as standard normal.
        """
        jitter = torch.randn(units, generator=generator, dtype=torch.float64)
        if not column.size:
            return torch.stack([jitter, torch.full_like(jitter, max(1.0, self.min_variance))], dim=-1)
        variance = max(float(column.var(dtype=np.float64)), self.min_variance)
        mean = draw_rows(column, units, generator) + 0.1 * math.sqrt(variance) * jitter
        return torch.stack([mean.clamp_(-LARGEST, LARGEST), torch.full_like(mean, variance)], dim=-1)

    def log_prob(self, parameters: Tensor, x: Tensor) -> Tensor:
        return self._log_prob(parameters, x, None)

    def log_prob_into(self, parameters: Tensor, x: Tensor, out: Tensor) -> Tensor:
        return self._log_prob(parameters, x, out)

    def _log_prob(self, parameters: Tensor, x: Tensor, out: Tensor | None) -> Tensor:
        """-z^2/2 - log(2 pi v)/2 with z = (x - m)/sqrt(v): centred first, so nothing cancels far from zero."""
        mean, variance = parameters[..., 0].unsqueeze(-1), parameters[..., 1].unsqueeze(-1)  # (R, G, K, 1)
        log_height = -0.5 * (variance.log() + math.log(2 * math.pi))
        centred = torch.sub(x.unsqueeze(-2), mean, out=out)
        standard = torch.mul(centred, variance.rsqrt(), out=out)
        return torch.addcmul(log_height, standard, standard, value=-0.5, out=out).clamp_min_(LOG_ZERO)

    def features(self, x: Tensor, observed: Tensor | None) -> Tensor:
        """(1, x, x^2) in float64: the variance found from their sums is off by about 1e-16 (m^2/v) of itself."""
        value = x.double()
        present = presence(value, observed)
        return torch.stack([present, value * present, value.square() * present], dim=-2)

    def maximize(self, parameters: Tensor, statistics: Tensor, pseudocount: Tensor, step: Tensor) -> Tensor:
        """Mix the unit's distribution with that of its data, share a of them, and take the mixture's moments.

        m~ and v~ are the moments of the data, and a = step uses / (uses + pseudocount): the pseudocount acts as
        that many observations of the unit's current distribution. With d = m~ - m,

            m' = m + a d,    v' = (1-a) v + a v~ + a (1-a) d^2,

        which is v' = (1-a)(v + (m-m')^2) + a (v~ + (m~-m')^2); never below min_variance.
        """
        uses, total, squares = statistics.double().unbind(-1)  # (R, G, K) each
        mean, variance = parameters.double().unbind(-1)
        data_mean = total / uses
        data_variance = (squares / uses - data_mean.square()).clamp_min(0)
        share = (step.double()[..., 0] * uses) / (uses + pseudocount.double()[..., 0])
        distance = data_mean - mean
        mixed = (1 - share) * variance + share * data_variance + share * (1 - share) * distance.square()
        moved = torch.stack([mean + share * distance, self._raised(mixed)], dim=-1)
        return torch.where(share.unsqueeze(-1) > 0, moved.to(parameters.dtype), parameters)

    def _raised(self, variance: Tensor) -> Tensor:  # (R, G, K)
        return variance.clamp_min(self.min_variance)

    def sample(self, parameters: Tensor, generator: torch.Generator) -> Tensor:
        """m + sqrt(v) times a standard normal draw."""
        mean, variance = parameters[..., 0], parameters[..., 1]
        return mean + variance.sqrt() * torch.empty_like(mean).normal_(generator=generator)

    def mode(self, parameters: Tensor) -> Tensor:
        return parameters[..., 0]

    def mean(self, parameters: Tensor) -> Tensor:
        return parameters[..., 0]

    def variance(self, parameters: Tensor) -> Tensor:
        return parameters[..., 1]

    def log_mass(self, parameters: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """log(Phi(b) - Phi(a)) = log Phi(b) + log(1 - exp(log Phi(a) - log Phi(b))), in float64.

        a and b are the standardised ends. Where a > -b both change sign and places, so that the tail with less mass is
        the one that is subtracted from.
        """
        mean, deviation = parameters[..., :1].double(), parameters[..., 1:].double().sqrt()  # (R, G, K, 1)
        a, b = ((end.unsqueeze(-2).double() - mean) / deviation for end in (low, high))  # (R, G, K, N)
        upper = a > -b
        a, b = torch.where(upper, -b, a), torch.where(upper, -a, b)
        log_below = torch.special.log_ndtr(b)
        gap = torch.special.log_ndtr(a) - log_below
        log_mass = torch.where(a < b, log_below + (-torch.expm1(gap)).log(), LOG_ZERO)
        return log_mass.nan_to_num(nan=LOG_ZERO).clamp_min(LOG_ZERO).to(parameters.dtype)

    def interval_moments(self, parameters: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """m + s d and v (1 + a h(a) - b h(b) - d^2), with h = phi / mass at the standardised ends, d = h(a) - h(b).

        Far in a tail the differences lose digits; mean and variance stay between the ends.
        """
        exact = parameters.double()
        mean, variance = exact[..., :1], exact[..., 1:]  # (R, G, K, 1)
        low, high = low.double(), high.double()
        log_mass = self.log_mass(exact, low, high)
        ends = [(end.unsqueeze(-2) - mean) / variance.sqrt() for end in (low, high)]
        heights = [(-0.5 * end.square() - 0.5 * math.log(2 * math.pi) - log_mass).clamp_max(300).exp() for end in ends]
        slopes = [torch.where(end.isinf(), 0.0, end * height) for end, height in zip(ends, heights, strict=True)]
        shift = heights[0] - heights[1]
        inside = mean + variance.sqrt() * shift
        inside = torch.minimum(torch.maximum(inside, low.unsqueeze(-2)), high.unsqueeze(-2))
        widest = torch.minimum(variance, ((high - low) / 2).square().unsqueeze(-2))
        spread = variance * (1 + slopes[0] - slopes[1] - shift.square())
        return inside, torch.minimum(spread.clamp_min(0), widest)


@dataclass(frozen=True)
class GaussianLayer(Gaussian):
    """The Gaussians of a layer, which differ in their smallest variance; made by `Gaussian.merged`."""

    floors: tuple[float, ...] = field(default=(), repr=False)  # of each of the G inputs
    _columns: dict[torch.device, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The floors on each device in use, (G, 1) float64: a recorded CUDA step cannot copy from the host."""

    def _raised(self, variance: Tensor) -> Tensor:  # (R, G, K)
        if variance.device not in self._columns:
            column = torch.tensor(self.floors, dtype=torch.float64, device=variance.device).unsqueeze(-1)
            self._columns[variance.device] = column
        return variance.maximum(self._columns[variance.device])

    def __reduce__(self) -> tuple[type[GaussianLayer], tuple[float, tuple[float, ...]]]:
        return GaussianLayer, (self.min_variance, self.floors)
