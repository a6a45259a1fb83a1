"""The mode of p(x_v | e) for every missing value, column by column."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from circurve.inputs import Binomial
from circurve.queries.distributions import column_distribution, state_weights
from circurve.queries.evidence import Evidence
from circurve.queries.passes import Posterior
from circurve.queries.peaks import states_near_modes
from circurve.queries.states import has_long_peaks, state_tensor
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
        if target.states[column] is not None:
            x[:, column] = _most_probable_state(target, part, found, column)
        else:
            flows = [found.flows[p.number].index_select(1, p.groups) for p in target.places[column]]
            x[:, column] = column_distribution(target, part, column, flows).mode().to(x.dtype)
    return torch.where(part.observed > 0, part.x, x)


def _most_probable_state(target: Target, part: Evidence, found: Posterior, column: int) -> Tensor:  # (R, N)
    """The most probable state of a column, the first of equals; its states are looked at piece by piece."""
    states = target.states[column]
    assert states is not None
    best = torch.zeros(target.runs, part.size, dtype=target.dtype, device=target.device)
    height = torch.full_like(best, -1.0)
    for piece, weights in state_weights(target, part, found, column, _near_modes(target, part, column)):
        top, at = weights.max(1)  # (R, N)
        higher = top > height
        best = torch.where(higher, state_tensor(states[piece], best)[at], best)
        height = torch.where(higher, top.to(height.dtype), height)
    return best


def _near_modes(target: Target, part: Evidence, column: int) -> list[slice]:
    """The states that can be the most probable one of the column, in order.

    The probabilities of a binomial rise up to its mode and fall after it; so do those of all units of a column below
    the smallest and above the largest of their modes.
    """
    states, places = target.states[column], target.places[column]
    assert states is not None
    if column in part.likelihoods:
        return [part.likely(column)]
    if has_long_peaks(target, column):
        return states_near_modes(target, part, column)
    if not all(isinstance(place.family, Binomial) for place in places):
        return [slice(0, len(states))]
    modes = torch.cat([place.family.mode(target.parameters(place).double()).flatten() for place in places])
    return [slice(max(0, int(modes.min()) - 1), min(len(states), int(modes.max()) + 2))]
