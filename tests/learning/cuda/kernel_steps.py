"""Both kernels of the sum weights, launched on plain tensors, as `learning/graph_steps.py` does on an engine's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["DEVICE", "Step", "kernel_step", "launch"]

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # without a GPU: Triton's interpreter, see conftest.py


@dataclass(frozen=True)
class Step:
    """The numbers of an M-step, one for each run: forms int32, the others float64, (R,)."""

    forms: Tensor
    mu: Tensor
    alpha: Tensor
    multiplier: Tensor
    scale: Tensor
    pseudocount: Tensor

    @classmethod
    def of(
        cls, form: int, mu: float = 0.0, multiplier: float = 1.0, scale: float = 1.0, pseudocount: float = 0.0
    ) -> Step:
        """Of one run, with a step size of one."""
        numbers = [torch.tensor([value], dtype=torch.float64) for value in (mu, 1.0, multiplier, scale, pseudocount)]
        return cls(torch.tensor([form], dtype=torch.int32), *numbers)


def kernel_step(
    weights: Tensor, counts: Tensor, moments: Tensor, gates: Tensor, step: Step, masked: bool = False
) -> Tensor:  # (R, rows, C)
    """The weights after both kernels; gates: (R, rows) float64, the others (R, rows, C) float32."""
    from circurve.learning.cuda.mstep_kernels import maximize
    from circurve.learning.cuda.simplex_kernels import maximize_exactly

    moved = padded(weights)
    arguments = arguments_of(moved, padded(counts), gates, step, weights.shape[-1], masked)
    launch(maximize, **arguments)
    launch(maximize_exactly, moments=padded(moments), **arguments)
    return moved[..., : weights.shape[-1]].cpu()


def padded(values: Tensor) -> Tensor:  # (R, rows, C) -> (R, rows, CW), zeros at the end
    """In memory as the engine has it: rows of at least 16 numbers."""
    width = max(16, -(-values.shape[-1] // 4) * 4)
    return torch.nn.functional.pad(values, (0, width - values.shape[-1])).contiguous().to(DEVICE)


def arguments_of(
    weights: Tensor, counts: Tensor, gates: Tensor, step: Step, children: int, masked: bool
) -> dict[str, Any]:
    """By their names in the kernels; all rows in one program."""
    runs, rows, width = weights.shape
    return {
        "weights": weights, "counts": counts, "gates": gates.to(DEVICE),
        "units": torch.arange(rows, dtype=torch.int32, device=DEVICE),
        "alphas": step.alpha.to(DEVICE), "mus": step.mu.to(DEVICE),
        "number": torch.zeros(1, dtype=torch.int64, device=DEVICE), "forms": step.forms.to(DEVICE),
        "multiplier": step.multiplier.to(DEVICE), "scale": step.scale.to(DEVICE),
        "pseudocount": step.pseudocount.float().to(DEVICE),
        "weight_stride": weights.stride(0), "gate_stride": gates.stride(0), "rows": rows, "R": runs,
        "C": children, "CW": width, "C2": _power(children), "BR": _power(rows), "MASKED": masked,
    }  # fmt: skip


def launch(kernel: Any, **arguments: Any) -> None:
    """One program for each run."""
    kernel[(1, arguments["R"])](**arguments)


def _power(size: int) -> int:
    return 1 << max(0, size - 1).bit_length()
