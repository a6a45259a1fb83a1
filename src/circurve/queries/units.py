"""Moments of each input unit under the evidence of its own column."""

from __future__ import annotations

from torch import Tensor

from circurve.inputs import LOG_ZERO
from circurve.queries.evidence import Evidence
from circurve.queries.target import Place, Target

__all__ = ["unit_moments"]


def unit_moments(target: Target, evidence: Evidence, number: int) -> tuple[Tensor, Tensor]:  # (R, G, K, N or 1) each
    """Mean and variance of each unit of an input layer, float64, given its column's likelihood or interval, if any.

    The last axis is 1 where they are the same for all rows. Observed values are not looked at.
    """
    family, parameters = target.program.inputs[number].family, target.params.inputs[number].double()
    mean, variance = family.mean(parameters).unsqueeze(-1), family.variance(parameters).unsqueeze(-1)
    for column in (*evidence.likelihoods, *evidence.intervals):
        for at, place in enumerate(target.places[column]):
            if place.number == number:
                inside = _soft_moments(target, evidence, column, at)
                mean, variance = (
                    whole.expand(*whole.shape[:3], evidence.size).index_copy(1, place.groups, part)
                    for whole, part in zip((mean, variance), inside, strict=True)
                )
    return mean, variance


def _soft_moments(target: Target, evidence: Evidence, column: int, at: int) -> tuple[Tensor, Tensor]:
    """(R, g, K, N) each, of the units of a column at one of its places."""
    place: Place = target.places[column][at]
    if column in evidence.intervals:
        ends = (end.expand(1, len(place.groups), evidence.size) for end in evidence.intervals[column])
        return place.family.interval_moments(target.parameters(place), *ends)
    log_likelihood = evidence.likelihoods[column].log().clamp_min(LOG_ZERO)  # (S, N or 1)
    states = log_likelihood.new_tensor(target.states[column]).unsqueeze(-1)  # (S, 1)
    share = (target.state_logs(column)[at].double().unsqueeze(-1) + log_likelihood).softmax(-2)  # (R, g, K, S, N or 1)
    mean = (states * share).sum(-2)
    variance = ((states - mean.unsqueeze(-2)).square() * share).sum(-2)
    shape = (*mean.shape[:3], evidence.size)
    return mean.expand(shape), variance.expand(shape)
