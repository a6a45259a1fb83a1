"""The bounds of `numerics.py` that kernels are compiled with, as numbers.

No torch here: kernels are compiled in processes that do not wait for its import. `numerics.py` says which rule the
bounds of the M-step belong to, and what T, n and tiny are.
"""

from __future__ import annotations

from dataclasses import dataclass

from circurve.inputs.floors import FLOOR as INPUT_FLOOR
from circurve.inputs.floors import LOG_ZERO

__all__ = [
    "FLOAT32",
    "FLOAT32_MAX_TERM",
    "IMPOSSIBLE",
    "INPUT_FLOOR",
    "LOG_ZERO",
    "MIN_SAMPLE_WEIGHT",
    "MIN_STEP",
    "WEIGHT_FLOOR",
    "Limits",
]

IMPOSSIBLE = LOG_ZERO / 2
"""A log-value at or below this is the logarithm of zero, perhaps plus that of something possible.

A product adds logarithms, so one impossible factor gives LOG_ZERO + x with x > IMPOSSIBLE for any x that data produce.
"""

MIN_SAMPLE_WEIGHT = 1e-37
"""Samples of smaller weight are left out of sums that are divided by it: 1 / w must be finite in float32.

What is quadratic in a flow F <= w is computed as (F / w) F, and (A / w) A with A = F / S: both factors are finite.
"""

FLOAT32_MAX_TERM = 1e36
"""`numerics.MAX_TERM` of float32."""

WEIGHT_FLOOR = 1e-12
"""The smallest weight that an M-step gives to an edge. A weight of exactly zero would stay zero for ever."""

MIN_STEP = 1e-20
"""A smaller positive step size counts as this one: MIN_STEP * WEIGHT_FLOOR >= tiny, so that a step towards a weight of
at least WEIGHT_FLOOR cannot end at zero, even where the old weight is subnormal and flushed. A step of 0 stays 0."""


@dataclass(frozen=True)
class Limits:
    """Bounds for one floating type."""

    smallest_normal: float
    """tiny. Second moments below it count as zero on every backend."""

    least_flow: float
    """Rows that received less flow keep their weights; input units that received less keep their parameters.

    WEIGHT_FLOOR * T >= tiny: the floor of a row of counts is positive, so that max(N, WEIGHT_FLOOR * T) has no zero.
    sqrt(tiny / T) < eps: a count below tiny that was flushed changes no weight by more than rounding. (The strongest
    penalty makes weights grow like sqrt(n); without one they grow like n, which is smaller.)
    """

    max_strength: float
    """The strength m' of the surrogate penalty on a row that sums to one is cut off here.

    1 / (2 sqrt(m')) < eps: theta ~ n + sqrt(n) sqrt(n + 4 m') is its limit sqrt(n) to rounding.
    4 lambda m' <= 13 m'^2 C is finite: lambda is at most 3.2 m' (sum_c sqrt(n_c))^2 <= 3.2 m' C.
    """

    max_moment_root: float
    """The sum W over children of w_c = (2 m S_c / T')^(1/3), for the exact penalty, is cut off here.

    1 / W < eps: theta is its limit w_c / W to rounding, for edges that hold their share of the second moments.
    3 lambda theta <= 10 W^3 is finite.
    """

    max_cardano: float
    """Cardano's formula is used up to this kappa^(1/3), the leading terms of the cubic's root beyond.

    kappa^2 is finite; what the leading terms leave out, 1 / (9 kappa^(2/3)) of the root, is below eps.
    """


FLOAT32 = Limits(2.0**-126, 1e-20, 1e15, 1e12, 1e5)
