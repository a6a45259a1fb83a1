"""Kernels that begin before the last one of their stream has ended: on new GPUs this hides the time a launch takes.

A kernel of a chain first lets the next one begin, reads what no kernel of the chain writes, and then waits for the end
of the last one. Every program of such a kernel must wait, so that the end of one is the end of all before it.
"""

# mypy: ignore-errors
from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING

import triton
import triton.language as tl

if TYPE_CHECKING:
    import torch

try:
    from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
except ImportError:  # an older Triton
    gdc_launch_dependents = gdc_wait = None

__all__ = ["chains", "let_next_begin", "wait_for_last"]

CAPABILITY, DRIVER = (9, 0), 12_030
"""The first GPUs that can do it, and the first driver that can record it in a CUDA graph."""


def chains(device: torch.device) -> bool:
    """Whether kernels on the device can begin early."""
    if device.type != "cuda" or gdc_wait is None:
        return False
    import torch  # noqa: PLC0415 - kernels are compiled in processes that do not import it

    return torch.cuda.get_device_capability(device) >= CAPABILITY and _driver_version() >= DRIVER


def _driver_version() -> int:
    """What the driver says of itself, 12030 for CUDA 12.3; 0 if it cannot be asked."""
    found = ctypes.c_int(0)
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        driver.cuDriverGetVersion(ctypes.byref(found))
    except (OSError, AttributeError):
        return 0
    return found.value


@triton.jit
def let_next_begin(EARLY: tl.constexpr):
    """The next kernel of the chain may begin, up to where it waits for this one."""
    if EARLY:
        gdc_launch_dependents()


@triton.jit
def wait_for_last(EARLY: tl.constexpr):
    """From here on, what earlier kernels of the stream wrote is there."""
    if EARLY:
        gdc_wait()
