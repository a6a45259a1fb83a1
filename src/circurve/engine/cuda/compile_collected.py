"""Kernels that are collected while launches only compile, and then compiled all at once.

Triton's front end is Python, whose lock lets one thread at a time into it. So kernels are compiled in other processes,
into Triton's cache, and this process loads them from there. What those processes cannot do is compiled here.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Thread, get_ident
from typing import Any

import torch
import triton
from triton import knobs
from triton.runtime import cache, driver

from circurve.engine.cuda.compile_process import CompileProcess, Order, Toolchain

__all__ = ["compile_collected"]

MAX_THREADS = 8
"""More threads than this wait for Python's lock more than they gain. (Measured: 3.8 s with 8, 4.7 s with 16.)"""


def compile_collected(device: torch.device, work: Callable[[], None]) -> None:
    """Do `work`, whose launches must only compile, in this thread, while another process compiles its kernels.

    Where Triton's cache is empty, that process is started before it is known what to compile: it is ready when the
    driver is.
    """
    with ExitStack() as stack:
        process = _start(stack) if _is_empty(knobs.cache.dir) else None
        hashing = Thread(target=cache.triton_key)  # reads all of Triton, once for this process
        hashing.start()
        target = driver.active.get_current_target()
        hashing.join()
        triton = Toolchain(vars(target), driver.active.launcher_cls, cache.triton_key())
        orders = _Orders(triton, process, lambda: _start(stack))
        with _Collection(device, orders) as collection:
            try:
                work()
                orders.finish()
            finally:  # whatever happened: what was collected has been promised to Triton
                collection.load()


class _Orders:
    """The kernels that Triton's cache does not have, handed to a process that compiles them as they come.

    A process is started for two of them: one is compiled here sooner.
    """

    def __init__(
        self, triton: Toolchain, process: CompileProcess | None, start: Callable[[], CompileProcess | None]
    ) -> None:
        self._triton, self._process, self._start = triton, process, start
        self._waiting: list[Order] = []
        if process is not None:
            process.use(triton)

    def add(self, order: Order) -> None:
        """Compile a kernel."""
        self._waiting.append(order)
        if self._process is None and len(self._waiting) == 2:
            self._process = self._start()
            if self._process is not None:
                self._process.use(self._triton)
        if self._process is not None:
            for each in self._waiting:
                self._process.order(each)
            self._waiting = []

    def finish(self) -> None:
        """Wait until all that was ordered is compiled."""
        if self._process is not None:
            self._process.finish()


def _start(stack: ExitStack) -> CompileProcess | None:
    process = CompileProcess.start(knobs.cache.dir)
    return process and stack.enter_context(process)


def _is_empty(folder: str) -> bool:
    return not Path(folder).is_dir() or not any(Path(folder).iterdir())


class _Later(Executor):
    """Keeps tasks until they are asked for."""

    def __init__(self) -> None:
        self.tasks: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, task: Callable[[], Any], /, *_: Any, **__: Any) -> Future[Any]:
        """A promise of the task's result."""
        future: Future[Any] = Future()
        self.tasks.append((future, task))
        return future


class _Collection(triton.AsyncCompileMode):  # type: ignore[misc]
    """While it is active, kernels of this thread are collected instead of compiled."""

    def __init__(self, device: torch.device, orders: _Orders) -> None:
        self._later = _Later()
        super().__init__(self._later)
        self._device, self._thread = device, get_ident()
        self._order: Order = ("", "", "")
        self._orders, self._keys = orders, set[str]()  # those that Triton's cache has for kernels

    def __enter__(self) -> _Collection:
        self._hook = knobs.runtime.jit_cache_hook
        knobs.runtime.jit_cache_hook = self._note
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        knobs.runtime.jit_cache_hook = self._hook
        super().__exit__(*error)

    def _note(self, **told: Any) -> Any:
        """Triton's hook before it compiles a kernel, in any thread; returning True would stop the compilation."""
        if get_ident() == self._thread:
            self._order = (told["fn"].module, told["fn"].name, told["compile"]["specialization_data"])
        return None if self._hook is None else self._hook(**told)

    def submit(self, key: str, *work: Callable[..., Any]) -> Any:
        """Triton calls this to compile the kernel of the last call of `_note`."""
        if key not in self._keys:
            self._keys.add(key)
            if not _is_cached(key, self._order):
                self._orders.add(self._order)
        return super().submit(key, *work)

    def load(self) -> None:
        """Load all kernels from Triton's cache, and compile those that are not there."""
        threads = min(MAX_THREADS, os.cpu_count() or 1)
        with ThreadPoolExecutor(threads, initializer=torch.cuda.set_device, initargs=(self._device,)) as pool:
            for future, task in self._later.tasks:
                pool.submit(_fulfil, future, task)


def _is_cached(key: str, order: Order) -> bool:
    name = f"{order[1][:150]}.json"
    return cache.get_cache_manager(hashlib.sha256(key.encode()).hexdigest()).get_group(name) is not None


def _fulfil(future: Future[Any], task: Callable[[], Any]) -> None:
    try:
        kernel = task()
        _build_launcher(kernel)
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(kernel)


def _build_launcher(kernel: Any) -> None:
    """Leave a kernel's launcher in Triton's cache of compiled files.

    The launcher that is made here is not used: Triton loads all launchers as modules of one name, and a thread may be
    given that of another. The first launch loads it from the cache, in the thread that launches.
    """
    make = getattr(driver.active, "launcher_cls", None)
    if make is not None:
        make(kernel.src, kernel.metadata)
