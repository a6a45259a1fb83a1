"""A script that compiles kernels for another process, all at once: each of them in a fork of its own.

It imports Triton and the modules of the kernels, and neither torch nor the rest of the package, so it is ready in a
third of a second, and no thread or CUDA context is there when it forks. The compiled files go to Triton's cache, where
the other process finds them. Orders come on standard input as JSON; `compile_process.py` says what is in them.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from contextlib import suppress
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
    orders = json.loads(sys.stdin.read() or "{}")
    if not orders:
        return 0
    _use_target(orders["target"], orders["triton_key"])
    module, name = orders["launcher"]
    launcher = getattr(importlib.import_module(module), name)
    kernels = [(getattr(importlib.import_module(module), name), data) for module, name, data in orders["kernels"]]
    return _fork_for_each([lambda k=k, d=d: _compile(k, d, launcher) for k, d in kernels], orders["processes"])


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


def _fork_for_each(tasks: list[Any], processes: int) -> int:
    """Run each task in a fork, at most `processes` at a time; 1 if one of them failed."""
    running, failed = 0, 0
    for task in tasks:
        if running == processes:
            failed |= os.wait()[1]
            running -= 1
        if os.fork() == 0:
            _run_and_exit(task)
        running += 1
    for _ in range(running):
        failed |= os.wait()[1]
    return int(failed != 0)


def _run_and_exit(task: Any) -> None:
    status = 1
    try:
        task()
        status = 0
    finally:
        os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
