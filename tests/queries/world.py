"""What the definitions say: probabilities of completed and partial rows by recursion, added up over all values.

Columns with an infinite number of values are replaced by a grid: whole numbers up to 40, or points 0.5 apart, which
integrate the densities of the generated circuits (variances from 0.3 to 2) with an error of 1e-10.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from circuits import Case, evaluate
from circurve.engine import Params, choose_backend, stack
from circurve.queries import Evidence, Target, make_evidence

GRIDS = {
    "binary": (np.arange(2.0), 1.0),
    "ternary": (np.arange(3.0), 1.0),
    "count": (np.arange(41.0), 1.0),
    "real": (np.linspace(-12, 12, 49), 0.5),
}


def target_of(case: Case, dtype: torch.dtype = torch.float64, params: Params | None = None) -> Target:
    own = (case.params if params is None else params).to(dtype=dtype)
    return Target(case.program, own, choose_backend(case.program, own))


def evidence_of(case: Case, target: Target, **soft: object) -> Evidence:
    return make_evidence(target, case.samples().table, **soft)


def fleet(case: Case, other: Case) -> Params:
    return stack([case.params, other.params])


def probability(case: Case, x: np.ndarray, labels: Tensor | None) -> Tensor:  # (M, V), (M,) -> (M,)
    """p of each row's own output; NaN is summed out by the recursion."""
    found: dict = {}
    rows = torch.from_numpy(np.asarray(x, dtype=np.float64))
    with torch.no_grad():
        weights = {s: case.weights[s][:, :, None].expand(-1, -1, len(rows)) for s in case.circuit.sums}
        for root in case.circuit.roots:
            evaluate(root, case, rows, weights, found)
        outputs = torch.cat([found[root] for root in case.circuit.roots])
    own = torch.zeros(len(rows), dtype=torch.int64) if labels is None else labels
    return outputs.gather(0, own[None])[0]


def on_grid(case: Case, row: int, columns: Sequence[int]) -> tuple[list[np.ndarray], Tensor]:
    """p(e, columns = point) on the product of their grids, times the volume of a cell: points and (M, M', ...)."""
    grids = [GRIDS[case.domains[c]] for c in columns]
    points = list(itertools.product(*(grid for grid, _ in grids)))
    x = np.repeat(case.x[row : row + 1], len(points), axis=0)
    x[:, list(columns)] = np.array(points).reshape(len(points), len(columns))
    labels = None if case.labels is None else case.labels[row].expand(len(points))
    mass = probability(case, x, labels) * float(np.prod([width for _, width in grids]))
    return [grid for grid, _ in grids], mass.reshape([len(grid) for grid, _ in grids])


def missing_columns(case: Case, row: int) -> list[int]:
    return [int(c) for c in np.flatnonzero(np.isnan(case.x[row]))]


def with_gap(case: Case, row: int = 0, column: int = 0) -> Case:
    """The case with one more missing value."""
    x = case.x.copy()
    x[row, column] = np.nan
    return replace(case, x=x)


def possible_rows(case: Case) -> Case:
    """Only the rows of positive probability."""
    kept = (probability(case, case.x, case.labels) > 0).numpy()
    labels = None if case.labels is None else case.labels[torch.from_numpy(kept)]
    return replace(case, x=case.x[kept], labels=labels, sample_weights=None)
