"""What several families share: checks of whole numbers, drawn rows, the blend of an M-step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from circurve.bounds import shortened
from circurve.errors import OptionError
from circurve.inputs.family import LOG_ZERO, Family, same_values
from circurve.inputs.floors import FLOOR

__all__ = [
    "FLOOR",
    "LARGEST_WHOLE",
    "SMALLEST_FREE",
    "blend",
    "cancelling_log_prob",
    "check_whole",
    "distinct_rows",
    "draw_rows",
    "from_logit",
    "presence",
    "support_log_mass",
    "tensor_of",
    "to_logit",
    "use_and_total",
    "wrong_probability",
    "wrong_whole_value",
]

SMALLEST_FREE = {torch.float32: 1e-30, torch.float64: 1e-290}
"""The smallest probability of parameters without bounds: the derivative of its logarithm, 1e30 (1e290), is finite when
it is summed over a hundred million rows."""

LARGEST_WHOLE = 2**24
"""Up to here float32 holds every whole number exactly; columns and hyperparameters stay below."""


def check_whole(option: str, value: object, least: int) -> int:
    """Return `value` as an int if it is a whole number in least..LARGEST_WHOLE; else raise OptionError."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and least <= value <= LARGEST_WHOLE:
        return int(value)
    raise OptionError(f"{option} must be a whole number from {least} to {LARGEST_WHOLE}, not {shortened(value)}")


def wrong_whole_value(column: np.ndarray, largest: int = LARGEST_WHOLE) -> str | None:
    """Say which value of a column is not a whole number in 0..largest, or None."""
    wrong = column[~((column >= 0) & (column <= largest) & (np.floor(column) == column))]
    return f"{wrong[0]:.10g} is not a whole number from 0 to {largest}" if wrong.size else None


def wrong_probability(parameters: Tensor) -> str | None:
    """Say that a probability is none, or None."""
    inside = (parameters >= 0) & (parameters <= 1)
    return None if bool(inside.all()) else "a probability is not between 0 and 1"


def to_logit(probability: Tensor) -> Tensor:
    """log p - log(1 - p), with p moved away from 0 and 1 by rounding."""
    inside = _inside(probability)
    return inside.log() - (-inside).log1p()


def from_logit(logit: Tensor) -> Tensor:
    """p = 1 / (1 + exp(-logit)), never 0 or 1: their logarithms would have no derivative."""
    return _inside(torch.sigmoid(logit))


def _inside(probability: Tensor) -> Tensor:
    return probability.clamp(SMALLEST_FREE[probability.dtype], 1 - torch.finfo(probability.dtype).eps / 2)


def distinct_rows(
    count: int, units: int, generator: torch.Generator, weights: Tensor | None = None
) -> Tensor:  # (N,) -> (K,)
    """The numbers of `units` distinct rows; rows repeat only when there are fewer than units.

    weights: (N,), above 0; each row is drawn in proportion to its weight among those that are left.
    """
    rounds = -(-units // count)
    return torch.cat([_random_order(count, generator, weights) for _ in range(rounds)])[:units]


def _random_order(count: int, generator: torch.Generator, weights: Tensor | None) -> Tensor:  # (N,) -> (N,)
    """With weights w: of independent exponential times with rates w_n, the first is that of row n with probability
    w_n / sum w, and so on for those that are left (Efraimidis and Spirakis, 2006)."""
    if weights is None:
        return torch.randperm(count, generator=generator)
    uniform = torch.rand(count, generator=generator, dtype=torch.float64)
    return (-torch.log1p(-uniform) / weights).argsort()


def draw_rows(column: np.ndarray, units: int, generator: torch.Generator) -> Tensor:  # -> (K,) float64
    """`units` values of a non-empty column, from distinct rows."""
    rows = distinct_rows(column.size, units, generator)
    return torch.from_numpy(column[rows.numpy()].astype(np.float64))


def presence(x: Tensor, observed: Tensor | None) -> Tensor:  # (R or 1, G, N), in the dtype of x
    """1 where a value is observed, 0 where it is missing."""
    return torch.ones_like(x) if observed is None else observed.to(x.dtype)


def use_and_total(x: Tensor, observed: Tensor | None) -> Tensor:  # (R or 1, G, 2, N)
    """The features (1, x): how often a unit was used, and the total of what it saw."""
    present = presence(x, observed)
    return torch.stack([present, x * present], dim=-2)


def cancelling_log_prob(x: Tensor, base: Tensor, slope: Tensor, offset: Tensor) -> Tensor:
    """log p_k(x_n) = base_n + slope_k x_n + offset_k, summed in float64.

    For large counts the three terms are thousands of times their sum, which float32 would not survive.
    x, base: (R or 1, G, N) float64; slope, offset: (R, G, K) float64; returns (R, G, K, N) float64.
    """
    total = torch.addcmul(base.unsqueeze(-2), x.unsqueeze(-2), slope.unsqueeze(-1))  # (R, G, K, N)
    return total.add_(offset.unsqueeze(-1)).clamp_min_(LOG_ZERO)


def tensor_of(values: Sequence[int], like: Tensor) -> Tensor:  # (len(values),)
    """The values with the type and device of `like`, made there: a recorded CUDA step cannot copy from the host."""
    if same_values(values, range(len(values))):
        return torch.arange(len(values), dtype=like.dtype, device=like.device)
    return torch.stack([like.new_full((), value) for value in values])


def support_log_mass(family: Family, parameters: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """log P_k(low_n <= x <= high_n) of a family with finite support, (R, G, K, N).

    The difference of two cumulative sums, in logs and float64, from the end of the support where they are smaller.
    parameters: (R, G, K, P); low, high: (R or 1, G, N).
    """
    support = family.support()
    assert support is not None
    states = tensor_of(support, parameters.double())
    logs = family.log_prob(parameters.double(), states.expand(1, parameters.shape[1], -1))  # (R, G, K, S)
    closed = torch.nn.functional.pad(logs, (1, 1), value=LOG_ZERO)
    below, above = closed.logcumsumexp(-1), closed.flip(-1).logcumsumexp(-1).flip(-1)
    first = torch.searchsorted(states, low.double())  # of the states inside
    last = torch.searchsorted(states, high.double(), right=True) - 1

    def at(sums: Tensor, place: Tensor) -> Tensor:  # (R, G, K, N)
        return sums.gather(-1, place.unsqueeze(-2).expand(*sums.shape[:3], -1))

    left, left_rest = at(below, last + 1), at(below, first)
    right, right_rest = at(above, first + 1), at(above, (last + 2).clamp_max(len(support) + 1))
    use_left = left <= right
    whole, rest = torch.where(use_left, left, right), torch.where(use_left, left_rest, right_rest)
    inside = (first <= last).unsqueeze(-2) & (whole > rest)
    log_mass = whole + (-torch.expm1(torch.where(inside, rest - whole, -1.0))).log()
    return torch.where(inside, log_mass, LOG_ZERO).clamp_min(LOG_ZERO).to(parameters.dtype)


def blend(parameters: Tensor, best: Tensor, weight: Tensor, step: Tensor) -> Tensor:
    """(1 - step) parameters + step best, in the dtype of `parameters`; a unit of weight zero is left as it is.

    parameters, best: (R, G, K, P); weight: (R, G, K, 1); step: (R, 1, 1, 1). `best` may be NaN where the
    weight is 0. A weight of NaN gives NaN, which training notices.
    """
    moved = torch.lerp(parameters, best.to(parameters.dtype), step.to(parameters.dtype))
    return torch.where(weight <= 0, parameters, moved)
