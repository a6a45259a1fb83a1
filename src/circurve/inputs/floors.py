"""Numbers that the families and the kernels share. No torch here: kernels are compiled in processes that lack it."""

from __future__ import annotations

__all__ = ["FLOOR", "LOG_ZERO"]

FLOOR = 1e-6
"""The M-step aims at probabilities >= FLOOR (and <= 1 - FLOOR): a value never seen stays possible."""

LOG_ZERO = -1e30
"""The logarithm of zero inside the engine: finite, so that no sum, difference or product of logs becomes NaN."""
