"""Binomial probabilities from their peak on: they rise up to it and fall after it.

From the peak s of an interval on, each probability follows from the one before it,

    p(x + 1) = p(x) (n - x) p / ((x + 1) (1 - p)),

so that the mass and the moments of an interval need only the values next to s, however many trials there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from circurve.inputs.family import LOG_ZERO, Family

__all__ = ["Inside", "bounds_above", "draws_inside", "log_prob_of", "sums_inside"]

DROP = 50.0
"""Values are added up to where log p is this much lower than at the peak. log p is concave: the values beyond have
about exp(-DROP) of the mass."""

MARGIN = 8
"""How many more values are added up on each side, for the variance of units that have nearly all mass in one value."""

TERMS_AT_ONCE = 1 << 20
"""Values of all units that are held at once."""

HALVINGS = 25
"""Halvings of a distance of up to 2^24."""


@dataclass(frozen=True)
class Inside:
    """B units, each restricted to an interval of its own."""

    log_mass: Tensor  # (B,) float64
    mean: Tensor  # (B,) float64
    variance: Tensor  # (B,) float64


def log_prob_of(family: Family, parameters: Tensor, x: Tensor) -> Tensor:  # (B, P), (B,) -> (B,)
    """log p_b(x_b) of B units."""
    return family.log_prob(parameters[None, :, None], x[None, :, None])[0, :, 0, 0]


def bounds_above(
    family: Family, parameters: Tensor, peak: Tensor, ends: tuple[Tensor, Tensor], least: Tensor
) -> tuple[Tensor, Tensor]:  # (B,) each
    """The first and the last value between two ends around the peak that have log p >= least; at least the peak itself.

    parameters: (B, P) of units that fall on both sides of their peak; all others (B,).
    """
    first, last = (_furthest(family, parameters, peak, end, least) for end in ends)
    return first, last


def _furthest(family: Family, parameters: Tensor, peak: Tensor, end: Tensor, least: Tensor) -> Tensor:  # (B,)
    """The value furthest from the peak towards one end that has log p >= least, by bisection of its distance."""
    sign, distance = (end - peak).sign(), (end - peak).abs()
    near, beyond = torch.zeros_like(peak), distance + 1
    for _ in range(HALVINGS):
        middle = ((near + beyond) / 2).floor()
        reached = log_prob_of(family, parameters, peak + sign * middle.minimum(distance)) >= least
        reached &= middle <= distance
        near, beyond = torch.where(reached, middle, near), torch.where(reached, beyond, middle)
    return peak + sign * near


@dataclass(frozen=True)
class Window:
    """The values of B units that count: `below` values before the peak of an interval, and `above` after it."""

    peak: Tensor  # (B,) float64
    below: Tensor  # (B,) float64
    above: Tensor  # (B,) float64
    log_top: Tensor  # log p of the peak, (B,) float64


def sums_inside(family: Family, trials: int, parameters: Tensor, low: Tensor, high: Tensor) -> Inside:
    """Mass, mean and variance of binomial units between low and high, whole numbers from 0 to `trials`.

    parameters: (B, 1) float64; low <= high: (B,) float64. Costs the values that count, up to 20 standard deviations.
    """
    window = _window(family, parameters, low, high)
    found = []
    for rows in _parts(window):
        sums = []
        for share in _shares(window, trials, parameters, rows):  # (b, J)
            step = torch.arange(1, share.shape[1] + 1, dtype=share.dtype, device=share.device)
            sums.append((share @ torch.stack([torch.ones_like(step), step, step.square()], dim=1)).T)
        found.append(torch.stack(sums))
    left, right = torch.cat(found, dim=-1)  # (3, B) each: sums of the shares, times distance, times squared distance
    mass = 1 + right[0] + left[0]
    mean = (right[1] - left[1]) / mass
    variance = ((right[2] + left[2]) / mass - mean.square()).clamp_min(0)
    return Inside((window.log_top + mass.log()).clamp(LOG_ZERO, 0.0), window.peak + mean, variance)


def draws_inside(
    family: Family, trials: int, parameters: Tensor, ends: tuple[Tensor, Tensor], level: Tensor
) -> Tensor:  # (B,)
    """The first value at which the mass from the lower end on is more than `level` of that of the interval.

    parameters: (B, 1) float64; level: (B,) in [0, 1); the ends as in `sums_inside`.
    """
    window = _window(family, parameters, *ends)
    found = []
    for rows in _parts(window):
        left, right = _shares(window, trials, parameters, rows)
        one = left.new_ones(len(left), 1)
        sums = torch.cat([left.flip(1), one, right], dim=1).cumsum(1)
        passed = (sums <= level[rows, None] * sums[:, -1:]).sum(1)
        drawn = (window.peak[rows] - left.shape[1] + passed).minimum(window.peak[rows] + window.above[rows])
        found.append(drawn.maximum(window.peak[rows] - window.below[rows]))
    return torch.cat(found)


def _window(family: Family, parameters: Tensor, low: Tensor, high: Tensor) -> Window:
    peak = torch.minimum(torch.maximum(family.mode(parameters), low), high)
    log_top = log_prob_of(family, parameters, peak)
    first, last = bounds_above(family, parameters, peak, (low, high), log_top - DROP)
    possible = log_top > LOG_ZERO / 2
    below = torch.where(possible, torch.minimum(peak - first + MARGIN, peak - low), 0.0)
    above = torch.where(possible, torch.minimum(last - peak + MARGIN, high - peak), 0.0)
    return Window(peak, below, above, log_top)


def _parts(window: Window) -> Iterator[slice]:
    """Units in parts, so that a table of the values that count has about TERMS_AT_ONCE entries."""
    units = len(window.peak)
    size = max(1, TERMS_AT_ONCE // (1 + int(torch.maximum(window.below, window.above).max()))) if units else 1
    yield from (slice(start, start + size) for start in range(0, max(1, units), size))


def _shares(window: Window, trials: int, parameters: Tensor, rows: slice) -> tuple[Tensor, Tensor]:  # (b, J), (b, J')
    """p(s - j) / p(s) and p(s + j) / p(s) with the peak s, for j = 1, 2, ..., and 0 outside of the window.

    Downwards, successes and failures change places.
    """
    successes, p = window.peak[rows, None], parameters[rows]  # (b, 1)
    failures, q = trials - successes, 1 - p
    below, above = window.below[rows, None], window.above[rows, None]
    return _ratios(successes, failures, below, q / p), _ratios(failures, successes, above, p / q)


def _ratios(left: Tensor, done: Tensor, count: Tensor, odds: Tensor) -> Tensor:  # (b, 1) each -> (b, J)
    """r_j = r_(j-1) odds (left - j + 1) / (done + j) with r_0 = 1, up to the count of each unit."""
    longest = int(count.max()) if len(count) else 0
    step = torch.arange(1, longest + 1, dtype=count.dtype, device=count.device)  # (J,)
    ratio = (left - step + 1) / (done + step) * odds
    return torch.where(step <= count, ratio, 0.0).cumprod(1)
