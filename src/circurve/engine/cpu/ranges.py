"""How much of the floating range messages may use."""

from __future__ import annotations

from dataclasses import dataclass

import torch

__all__ = ["RANGES", "Range"]


@dataclass(frozen=True)
class Range:
    """Bounds for one floating type."""

    flush: float
    """Elements and flows below this become zero: subnormal numbers are slow."""

    lost: float
    """Tables and messages are at most 1, so a product only gets smaller: where its largest sum is not below this,
    elements that were flushed on the way matter to no sum whose weights are at least 1e-12, the floor of training."""

    lost_squares: float
    """The same where elements are squared."""

    small: float
    """Where the largest message of a sum is below this, all of them are scaled."""


RANGES = {torch.float32: Range(1e-37, 1e-18, 1e-15, 1e-8), torch.float64: Range(1e-300, 1e-270, 1e-140, 1e-50)}
