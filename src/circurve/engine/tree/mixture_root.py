"""The root of a mixture: a sum over the outputs of all members, computed as the reference backend does, in float64."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from circurve.engine.batch import Batch
from circurve.engine.numerics import IMPOSSIBLE, LOG_ZERO
from circurve.engine.params import Params
from circurve.engine.program import Program
from circurve.engine.reference.downward import RootFlow, SumPass, child_flow, root_flow
from circurve.engine.reference.sums import Sums
from circurve.engine.reference.upward import SumValues, safe_sum_values
from circurve.engine.reference.workspace import SumPlaces
from circurve.engine.statistics import Request, Statistics

__all__ = ["MixtureRoot", "mixed_values"]


def mixed_values(weights: Tensor, log_values: Tensor) -> Tensor:  # (R, K, C), (R, C, N) -> (R, K, N)
    """log p of the root from log p of the members' outputs; -inf for probability zero."""
    found = _values(weights[:, None].double(), log_values).log_value[:, 0]
    return torch.where(found <= IMPOSSIBLE, -torch.inf, found)


def _values(weights: Tensor, log_values: Tensor) -> SumValues:  # (R, 1, K, C), (R, C, N)
    return safe_sum_values(weights, log_values[:, None].clamp_min(LOG_ZERO), SumPlaces())


class MixtureRoot:
    """The sums over samples that belong to the root."""

    def __init__(self, program: Program, number: int, weights: Tensor, request: Request) -> None:
        """number: of the sum layer that holds the root alone; weights: (R, 1, K, C), of any floating type."""
        self.layer, self.weights = program.sums[number], weights.double()
        self._sums = Sums(program, Params((self.weights,), ()), request)

    def add(self, batch: Batch, log_values: Tensor) -> tuple[RootFlow, Tensor]:
        """Add a chunk with these log-probabilities of the members (R, C, N): its flow, and that of the members."""
        values = _values(self.weights, log_values)
        exact = replace(batch, weights=None if batch.weights is None else batch.weights.double())
        root = root_flow(exact, values.log_value[:, 0])
        flow = root.flow[:, None]
        step = SumPass(0, self.layer, values, self.weights, None, flow, flow / values.sums)
        self._sums.add_root(root)
        self._sums.add_sum(step, root)
        return root, child_flow(step)[:, 0]

    def result(self) -> Statistics:
        """All sums of the root, as those of a circuit with one sum layer and no inputs."""
        return self._sums.result()
