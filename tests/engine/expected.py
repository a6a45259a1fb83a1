"""What an E-step must return, sum by sum, from the definitions alone; and how results are compared with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import torch
from torch import Tensor

from circuits import Case, Truth, all_sums
from circurve.engine import CurvatureSums, Request, Statistics
from circurve.graph import Input, Sum

CURVATURE = {"curvature": ("flow_squared", "local", "total"), "mean_ratio": ("ratio",)}
CURVATURE |= {"second_moment": ("second_moment",), "squared_ratio": ("squared_ratio",)}
CURVATURE["flow_weighted"] = ("flow_local", "flow_log_local", "flow")
"""Which sums each field of `Request` asks for."""


def true_statistics(case: Case) -> Statistics:
    """All sums over the samples of a case: per sample from `Truth`, then added up with the samples' weights."""
    truth, weight = Truth.of(case), case.weight
    possible = truth.root > 0

    def by_layer(per_sample: Callable[[Sum], Tensor]) -> tuple[Tensor, ...]:  # (units, ..., N) for each node
        layers = case.program.sums
        return tuple(torch.stack([(per_sample(node) * weight).sum(-1) for node in s.nodes])[None] for s in layers)

    def features(node: Input) -> Tensor:  # (units, statistics of the family)
        column = torch.from_numpy(case.x)[:, node.variable]
        seen = truth.flow[node] * weight * ~column.isnan()
        return seen @ node.family.features(column.nan_to_num()[None], None)[0].T

    return Statistics(
        counts=by_layer(truth.edge_flow),
        inputs=tuple(torch.stack([features(node) for node in layer.nodes])[None] for layer in case.program.inputs),
        log_likelihood=(weight[possible] * truth.root[possible].log()).sum()[None],
        weight=weight[possible].sum()[None],
        impossible=(~possible & (weight > 0)).sum()[None],
        broken=torch.zeros(1, dtype=torch.int64),
        curvature=CurvatureSums(
            flow_squared=by_layer(lambda node: truth.flow[node].square()),
            local=by_layer(truth.local),
            total=by_layer(truth.total),
            ratio=by_layer(truth.ratio),
            second_moment=by_layer(lambda node: truth.edge_flow(node).square()),
            flow_local=by_layer(lambda node: truth.flow[node] * truth.local(node)),
            flow_log_local=by_layer(lambda node: torch.xlogy(truth.flow[node], truth.local(node))),
            flow=by_layer(lambda node: truth.flow[node]),
            squared_ratio=by_layer(lambda node: truth.ratio(node).square()),
        ),
    )


def left_out(request: Request) -> set[str]:
    """The curvature sums that a request does not ask for."""
    asked = {name for field, names in CURVATURE.items() if getattr(request, field) for name in names}
    return {field.name for field in fields(CurvatureSums)} - asked


def assert_same(found: Statistics, wanted: Statistics, relative: float, absolute: float) -> None:
    """Equal counts of samples left out, and equal sums, number by number."""
    for one, other in zip(all_sums(found), all_sums(wanted), strict=True):
        torch.testing.assert_close(one.double().cpu(), other.double().cpu(), rtol=relative, atol=absolute)
    assert torch.equal(found.impossible.cpu(), wanted.impossible.cpu())
    assert torch.equal(found.broken.cpu(), wanted.broken.cpu())
