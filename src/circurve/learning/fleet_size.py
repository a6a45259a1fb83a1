"""How many runs to train at once: a rule by the size of the circuit alone, the same on all machines."""

from __future__ import annotations

__all__ = ["MAX_RUNS", "MAX_WEIGHTS", "runs_at_once"]

MAX_WEIGHTS = 100_000_000
MAX_RUNS = 256
"""The largest number of weights of a fleet, and of its runs; one run is always allowed."""


def runs_at_once(weights: int) -> int:
    """The largest fleet of circuits with this many weights each."""
    return min(MAX_RUNS, max(1, MAX_WEIGHTS // max(1, weights)))
