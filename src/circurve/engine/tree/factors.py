"""Factors by state for given parameters: their joint tables, and back from sums by joint state to each factor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from circurve.engine.batch import Batch
from circurve.engine.numerics import MESSAGES
from circurve.engine.params import Params
from circurve.engine.program import Program
from circurve.engine.states import StateTable, state_logs
from circurve.engine.tree.joint import JointPlan, TableShape
from circurve.engine.tree.layout import TreeLayout
from circurve.engine.tree.memory import Views

__all__ = ["ByLayer", "by_factor", "factor_values", "leaf_tables", "mark_states", "write_joint"]

ByLayer = dict[int, Tensor]
"""(R, G, K, states) of the factors by input layer: of the inputs, or of the leaves on them."""


def mark_states(plan: JointPlan, views: Views, batch: Batch) -> None:
    """Write which joint state of each table each sample has, as zeros and ones."""
    states = batch.x.transpose(0, 1)  # (V, R or 1, all samples)
    if batch.observed is not None:
        assert plan.missing is not None
        states = states + (1 - batch.observed.transpose(0, 1)) * plan.missing
    if views.padded:
        more = states[..., -1:].expand(-1, -1, views.parts * views.width - views.samples)
        states = torch.cat([states, more], dim=-1)
    states = states.view(*states.shape[:2], views.parts, views.width)  # (V, R or 1, P, N)
    for shape, indicator in zip(plan.shapes, views.indicators, strict=True):
        number = states.new_zeros(())
        for size, variables in zip(reversed(shape.sizes), reversed(shape.variables), strict=True):
            number = number * size + states.index_select(0, variables)  # (count, R or 1, P, N)
        out = indicator.view(shape.count, -1, views.parts, shape.states, views.width)
        number = number.expand(shape.count, out.shape[1], *states.shape[2:]).unsqueeze(-2)
        torch.eq(number, torch.arange(shape.states, dtype=states.dtype).unsqueeze(-1), out=out)


def by_factor(plan: JointPlan, joint: Sequence[Tensor]) -> ByLayer:
    """Sums by the joint state of each table -> by the state of each factor. joint: (count, S, R, K) for each shape."""
    runs, units = joint[0].shape[2:]
    base = joint[0].new_zeros(plan.base_rows, runs, units)
    for shape, sums in zip(plan.shapes, joint, strict=True):
        apart = sums.reshape(_apart(shape, runs, units))
        for i, rows in enumerate(shape.factors):
            others = [axis for axis in range(1, len(shape.sizes) + 1) if axis != len(shape.sizes) - i]
            base[rows] = apart.sum(others) if others else apart
    return {key: base[rows].permute(2, 0, 3, 1) for key, rows in plan.layers.items()}


def _apart(shape: TableShape, runs: int, units: int) -> tuple[int, ...]:
    """The shape of joint tables with an axis for each factor, the last factor first."""
    return (shape.count, *reversed(shape.sizes), runs, units)


def leaf_tables(program: Program, tree: TreeLayout, params: Params, missing: bool) -> dict[int, StateTable]:
    """The tables of all leaves by input layer."""
    found = {}
    for number, leaves in tree.leaves.items():
        weights = params.weights[leaves.layer][:, leaves.positions]
        found[number] = StateTable.of(program.inputs[number].family, weights, params.inputs[number], missing)
    return found


def factor_values(program: Program, leaves: Mapping[int, StateTable], params: Params, missing: bool) -> ByLayer:
    """The probabilities of all factors by state; that of a missing value is 1."""
    values: ByLayer = {}
    for number, (inputs, parameters) in enumerate(zip(program.inputs, params.inputs, strict=True)):
        if number in leaves:
            values[number] = leaves[number].sums * leaves[number].log_largest.exp()
        else:
            values[number] = state_logs(inputs.family, parameters, missing).exp_()
    return values


def write_joint(plan: JointPlan, values: ByLayer, tables: Sequence[Tensor]) -> list[Tensor]:
    """Write the product of the factors of each table for each of its joint states, (count, R, P, K, S) for each shape.

    Each column is scaled to length 1; returns the logarithms of the lengths, (count, R, S).
    """
    runs, _, units = tables[0].shape[1:4]
    base = tables[0].new_empty(plan.base_rows, runs, units)
    for key, rows in plan.layers.items():
        base[rows] = values[key].permute(1, 3, 0, 2)
    logs = []
    for shape, table in zip(plan.shapes, tables, strict=True):
        product = base.new_ones(())
        for rows in shape.factors:  # each later factor is a slower axis, to the left
            product = base[rows].view(shape.count, -1, 1, runs, units) * product
            product = product.view(shape.count, 1, -1, runs, units)
        by_state = product.expand(shape.count, 1, shape.states, runs, units)[:, 0]
        largest = by_state.amax(-1, keepdim=True).clamp_min_(torch.finfo(table.dtype).tiny)
        scaled = by_state / largest  # before squaring, which would underflow
        length = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True).clamp_min_(1.0)
        table.copy_((scaled / length).permute(0, 2, 3, 1).unsqueeze(2))
        torch.threshold_(table, MESSAGES[table.dtype].flush, 0.0)
        logs.append((largest.log() + length.log())[..., 0].transpose(1, 2).contiguous())
    return logs
