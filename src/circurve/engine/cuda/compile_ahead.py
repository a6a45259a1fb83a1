"""The kernels of a piece of work compiled side by side, before any of them runs.

Triton compiles a kernel, and a launcher for it, when it is first launched: one after the other, about half a second
each, and a training step has some twenty. Here the work is done once with launches that only compile, on several
threads; the compilers and the assembler do not hold Python's lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import torch

__all__ = ["Kernels", "compile_ahead"]

_COMPILE_ONLY: ContextVar[bool] = ContextVar("compile_only", default=False)

MAX_THREADS = 8
"""More threads than this wait for Python's lock more than they gain. (Measured: 3.8 s with 8, 4.7 s with 16.)"""


class Kernels:
    """The kernels of a module, launched as Triton's are: kernels.name[grid](...)."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> _Launch:
        launch = _Launch(getattr(self._module, name))
        setattr(self, name, launch)
        return launch


class _Launch:
    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        if not _COMPILE_ONLY.get():
            launcher: Callable[..., Any] = self._kernel[grid]
            return launcher
        return lambda **arguments: self._kernel.warmup(grid=grid, **arguments)


def compile_ahead(device: torch.device, work: Callable[[], None]) -> None:
    """Do `work` with kernels that are compiled and do not run; what torch computes in between is computed.

    It does nothing off the GPU, or where Triton cannot compile on several threads: kernels are then compiled when they
    are launched.
    """
    import triton  # noqa: PLC0415 - imported only when used

    if device.type != "cuda" or not hasattr(triton, "AsyncCompileMode"):
        return
    threads = min(MAX_THREADS, os.cpu_count() or 1)
    token = _COMPILE_ONLY.set(True)
    try:
        with _Compilers(threads, device) as compilers, triton.AsyncCompileMode(compilers):
            work()
    finally:
        _COMPILE_ONLY.reset(token)


class _Compilers(ThreadPoolExecutor):
    """Threads that compile a kernel and make it ready to be launched."""

    def __init__(self, threads: int, device: torch.device) -> None:
        super().__init__(threads, initializer=torch.cuda.set_device, initargs=(device,))

    def submit(self, compile_kernel: Callable[[], Any], /, *args: Any, **options: Any) -> Future[Any]:
        """Compile a kernel and its launcher."""

        def work() -> Any:
            kernel = compile_kernel(*args, **options)
            _build_launcher(kernel)
            return kernel

        return super().submit(work)


def _build_launcher(kernel: Any) -> None:
    """Leave a kernel's launcher in Triton's cache of compiled files.

    The launcher that is made here is not used: Triton loads all launchers as modules of one name, and a thread may be
    given that of another. The first launch loads it from the cache, in the thread that launches.
    """
    from triton.runtime import driver  # noqa: PLC0415 - imported only when used

    make = getattr(driver.active, "launcher_cls", None)
    if make is not None:
        make(kernel.src, kernel.metadata)
