"""Sums by state of tabulated layers, and what they amount to in the sums that all layers have.

With B_ks the flow of unit k in state s, B2_ks its square and w_s the weight of the samples in that state,

    N_kc = theta_kc sum_s B_ks E_cs / S_ks          t_k = sum_s w_s q_s / S_ks^2        T_k = sum_s B2_ks q_s / S_ks^2

and the flow that reaches child c in state s is E_cs sum_k theta_kc B_ks / S_ks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from circurve.engine.bound import Engine
from circurve.engine.params import Params
from circurve.engine.statistics import Request
from circurve.engine.tables import StateTable
from circurve.inputs import LOG_ZERO, Family

__all__ = ["StateSums", "add_input_statistics", "close_table"]


@dataclass
class StateSums:
    """Sums over samples, by state, for those of a sum layer that stand on one input layer; until the last batch."""

    layer: int
    """The sum layer."""

    groups: slice | Tensor  # which of its sums: all of them, or a list (G,)
    flow: Tensor | None = None  # B, (R, G, K, S)
    square: Tensor | None = None  # B2, (R, G, K, S)
    weight: Tensor | None = None  # w, (R, G, 1, S)
    table: StateTable | None = None

    def add_flow(self, more: Tensor) -> None:
        """Another batch's flow."""
        self.flow = _plus(self.flow, more)

    def add_square(self, more: Tensor) -> None:
        """Another batch's squared flow, divided by the samples' weights."""
        self.square = _plus(self.square, more)

    def add_weight(self, more: Tensor) -> None:
        """Another batch's sample weights."""
        self.weight = _plus(self.weight, more)

    def keep(self, table: StateTable) -> None:
        """The tables of all batches agree; the one with a column for missing values serves all."""
        if self.table is None or table.scaled.shape[-1] >= self.table.scaled.shape[-1]:
            self.table = table


def _plus(total: Tensor | None, more: Tensor) -> Tensor:
    """Batches with and without missing values differ in the last column."""
    if total is None:
        return more
    if total.shape[-1] < more.shape[-1]:
        total = torch.nn.functional.pad(total, (0, 1))
    if more.shape[-1] < total.shape[-1]:
        more = torch.nn.functional.pad(more, (0, 1))
    return total + more


class Totals(Protocol):
    """The sums of an E-step that a table adds to (`Sums`)."""

    engine: Engine
    params: Params
    request: Request
    counts: list[Tensor]
    inputs: list[Tensor | None]
    ratio: list[Tensor]
    second: list[Tensor]
    flow_squared: Tensor
    local: Tensor
    total: Tensor
    starts: list[int]


def close_table(totals: Totals, place: int, sums: StateSums) -> None:
    """Add what the states of tabulated sums over input layer `place` amount to."""
    table, flow = sums.table, sums.flow
    assert table is not None
    assert flow is not None
    ratio = flow / table.scaled  # (R, G, K, S)
    totals.counts[sums.layer][:, sums.groups] += torch.matmul(ratio, table.elements.transpose(-1, -2))
    weights = totals.params.weights[sums.layer][:, sums.groups]
    child_flow = torch.matmul(weights.transpose(-1, -2), ratio) * table.elements  # (R, G, C, S)
    add_input_statistics(totals.inputs, place, totals.engine.program.inputs[place].family, child_flow)
    if totals.request.any:
        _close_curvature(totals, sums, table)


def add_input_statistics(totals: list[Tensor | None], number: int, family: Family, flow: Tensor) -> None:
    """Add the statistics of input layer `number` from its flow by state, (R, G, K, S, the last perhaps "missing")."""
    support = family.support()
    assert support is not None
    states = flow.new_tensor(support).expand(1, flow.shape[1], -1)
    features = family.features(states, None)  # (1, G, features, S without missing)
    seen = flow[..., : len(support)].to(features.dtype)
    more = torch.matmul(seen, features.expand(seen.shape[0], -1, -1, -1).transpose(-1, -2))
    total = totals[number]
    totals[number] = more if total is None else total + more


def _close_curvature(totals: Totals, sums: StateSums, table: StateTable) -> None:
    square, weight, layer, groups = sums.square, sums.weight, sums.layer, sums.groups
    assert square is not None
    assert weight is not None
    weight = weight * (table.log_largest > LOG_ZERO / 2)
    inverse = table.scaled.reciprocal()
    if totals.request.mean_ratio:
        totals.ratio[layer][:, groups] += torch.matmul(weight * inverse, table.elements.transpose(-1, -2))
    squares = table.elements.square()
    if totals.request.second_moment:
        totals.second[layer][:, groups] += torch.matmul(square * inverse.square(), squares.transpose(-1, -2))
    if totals.request.curvature:
        local = squares.sum(-2, keepdim=True) * inverse.square()  # t, (R, G, K, S)
        at = _units(totals, layer, groups)
        for total, by_state in (
            (totals.flow_squared, square),
            (totals.local, weight * local),
            (totals.total, square * local),
        ):
            total[:, at] += by_state.double().sum(-1).flatten(1)


def _units(totals: Totals, layer: int, groups: slice | Tensor) -> slice | Tensor:
    """Where the units of some sums of a layer lie among all sum units: without an index if it is the whole layer."""
    sums, units = totals.params.weights[layer].shape[1:3]
    first = totals.starts[layer]
    if isinstance(groups, slice) and groups == slice(None):
        return slice(first, first + sums * units)
    every = torch.arange(first, first + sums * units, device=totals.local.device)
    return every.view(sums, units)[groups].flatten()
