"""Moments and probabilities of states of each input unit under the evidence of its own column."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from circurve.queries.evidence import Evidence, log_weights
from circurve.queries.states import pieces_of_states, state_tensor
from circurve.queries.target import Place, Target

__all__ = ["Mass", "likely_masses", "state_shares", "unit_moments"]


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
        ends = (end.expand(1, len(place.groups), -1) for end in evidence.ends(column))
        inside = place.family.interval_moments(target.parameters(place), *ends)
        mean, variance = (part.expand(-1, -1, -1, evidence.size) for part in inside)
        return mean, variance
    states = target.states[column]
    assert states is not None
    mass = likely_masses(target, evidence, column)[at]
    pieces = likely_pieces(target, evidence, column)
    zero = torch.zeros_like(mass.total)
    mean, variance = zero, zero
    for piece in pieces:
        weights = log_weights(target, evidence, column, piece)
        share = state_shares(target.state_logs(column, at, piece), weights, mass)
        mean = mean + (state_tensor(states[piece], share).unsqueeze(-1) * share).sum(-2)
    for piece in pieces:
        weights = log_weights(target, evidence, column, piece)
        share = state_shares(target.state_logs(column, at, piece), weights, mass)
        distance = state_tensor(states[piece], share).unsqueeze(-1) - mean.unsqueeze(-2)
        variance = variance + (distance.square() * share).sum(-2)
    shape = (*mean.shape[:3], evidence.size)
    return mean.expand(shape), variance.expand(shape)


@dataclass(frozen=True)
class Mass:
    """sum_s l_s f_u(s) of some units, as exp(largest) * total; the last axis is 1 if all rows have one likelihood."""

    largest: Tensor  # (R, g, K, N or 1)
    total: Tensor  # (R, g, K, N or 1)


def likely_masses(target: Target, evidence: Evidence, column: int) -> list[Mass]:
    """For each place of a column with a likelihood l, the likelihood that each unit expects; or the mass of its
    interval."""
    if column in evidence.intervals:
        return [_mass_inside(target, evidence, column, place) for place in target.places[column]]
    found, pieces = [], likely_pieces(target, evidence, column)
    for at in range(len(target.places[column])):
        largest = total = None
        for piece in pieces:
            weights = log_weights(target, evidence, column, piece)
            logs = target.state_logs(column, at, piece).double().unsqueeze(-1) + weights  # (R, g, K, s, N or 1)
            top = logs.amax(-2) if largest is None else torch.maximum(largest, logs.amax(-2))
            part = logs.sub_(top.unsqueeze(-2)).exp_().sum(-2)
            total = part if total is None or largest is None else total * (largest - top).exp() + part
            largest = top
        assert largest is not None
        assert total is not None
        found.append(Mass(largest, total))
    return found


def _mass_inside(target: Target, evidence: Evidence, column: int, place: Place) -> Mass:
    ends = (end.expand(1, len(place.groups), -1) for end in evidence.ends(column))
    mass = place.family.log_mass(target.parameters(place).double(), *ends)
    return Mass(mass, torch.ones_like(mass))


def likely_pieces(target: Target, evidence: Evidence, column: int) -> list[slice]:
    """The states of a column that its likelihood does not rule out, in pieces."""
    width = evidence.likelihoods[column].shape[-1]
    return list(pieces_of_states(target, column, width, evidence.likely(column)))


def state_shares(logs: Tensor, log_weights: Tensor, mass: Mass) -> Tensor:
    """p_u(s | e) of some states from their log p and the logarithms of their likelihoods, which have a common factor
    that may be tiny or huge: (R, g, K, s), (s, N or 1) -> (R, g, K, s, N or 1)."""
    weighted = logs.double().unsqueeze(-1) + log_weights
    return weighted.sub_(mass.largest.unsqueeze(-2)).exp_().div_(mass.total.unsqueeze(-2))
