"""The one switch between backends: the plain torch reference, and fused kernels where they serve."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import torch

from circurve.engine.bound import Engine
from circurve.engine.cuda import FusedEngine, blueprint_for, why_not
from circurve.engine.params import Params
from circurve.engine.program import Program
from circurve.engine.tables import has_few_states
from circurve.errors import OptionError
from circurve.inputs import LOG_ZERO

__all__ = ["AnyEngine", "Backend", "bind_engine", "chosen_backend"]

TINY_STATE = {torch.float32: 1e-9, torch.float64: 1e-70}
"""The fourth power of anything larger is far from the end of the floating range."""

AnyEngine: TypeAlias = Engine | FusedEngine

Backend: TypeAlias = Literal["auto", "reference", "fused"]


def chosen_backend(program: Program, device: torch.device, dtype: torch.dtype) -> str:
    """The backend that "auto" takes, and why: one line for people."""
    reason = _why_not(program, device, dtype)
    return "fused CUDA kernels" if reason is None else f"torch reference ({reason})"


def bind_engine(
    program: Program, params: Params, backend: Backend = "auto", precision: str = "float32"
) -> Engine | FusedEngine:
    """An engine for parameters of this shape, on their device. "fused" insists; "auto" takes what serves.

    precision: "tf32" lets the fused kernels round factors of products to 10 bits.
    """
    if backend != "reference":
        why = why_not if backend == "fused" else _why_not
        reason = why(program, params.device, params.dtype)
        if reason is None and params.may_underflow(program):
            reason = "weights of zero may need the repair of underflows"
        if reason is None:
            blueprint = blueprint_for(program)
            assert not isinstance(blueprint, str)
            return FusedEngine(blueprint, params.runs, params.device, precision)
        if backend == "fused":
            raise OptionError(f"backend='fused' cannot be used: {reason}")
    careful = program.masked or params.may_underflow() or _has_tiny_states(program, params)
    return Engine(program, params.runs, params.device, params.dtype, careful, tables=True)


def _has_tiny_states(program: Program, params: Params) -> bool:
    """Whether some state is so improbable, yet possible, that a few such factors are lost from a joint table.

    Training stays far above; parameters made by hand or elsewhere need not.
    """
    tiny = math.log(TINY_STATE[params.dtype])
    for layer, values in zip(program.inputs, params.inputs, strict=True):
        if not has_few_states(layer.family):
            continue
        states = values.new_tensor(layer.family.support()).expand(1, layer.shape[0], -1)
        logs = layer.family.log_prob(values, states, values.new_empty(*values.shape[:3], states.shape[-1]))
        if bool(((logs < tiny) & (logs > LOG_ZERO / 2)).any()):
            return True
    return False


def _why_not(program: Program, device: torch.device, dtype: torch.dtype) -> str | None:
    """`why_not` for "auto", which never takes the kernels' interpreter."""
    return why_not(program, device, dtype) if device.type == "cuda" else f"the device is a {device.type}"
