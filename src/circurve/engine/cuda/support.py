"""Whether the fused kernels can compute a program on a device, and if not, why."""

from __future__ import annotations

import importlib.util
import os
from weakref import WeakKeyDictionary

import torch

from circurve.engine.cuda.blueprint import Blueprint, Unfit, draw
from circurve.engine.program import Program

__all__ = ["blueprint_for", "why_not"]

_BLUEPRINTS: WeakKeyDictionary[Program, Blueprint | str] = WeakKeyDictionary()
"""Drawn once for each program, and gone with it."""


def blueprint_for(program: Program) -> Blueprint | str:
    """The layout for the kernels, or the reason why there is none."""
    if program not in _BLUEPRINTS:
        try:
            _BLUEPRINTS[program] = draw(program)
        except Unfit as reason:
            _BLUEPRINTS[program] = str(reason)
    return _BLUEPRINTS[program]


def why_not(program: Program, device: torch.device, dtype: torch.dtype) -> str | None:
    """The reason why the fused kernels cannot compute a program there, or None if they can.

    Triton's interpreter (TRITON_INTERPRET=1) runs the kernels on a CPU, slowly, for tests.
    """
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return f"fused kernels need a CUDA device, not {device.type}"
    if dtype != torch.float32:
        return "fused kernels compute in float32 only"
    if importlib.util.find_spec("triton") is None:
        return "the package triton is not installed"
    blueprint = blueprint_for(program)
    return blueprint if isinstance(blueprint, str) else None
