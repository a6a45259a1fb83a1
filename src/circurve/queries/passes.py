"""The two cores of all exact questions: an upward pass under evidence, and an upward and a downward one.

The flow of input unit u of a column that is not observed is the probability that u produced the missing value, so

    p(x_v | e) = sum_u F_u f_u(x_v),        sum_u F_u = 1:

one pass up and one down give the distributions of all missing values at once. Memory is that of the rows in a chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from circurve.engine.memory import chunk_size, release_large, within_memory
from circurve.engine.numerics import IMPOSSIBLE
from circurve.engine.reference import FRESH, DownwardPass, root_flow
from circurve.errors import DataError
from circurve.queries.evidence import Evidence, leaf_values
from circurve.queries.target import Target

__all__ = ["Posterior", "chunked", "log_prob", "own_output", "posterior", "require_possible"]

CELL_BYTES = 64
"""Bytes of a cell of the rows that are asked about: as a table, as evidence, in the answer, and in a frame."""

LEAST_SHARE = 8
"""At least this part of a memory budget is for buffers: rows that take most of it are in memory already."""


@dataclass(frozen=True)
class Posterior:
    """The results of both passes for N rows."""

    log_evidence: Tensor  # log p(e), (R, N)
    flows: tuple[Tensor, ...]  # F of each input layer, (R, G, K, N)


@torch.no_grad()
def log_prob(target: Target, evidence: Evidence) -> Tensor:  # (R, N)
    """log p(e) of each row, everything else summed or integrated out; -inf where it is zero. One upward pass."""

    def score(part: Evidence) -> Tensor:
        if part.soft or target.partial_layers:
            outputs = target.reference.upward_from(target.params, leaf_values(target, part)).outputs
            outputs = torch.where(outputs <= IMPOSSIBLE, -torch.inf, outputs)
        else:
            outputs = target.backend.log_prob(target.params, part.batch())
        return own_output(part, outputs)

    return chunked(target, evidence, score, backward=False)


def own_output(evidence: Evidence, outputs: Tensor) -> Tensor:  # (R, outputs, N) -> (R, N)
    """The output that each row belongs to."""
    if evidence.labels is None:
        return outputs[:, 0]
    return outputs.gather(1, evidence.labels.expand(outputs.shape[0], 1, -1)).squeeze(1)


def chunked(
    target: Target,
    evidence: Evidence,
    work: Callable[[Evidence], Tensor],
    backward: bool = True,
    budget: int | None = None,
) -> Tensor:  # (..., N)
    """work(rows) for all rows, as many at once as memory holds, with its results put together along the last axis.

    backward: whether `work` runs the reference backend in both directions, and not only the target's own upwards.
    budget: what is left of the target's memory budget; None: all of it.
    """
    backend = target.reference if backward or evidence.soft or target.partial_layers else target.backend
    size = chunk_size(backend, backward, _for_buffers(target, evidence, budget), evidence.size)

    def run(rows: int) -> Tensor:
        if rows >= evidence.size:
            return work(evidence)
        starts = range(0, evidence.size, rows)
        return torch.cat([work(evidence.rows(slice(start, start + rows))) for start in starts], dim=-1)

    found = within_memory(backend, max(1, min(size, evidence.size)), run)
    release_large(backend, evidence.size, backward)
    return found


def _for_buffers(target: Target, evidence: Evidence, budget: int | None) -> int | None:
    """What a memory budget leaves for buffers next to the rows that are asked about and the answer."""
    limit = target.memory_budget if budget is None else budget
    if limit is None:
        return None
    held = CELL_BYTES * target.runs * target.variables * evidence.size
    return max(limit - held, limit // LEAST_SHARE, 1)


@torch.no_grad()
def posterior(target: Target, evidence: Evidence, leaves: list[Tensor] | None = None) -> Posterior:
    """The flows of all input units for the rows of one chunk; `leaves` in place of the values that the evidence gives.

    Rows of probability zero have no flow.
    """
    reference, params = target.reference, target.params
    given = leaf_values(target, evidence) if leaves is None else leaves
    up = reference.upward_from(params, given)
    root = root_flow(evidence.batch(), up.outputs)
    down = DownwardPass(reference, params, up, root, FRESH)
    for _ in down.sums():
        pass
    log_evidence = torch.where(root.log_value <= IMPOSSIBLE, -torch.inf, root.log_value)
    return Posterior(log_evidence, tuple(flow for _, flow in down.inputs()))


def require_possible(target: Target, evidence: Evidence, log_evidence: Tensor) -> None:  # (R, N)
    """Raise DataError for the first row of probability zero.

    It names the row and, where the evidence of a single column is impossible already, that column.
    """
    wrong = ~(log_evidence > -torch.inf)
    if not bool(wrong.any()):
        return
    run, row = (int(i) for i in _first(wrong))
    number = evidence.first_row + row + 1
    alone = target.runs == 1 and target.first_run == 0
    where = f"row {number}" if alone else f"row {number}, run {target.first_run + run}"
    if bool(log_evidence[run, row].isnan()):
        raise DataError(f"{where}: the probability of the evidence is not a number")
    culprit = next(_impossible_alone(target, evidence.rows(slice(row, row + 1)), run), None)
    if culprit is None:
        raise DataError(f"{where}: the evidence has probability zero")
    raise DataError(f"{where}: {culprit} has probability zero")


def _first(wrong: Tensor) -> Tensor:  # (R, N) -> (run, row)
    """The run and row of the first row that is wrong in any run."""
    row, run = wrong.T.nonzero()[0]
    return torch.stack([run, row])


def _impossible_alone(target: Target, row: Evidence, run: int) -> Iterator[str]:
    """The columns of a row whose own evidence is impossible whatever the others are."""
    for column in range(target.variables):
        alone = row.hide([other for other in range(target.variables) if other != column])
        if not bool(log_prob(target, alone)[run, 0] > -torch.inf):
            known = bool(alone.observed[min(run, len(alone.x) - 1), column, 0] > 0)
            value = alone.x[min(run, len(alone.x) - 1), column, 0]
            yield f"{target.label(column)} = {float(value):g}" if known else f"what is given of {target.label(column)}"
