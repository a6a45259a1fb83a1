"""Floors, tiny values and safe ranges: every bound that the engine and the M-step rely on, with its inequality.

A GPU flushes float32 numbers below 2^-126 to zero in square roots and exponentials, and a CPU is slow with them. So
nothing may depend on such numbers: every bound here holds with denormals flushed, and is tested at its edge that way
(`tests/engine/test_numerics.py`).

The M-step follows one rule on all backends:

    A row (the edges of one sum, or the parameters of one input unit) that received less flow than `least_flow` stays
    as it is. Every other row is normalised before anything else is done with it, and floored after.

For it, T is the flow of a row, the sum of its counts N_c before pseudocounts; T' >= T is the sum with them; n_c =
N_c / T' sums to one; tiny is the smallest normal number and eps the rounding of the floating type.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from circurve.engine.limits import (
    FLOAT32,
    FLOAT32_MAX_TERM,
    IMPOSSIBLE,
    INPUT_FLOOR,
    LOG_ZERO,
    MIN_SAMPLE_WEIGHT,
    MIN_STEP,
    WEIGHT_FLOOR,
    Limits,
)

__all__ = [
    "FLUSH",
    "IMPOSSIBLE",
    "INPUT_FLOOR",
    "KEPT_BITS",
    "LIMITS",
    "LOG_ZERO",
    "MAX_CHILDREN",
    "MAX_COUNT",
    "MAX_EXPONENT",
    "MAX_TERM",
    "MESSAGES",
    "MIN_SAMPLE_WEIGHT",
    "MIN_STEP",
    "SAFE_WEIGHT",
    "TINY_STATE",
    "WEAK_SUM",
    "WEIGHT_FLOOR",
    "Limits",
    "MessageRange",
    "effective_step",
    "rounded",
]

# --- values and flows ---

FLUSH = {torch.float32: 1e-30, torch.float64: 1e-290}
"""Scaled elements and flows below this become zero, so that no product of them with a weight >= 1e-8 is subnormal.

Elements are divided by the largest of their group, and sums below WEAK_SUM are computed again: what is flushed changes
a sum by at most FLUSH / WEAK_SUM = 1e-14 (1e-150) of itself.
"""

WEAK_SUM = {torch.float32: 1e-16, torch.float64: 1e-140}
"""A scaled sum below this may have lost precision to flushed elements; it is computed again in logs.

Its inverse squared, at most 1e32 (1e280), times the number of children is finite.
"""

SAFE_WEIGHT = 1e-16
"""A sum whose weights are all at least this is never weak: its largest element is 1, so S >= SAFE_WEIGHT."""

MAX_TERM = {torch.float32: FLOAT32_MAX_TERM, torch.float64: 1e305}
"""What one sample adds to a sum of t, T or F_nc^2 is cut off here, so that a hundred of them are finite.

Weights of training are at least 1e-12, so that t <= 1e24 C; only weights made by hand, with sample weights of 1e8,
come near.
"""

MAX_EXPONENT = {torch.float32: 80.0, torch.float64: 700.0}
"""exp of this is finite and its square is not: a curvature beyond the range becomes infinite, never NaN."""

TINY_STATE = {torch.float32: 1e-9, torch.float64: 1e-70}
"""States of inputs less probable than this (and possible) are left to the reference backend.

A joint table multiplies up to four of them: 1e-36 (1e-280) is still a normal number.
"""


@dataclass(frozen=True)
class MessageRange:
    """The part of the floating range that messages of the latent-tree backend may use, for one floating type.

    Tables and messages are at most 1, so a product of them only gets smaller.
    """

    flush: float
    """Elements and flows below this become zero; it is a normal number, so that no subnormal one is left."""

    lost: float
    """Where the largest sum of a product is at least this, flushed elements do not matter: they are smaller by
    flush / lost <= 1e-19 (1e-30), and no weight of training is below 1e-12."""

    lost_squares: float
    """`lost` for lengths, whose squares are added up: lost_squares^2 is far above `flush`."""

    small: float
    """Where the largest message of a sum is below this, all of them are divided by it: the product of a message with
    the next one then stays above `lost`^2."""


MESSAGES = {
    torch.float32: MessageRange(flush=1e-37, lost=1e-18, lost_squares=1e-15, small=1e-8),
    torch.float64: MessageRange(flush=1e-300, lost=1e-270, lost_squares=1e-140, small=1e-50),
}

# --- the M-step ---

MAX_COUNT = 1e30
"""Counts and pseudocounts of a row sum to less: the weight of a sample is at most 1e18, so a trillion samples fit. The
inverse of the sum is a normal number: 1 / MAX_COUNT >= tiny."""

MAX_CHILDREN = 1_000_000
"""The inequalities below hold for sums with up to this many children."""


LIMITS = {
    torch.float32: FLOAT32,
    torch.float64: Limits(2.0**-1022, 1e-270, 1e100, 1e80, 1e40),
}


def effective_step(step: Tensor) -> Tensor:  # (R, 1, 1, 1), float64
    """The step size, raised to MIN_STEP where it is positive but smaller; before it is cast to float32."""
    return torch.where(step > 0, step.clamp_min(MIN_STEP), 0.0)


KEPT_BITS = 13
"""Bits of the mantissa, about four decimal digits, by which curvatures are put in order.

Backends add up in different orders and agree on five digits or better; 2^-KEPT_BITS is ten times that or more."""


def rounded(values: Tensor) -> Tensor:
    """Non-negative values rounded to the nearest number with KEPT_BITS bits after the leading one.

    Values that differ by rounding alone become equal, so that sorting treats them as a tie. Two values on different
    sides of an edge between two such numbers still differ: with a relative error of e, this happens to a value with a
    probability of about e 2^KEPT_BITS. The edges are halfway between short binary fractions, so that whole numbers and
    simple fractions, which circuits produce often, are far from them. The order of the values is never reversed.
    """
    integer, width = (torch.int64, 52) if values.dtype == torch.float64 else (torch.int32, 23)
    dropped = width - KEPT_BITS
    bits = values.contiguous().view(integer) + (1 << (dropped - 1))
    return (bits & -(1 << dropped)).view(values.dtype)
