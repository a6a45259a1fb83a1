"""mu="auto" and gate="auto": candidates trained side by side in one fleet, the best by validation likelihood kept.

With mu="auto" plain EM is one of the candidates, mu = 0, and it wins a tie. With d_i the log-likelihood of validation
row i under the best candidate minus that under plain EM, and w_i its weight,

    mean = sum_i w_i d_i / W,    SE^2 = sum_i w_i^2 (d_i - mean)^2 / W^2,    W = sum_i w_i,

they tie if mean <= SE. Both models score the same rows, so what makes a row improbable under both of them cancels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import torch
from torch import Tensor

from circurve.data import RowSource
from circurve.errors import warn_user
from circurve.learning.gates import GATES
from circurve.learning.history import FitResult, FleetResult
from circurve.learning.methods import Gated, Grid, Method, Vanilla
from circurve.learning.options import Run
from circurve.model import Model

__all__ = ["MU_GRID", "candidates", "choose", "needs_choice"]

MU_GRID = Grid((0.0, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0))
"""The strengths that mu="auto" tries: plain EM, half-decades around the paper's grid, and two decades below it."""


def needs_choice(run: Run) -> bool:
    """Whether the run leaves mu or the gate to be chosen."""
    method = run.method
    if isinstance(method, Vanilla):
        return False
    return method.mu == "auto" or isinstance(method.mu, Grid) or (isinstance(method, Gated) and method.gate == "auto")


def candidates(run: Run) -> list[Run]:
    """The runs to train for a run: itself, or one for each strength and gate to choose from."""
    method = run.method
    if isinstance(method, Vanilla):
        return [run]
    grid = MU_GRID if method.mu == "auto" else method.mu
    chosen: list[Method] = [replace(method, mu=mu) for mu in grid.values] if isinstance(grid, Grid) else [method]
    if isinstance(method, Gated) and method.gate == "auto":
        gates = [gate for name, gate in GATES.items() if name != "ones"]
        gated = [(m, gates[:1] if m.mu == 0 else gates) for m in chosen if isinstance(m, Gated)]  # mu 0: none
        chosen = [replace(m, gate=gate) for m, some in gated for gate in some]
    return [replace(run, method=m) for m in chosen]


def choose(
    runs: Sequence[Run], groups: Sequence[Sequence[Run]], results: FleetResult, valid: RowSource | None
) -> FleetResult:
    """One result for each run: the best of its candidates by validation likelihood, with all of them as its path.

    Candidates that failed do not count; if all of them did, the run has failed, as the first of them.
    """
    chosen, rest = [], iter(results)
    for number, (run, group) in enumerate(zip(runs, groups, strict=True)):
        path = tuple(islice(rest, len(group)))
        if not needs_choice(run):
            chosen.append(path[0])
            continue
        left = tuple(candidate for candidate in path if not candidate.failed)
        best = FleetResult(left).best(by="valid_ll") if left else path[0]
        if left and valid is not None and not isinstance(run.method, Vanilla) and run.method.mu == "auto":
            try:
                best = _simplest(best, left, valid)
                _warn_of_edge(best, run.name(number))
            except KeyboardInterrupt:  # what was trained is not lost for the comparison
                best = replace(best, stopped="interrupted")
        chosen.append(replace(best, path=path))
    return FleetResult(tuple(chosen))


def _strength(result: FitResult) -> float:
    """mu of a candidate, which is a number."""
    method = result.run.method
    return 0.0 if isinstance(method, Vanilla) or not isinstance(method.mu, int | float) else float(method.mu)


def _simplest(best: FitResult, left: Sequence[FitResult], valid: RowSource) -> FitResult:
    """Plain EM if it is among the candidates and not worse than the best by more than one standard error."""
    plain = next((candidate for candidate in left if _strength(candidate) == 0), best)
    if plain is best:
        return best
    assert best.valid_ll is not None
    assert plain.valid_ll is not None
    if not math.isfinite(best.valid_ll) or not math.isfinite(plain.valid_ll):
        return best
    mean, error = _paired(best.model, plain.model, valid)
    return plain if mean <= error else best


def _paired(one: Model, other: Model, valid: RowSource) -> tuple[float, float]:
    """The mean over rows of the difference of two models' log-likelihoods, and its standard error."""
    difference = _by_row(one, valid) - _by_row(other, valid)
    weights = torch.ones_like(difference) if valid.weights is None else valid.weights.cpu()
    kept = weights > 0  # others may be impossible
    difference, weights = difference[kept], weights[kept] / weights[kept].sum()
    mean = (weights * difference).sum()
    return float(mean), float((weights * (difference - mean)).norm())


def _by_row(model: Model, table: RowSource) -> Tensor:  # (N,) float64
    scores = torch.from_numpy(model.log_prob(table))
    return scores if table.labels is None else scores.gather(1, table.labels.cpu()[:, None])[:, 0]


def _warn_of_edge(best: FitResult, name: str) -> None:
    """A value at the end of the grid may be beaten by one beyond; 0 is not such an end."""
    mu, positive = _strength(best), [value for value in MU_GRID.values if value > 0]
    ends = ((max(positive), "largest", (1, 3, 10)), (min(positive), "smallest positive", (0.1, 0.3, 1)))
    for edge, kind, more in ends:
        if mu == edge:
            further = ", ".join(f"{factor * edge:g}" for factor in more)
            warn_user(
                f"{name}: mu='auto' chose {mu:g}, the {kind} strength that it tries; a strength outside this range "
                f"may be better: try mu=Grid(({further}))"
            )
