"""How many runs to train at once: a rule by the size of the circuit and a memory budget, the same on all machines."""

from __future__ import annotations

__all__ = ["MAX_RUNS", "MAX_WEIGHTS", "runs_at_once"]

MAX_WEIGHTS = 100_000_000
MAX_RUNS = 256
"""The largest number of weights of a fleet, and of its runs; one run is always allowed."""


RUN_BYTES = 32
"""What a weight of a run takes in training: five copies in float32, and a start in float64."""

FLEET_SHARE = 0.5
"""The share of a memory budget for the weights of a fleet; the rest is for data and buffers."""


def runs_at_once(weights: int, memory_budget: int | None = None) -> int:
    """The largest fleet of circuits with this many weights each."""
    most = min(MAX_RUNS, max(1, MAX_WEIGHTS // max(1, weights)))
    if memory_budget is None:
        return most
    return max(1, min(most, int(FLEET_SHARE * memory_budget) // (RUN_BYTES * max(1, weights))))
