"""A script that compiles kernels for another process, side by side: each of them in a fork of its own.

It imports Triton and the modules of the kernels, and neither torch nor the rest of the package, so it is ready in a
third of a second, and no thread or CUDA context is there when it forks. The compiled files go to Triton's cache, where
the other process finds them. Lines of JSON come on standard input, first what to compile for and then one kernel in
each; `compile_process.py` says what is in them.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

__all__: list[str] = []


def main() -> int:
    """0 if every kernel was compiled, if there is none to compile, or if the other process has ended."""
    sys.path[:] = json.loads(sys.argv[1])
    root = Path(__file__).resolve().parents[2]
    _leave_out_package_code(root)
    _import_kernels(root)
    first = sys.stdin.readline()
    if not first:
        return 0
    told = json.loads(first)
    _use_target(told["target"], told["triton_key"])
    launcher = _named(*told["launcher"])
    forks = _Forks(told["processes"])
    for line in iter(sys.stdin.readline, ""):
        module, name, data = json.loads(line)
        forks.run(partial(_compile, _named(module, name), data, launcher))
    return forks.wait()


def _named(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def _leave_out_package_code(root: Path) -> None:
    """Make every package below `root` importable without running its __init__.py, which would import torch."""
    for file in root.rglob("__init__.py"):
        package = ModuleType(".".join(file.parent.relative_to(root.parent).parts))
        package.__path__ = [str(file.parent)]
        sys.modules[package.__name__] = package


def _import_kernels(root: Path) -> None:
    """Import Triton's compiler and all kernels of the package, while waiting for orders."""
    importlib.import_module("triton.compiler")
    from circurve.engine.cuda.kernel_keys import fix_keys  # noqa: PLC0415 - packages have been replaced by now

    for file in sorted(root.glob("*/cuda/*kernels.py")):
        fix_keys(importlib.import_module(".".join(file.relative_to(root.parent).with_suffix("").parts)))


def _use_target(target: dict[str, Any], triton_key: str) -> None:
    """Compile for this GPU, without asking for one, and with the hash of Triton that the other process has found."""
    from triton.backends.compiler import GPUTarget  # noqa: PLC0415 - imported only when used
    from triton.runtime import cache, driver  # noqa: PLC0415 - imported only when used

    gpu = GPUTarget(**target)
    driver.set_active(SimpleNamespace(get_current_device=lambda: 0, get_current_target=lambda: gpu))
    cache.triton_key = lambda: triton_key


def _compile(kernel: Any, specialization: str, launcher: Any) -> None:
    """Leave a compiled kernel in the cache, and its launcher where launchers are compiled too."""
    compiled = kernel.preload(specialization)
    with suppress(Exception):  # without it, the first launch compiles the launcher
        launcher(compiled.src, compiled.metadata)


class _Forks:
    """Tasks in processes of their own, at most `most` at a time."""

    def __init__(self, most: int) -> None:
        self._most, self._running, self._failed = most, 0, 0

    def run(self, task: Callable[[], None]) -> None:
        """Start a task, after the end of another one if there are too many."""
        if self._running == self._most:
            self._await_one()
        if os.fork() == 0:
            _run_and_exit(task)
        self._running += 1

    def wait(self) -> int:
        """Wait for all of them; 1 if one of them failed."""
        while self._running:
            self._await_one()
        return int(self._failed != 0)

    def _await_one(self) -> None:
        self._failed |= os.wait()[1]
        self._running -= 1


def _run_and_exit(task: Callable[[], None]) -> None:
    status = 1
    try:
        task()
        status = 0
    finally:
        os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
