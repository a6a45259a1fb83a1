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
    """Where the largest element of a product of two or three tables and messages is below this, after the last of them
    or before, other elements that matter may have been flushed."""

    small: float
    """Where the largest message of a sum is below this, all of them are scaled."""


RANGES = {torch.float32: Range(1e-37, 1e-15, 1e-8), torch.float64: Range(1e-300, 1e-100, 1e-50)}
