"""Curvature sums of the reference backend on CUDA in one pass: torch has no reduction that multiplies on the way."""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Protocol

import torch
from torch import Tensor

__all__ = ["add_row_sums", "serves", "state_sums"]

ROWS, SAMPLES = 2, 1024
"""Rows of a program, and how many samples of them it reads at once."""


@cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def serves(values: Tensor) -> bool:
    """Whether the kernel can be used for tensors like this one."""
    return values.is_cuda and values.dtype == torch.float32 and _has_triton()


class Passed(Protocol):
    """What is read of a sum layer's backward pass (`SumPass`)."""

    @property
    def flow(self) -> Tensor: ...  # F, (R, G, K, N)
    @property
    def scaled(self) -> Tensor: ...  # S, (R, G, K, N)
    @property
    def log_largest(self) -> Tensor: ...  # m, (R, G, 1, N)


def add_row_sums(units: Tensor, first: int, step: Passed, norm: Tensor, weights: tuple[Tensor, Tensor]) -> None:
    """Add a layer's sums over samples of F^2, t and T to units (3, R, M) float64, from unit `first` on:

        sum_n F^2 / w        sum_n w q / S^2        sum_n F^2 q / (S^2 w)

    norm: the square root of q, the sum of E^2, (R, G, 1, N); weights: w and 1 / w, (R, N). Groups of samples in which
    no child is possible are left out of t.
    """
    from circurve.engine.cuda import norm_kernels  # noqa: PLC0415 - Triton is imported only when it is used

    runs, groups, rows, samples = step.flow.shape
    norm_kernels.row_sums[(-(-rows // ROWS), groups, runs)](
        step.flow, step.scaled, norm, step.log_largest, *weights, units,
        groups, rows, samples, first, units.shape[2], units.stride(0), BK=ROWS, BN=_block(samples),
    )  # fmt: skip


def state_sums(flow: Tensor, indicator: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor]:
    """Sums over samples of F and F^2 / w by state, (R, G, K, S) each.

    flow: (R, G, K, N), contiguous; indicator: (R or 1, G, S, N), which state each sample has; inverse of w: (R, N).
    """
    from circurve.engine.cuda import norm_kernels  # noqa: PLC0415 - Triton is imported only when it is used

    runs, groups, units, samples = flow.shape
    states = indicator.shape[2]
    indicator = indicator.contiguous()
    out = torch.empty(2, runs, groups, units, states, device=flow.device, dtype=torch.float32)
    norm_kernels.state_sums[(-(-units // ROWS), groups, runs)](
        flow, indicator, inverse.contiguous(), out, groups, units, samples,
        indicator.stride(0) if indicator.shape[0] > 1 else 0, out.stride(0),
        S=states, S2=1 << (states - 1).bit_length() if states > 1 else 1, BK=ROWS, BN=_block(samples),
    )  # fmt: skip
    return out[0], out[1]


def _block(samples: int) -> int:
    return min(SAMPLES, max(16, 1 << (samples - 1).bit_length()))
