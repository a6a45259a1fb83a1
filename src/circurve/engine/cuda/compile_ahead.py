"""The kernels of a piece of work compiled side by side, before any of them runs.

Triton compiles a kernel, and a launcher for it, when it is first launched: one after the other, about half a second
each, and a training step with its scores has about twenty. Here the work is done once with launches that only collect
what has to be compiled, and then everything is compiled at once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, copy_context
from typing import Any

import torch

__all__ = ["Kernels", "compile_ahead"]

NEWEST = (3, 9)
"""The newest Triton that was tried: deferring compilation in this way is not a part of its public interface."""

FUSED = {"enable_fp_fusion": True}
"""Products and sums are fused, whatever the default of a version of Triton is."""

_COMPILE_ONLY: ContextVar[bool] = ContextVar("compile_only", default=False)


class Kernels:
    """The kernels of a module, launched as Triton's are: kernels.name[grid](...)."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> _Launch:
        from circurve.engine.cuda.kernel_keys import fix_keys  # noqa: PLC0415 - it imports Triton

        fix_keys(self._module)
        launch = _Launch(getattr(self._module, name))
        setattr(self, name, launch)
        return launch


class _Launch:
    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        if _COMPILE_ONLY.get():
            return lambda **arguments: self._kernel.warmup(grid=grid, **arguments, **FUSED)
        launch = self._kernel[grid]
        return lambda **arguments: launch(**arguments, **FUSED)


def compile_ahead(device: torch.device, work: Callable[[], None]) -> None:
    """Do `work` with kernels that are compiled and do not run; what torch computes in between is computed.

    It does nothing without a GPU, or if Triton cannot defer compilation, or is newer than those that were tried:
    kernels are then compiled when they are launched. It does nothing inside other work that compiles ahead either,
    because that work includes this one.
    """
    if device.type != "cuda" or not _can_wait() or _COMPILE_ONLY.get():
        return
    copy_context().run(_compile_ahead, device, work)


def _can_wait() -> bool:
    import triton  # noqa: PLC0415 - imported only when used
    from triton.runtime import cache  # noqa: PLC0415 - imported only when used

    version = tuple(int(part) for part in triton.__version__.split(".")[:2])
    return version <= NEWEST and hasattr(triton, "AsyncCompileMode") and hasattr(cache, "triton_key")


def _compile_ahead(device: torch.device, work: Callable[[], None]) -> None:
    """In a separate context, so that neither this mode nor Triton's stays active after an error."""
    from circurve.engine.cuda.compile_collected import compile_collected  # noqa: PLC0415 - it imports Triton

    _COMPILE_ONLY.set(True)
    compile_collected(device, work)
