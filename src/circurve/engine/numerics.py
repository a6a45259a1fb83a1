"""Floors, tiny values and safe ranges: every bound the engine relies on, with the inequality that justifies it.

A GPU flushes float32 numbers below 2^-126 to zero in many instructions, and a CPU is slow with them. So nothing may
depend on such numbers: every bound here holds with denormals flushed, and is tested at its edge that way.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from circurve.inputs import LOG_ZERO

__all__ = [
    "FLUSH",
    "IMPOSSIBLE",
    "LOG_ZERO",
    "MAX_EXPONENT",
    "MESSAGES",
    "SAFE_WEIGHT",
    "TINY_STATE",
    "WEAK_SUM",
    "MessageRange",
]

IMPOSSIBLE = LOG_ZERO / 2
"""A log-value at or below this is the logarithm of zero, perhaps plus that of something possible.

A product adds logarithms, so one impossible factor gives LOG_ZERO + x with x > IMPOSSIBLE for any x that data produce.
"""

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
    """The same for lengths, whose squares are added up: lost_squares^2 is far above `flush`."""

    small: float
    """Where the largest message of a sum is below this, all of them are divided by it: the product of a message with
    the next one then stays above `lost`^2."""


MESSAGES = {
    torch.float32: MessageRange(flush=1e-37, lost=1e-18, lost_squares=1e-15, small=1e-8),
    torch.float64: MessageRange(flush=1e-300, lost=1e-270, lost_squares=1e-140, small=1e-50),
}
