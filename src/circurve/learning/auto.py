"""mu="auto" and gate="auto": candidates trained side by side in one fleet, the best by validation likelihood kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from circurve.learning.gates import GATES
from circurve.learning.history import FleetResult
from circurve.learning.methods import Gated, Grid, Method, Vanilla
from circurve.learning.options import Run

__all__ = ["MU_GRID", "candidates", "choose", "needs_choice"]

MU_GRID = Grid((0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0))
"""The strengths that mu="auto" tries: half-decades around the paper's grid, and two decades below it."""


def needs_choice(run: Run) -> bool:
    """Whether the run leaves mu or the gate to be chosen."""
    method = run.method
    if isinstance(method, Vanilla):
        return False
    return method.mu == "auto" or isinstance(method.mu, Grid) or (isinstance(method, Gated) and method.gate == "auto")


def candidates(run: Run) -> list[Run]:
    """The runs that stand for a run: itself, or one for each strength and gate to choose from."""
    method = run.method
    if isinstance(method, Vanilla):
        return [run]
    grid = MU_GRID if method.mu == "auto" else method.mu
    chosen: list[Method] = [replace(method, mu=mu) for mu in grid.values] if isinstance(grid, Grid) else [method]
    if isinstance(method, Gated) and method.gate == "auto":
        gates = [gate for name, gate in GATES.items() if name != "ones"]
        chosen = [replace(m, gate=gate) for m in chosen if isinstance(m, Gated) for gate in gates]
    return [replace(run, method=m) for m in chosen]


def choose(runs: Sequence[Run], groups: Sequence[Sequence[Run]], results: FleetResult) -> FleetResult:
    """One result for each run: the best of its candidates by validation likelihood, with all of them as its path.

    Candidates that failed do not count; if all of them did, the run has failed, as the first of them.
    """
    chosen, rest = [], iter(results)
    for run, group in zip(runs, groups, strict=True):
        path = tuple(islice(rest, len(group)))
        left = tuple(candidate for candidate in path if not candidate.failed)
        best = FleetResult(left).best(by="valid_ll") if left and needs_choice(run) else path[0]
        chosen.append(replace(best, path=path) if needs_choice(run) else best)
    return FleetResult(tuple(chosen))
