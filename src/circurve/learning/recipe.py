"""How single circuits are trained best: the numbers that protocol `best` and ensembles share.

Found by fleets on the DEBD sets: a falling step, each unit around a row of the data, a little smoothing, and the epoch
of the best validation likelihood.
"""

from __future__ import annotations

from circurve.learning.schedules import cosine

__all__ = ["BEST_EPOCHS", "BEST_STEP", "SMALL_EPOCHS", "SMALL_ROWS", "SMOOTHING", "best_epochs"]

BEST_STEP = cosine(0.2, 0.005)

SMOOTHING = (0.003, 0.01, 0.03)
"""Pseudocounts for each sum and batch of 200 rows, to choose from or to mix."""

BEST_EPOCHS, SMALL_EPOCHS, SMALL_ROWS = 150, 100, 5000
"""Epochs, and those on fewer than SMALL_ROWS training rows: such a table is learned by heart sooner."""


def best_epochs(rows: int) -> int:
    """How long to train on so many rows."""
    return SMALL_EPOCHS if rows < SMALL_ROWS else BEST_EPOCHS
