"""A script that compiles two kernels ahead for a GPU that is not there; `test_compile_process.py` runs it.

`python compile_kernels.py FOLDER WAY...`: "process" as it is, "broken" with a process that fails, "none" where no
process can be started, "error" with work that goes wrong, "reversed" with the kernels in the other order. It prints, as
JSON, each kernel with whether it was found in Triton's cache, and what is in the cache then. TRITON_INTERPRET must not
be set.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from circurve.engine.cuda import compile_process, small_kernels
from circurve.engine.cuda.compile_ahead import Kernels, compile_ahead


class NoDevice:
    """Stands for a CUDA device."""

    type = "cuda"


def pretend() -> None:
    """Let Triton see a GPU that it can compile for."""
    target = GPUTarget("cuda", 90, 32)
    driver.set_active(
        SimpleNamespace(
            get_current_device=lambda: 0,
            get_current_stream=lambda _: 0,
            get_current_target=lambda: target,
            launcher_cls=slice,  # any class that takes two arguments
        )
    )
    torch.cuda.set_device = lambda _: None


def launch_input_table() -> None:
    """A kernel that calls a function with a constant, as the other one does."""
    parameters, table = torch.zeros(1, 2, 3, 1), torch.zeros(1, 6, 2)
    Kernels(small_kernels).input_table[(1, 1)](
        parameters=parameters, table=table, table_stride=12, first_row=0, units=6, P=1, BERNOULLI=True, S=2, BU=16
    )


def launch_leaf_table() -> None:
    """The other one."""
    names = ("parameters", "weights", "table", "elements", "scaled", "largest")
    Kernels(small_kernels).leaf_table[(1, 1, 1)](
        **{name: torch.zeros(16) for name in names}, weight_stride=48, table_stride=12, first_row=0, first_pack=0,
        G=1, K=3, C=3, CW=16, P=1, BERNOULLI=True, S=2, BK=16, C2=16,
    )  # fmt: skip


def compile_in(way: str, cache: Path) -> list[tuple[str, bool]]:
    """Compile in one of the ways: each kernel that Triton compiled or loaded, with whether it was in the cache."""
    for kernel in (small_kernels.input_table, small_kernels.leaf_table):
        kernel.device_caches.clear()  # as in a new process
    found: list[tuple[str, bool]] = []
    triton.knobs.cache.dir = str(cache)
    triton.knobs.compilation.listener = lambda *, src, cache_hit, **_: found.append((src.name, cache_hit))

    def work() -> None:
        launches = [launch_input_table, launch_leaf_table]
        for launch in reversed(launches) if way == "reversed" else launches:
            launch()
        launch_input_table()
        if way == "error":
            raise torch.OutOfMemoryError

    for _ in range(2):  # the second time, nothing is left to compile
        with suppress(torch.OutOfMemoryError):
            compile_ahead(NoDevice(), work)
    return sorted(found)


def main(folder: Path, ways: list[str]) -> None:
    """Compile in each of these ways. Each has its own cache, except the reversed one, which uses an earlier cache."""
    pretend()
    worker, executable = compile_process.WORKER, sys.executable
    result = {}
    for way in ways:
        compile_process.WORKER = folder / "there_is_no_such_script.py" if way == "broken" else worker
        sys.executable = "" if way == "none" else executable
        cache = folder / ("process" if way == "reversed" else way)
        result[way] = {"kernels": compile_in(way, cache), "cache": sorted(path.name for path in cache.iterdir())}
    print(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
