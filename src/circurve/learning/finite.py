"""Are all numbers of a run finite? If not: what broke, one answer for each run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from circurve.engine import Params, Program
from circurve.engine.params import by_node
from circurve.learning.methods import Gated, Method
from circurve.learning.steps import EpochSums
from circurve.words import counted

__all__ = ["broken_parameter", "broken_scores", "broken_steps", "finite_runs", "first_broken_node"]


def finite_runs(params: Params) -> Tensor:  # (R,) boolean
    """Whether all parameters of each run are finite. The minimum and maximum of a tensor are NaN if any entry is.

    Answered on the device, without a synchronisation.
    """
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


def broken_parameter(program: Program, params: Params, place: int) -> str:
    """Names the first node with a parameter that is not finite."""
    node = first_broken_node(program, params.select([place]).to("cpu"), 0)
    return f"{node}: a parameter is not finite"


def broken_steps(program: Program, params: Params, sums: EpochSums, methods: Sequence[Method]) -> dict[int, str]:
    """Place -> what broke in the steps of an epoch. The parameters are looked at only if a run's are not finite."""
    found: dict[int, str] = {}
    for place, method in enumerate(methods):
        count = int(sums.broken[place])
        if not sums.finite[place]:
            found[place] = broken_parameter(program, params, place)
        elif count:
            samples = counted(count, "training sample has", "training samples have")
            found[place] = f"all parameters are finite, but {samples} a log-probability of NaN"
        elif isinstance(method, Gated) and math.isnan(sums.trace[place]):
            found[place] = "all parameters are finite, but the curvature that its gates follow is NaN"
        elif math.isnan(sums.train_ll(place)):
            found[place] = "all parameters are finite, but the training log-likelihood is NaN"
    return found


def broken_scores(scores: Mapping[str, Sequence[float]]) -> dict[int, str]:
    """Place -> which held-out data have a log-likelihood of NaN."""
    found: dict[int, str] = {}
    for name, values in scores.items():
        data = "validation" if name == "valid" else name
        for place, value in enumerate(values):
            if math.isnan(value):
                found.setdefault(place, f"all parameters are finite, but the {data} log-likelihood is NaN")
    return found
