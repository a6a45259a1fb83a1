"""The mode of p(x_v | e) for every missing value, column by column."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from circurve.queries.distributions import column_distribution, state_probabilities
from circurve.queries.evidence import Evidence
from circurve.queries.passes import Posterior
from circurve.queries.target import Target

__all__ = ["column_modes"]


def column_modes(
    target: Target, part: Evidence, found: Posterior, columns: Sequence[int] | None = None
) -> Tensor:  # (R, V, N)
    """The most probable value of some columns (None: all) given the evidence; observed values as they are.

    Exact for columns with finitely many states. For others it is a peak of the density: see `MixtureDistribution.mode`.
    """
    x = torch.zeros(target.runs, target.variables, part.size, dtype=target.dtype, device=target.device)
    for column in range(target.variables) if columns is None else columns:
        if not bool((part.observed[:, column] == 0).any()):
            continue
        states = target.states[column]
        if states is not None:
            best = state_probabilities(target, part, found, column).argmax(1)
            x[:, column] = x.new_tensor(states)[best]
        else:
            flows = [found.flows[p.number].index_select(1, p.groups) for p in target.places[column]]
            x[:, column] = column_distribution(target, part, column, flows).mode().to(x.dtype)
    return torch.where(part.observed > 0, part.x, x)
