"""Are all numbers of a run finite? Answered on the device, one number for each run, without a synchronisation."""

from __future__ import annotations

import torch
from torch import Tensor

from circurve.engine import Params, Program
from circurve.engine.params import by_node

__all__ = ["finite_runs", "first_broken_node"]


def finite_runs(params: Params) -> Tensor:  # (R,) boolean
    """Whether all parameters of each run are finite: least and largest of each tensor, which NaN carries through."""
    filled = [tensor for tensor in (*params.weights, *params.inputs) if tensor[0].numel()]
    if not filled:
        return torch.ones(params.runs, dtype=torch.bool, device=params.device)
    bounds = [bound for tensor in filled for bound in torch.aminmax(tensor.flatten(1), dim=1)]
    return torch.stack(bounds).isfinite().all(0)


def first_broken_node(program: Program, params: Params, run: int) -> str | None:
    """The first node, children first, with a parameter that is not finite, by its name; None if there is none."""
    for node, values in by_node(program, params, run).items():
        if not bool(values.isfinite().all()):
            return program.circuit.name_of(node)
    return None
