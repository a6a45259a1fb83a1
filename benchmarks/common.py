"""What the benchmarks share: the EM step under test, interleaved timing, result files that say where they come from."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import platform
import random
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

import circurve as cc
from circurve.data import prepare
from circurve.engine import Batch, Params, Program, Request, choose_backend, chunks, compile, stack
from circurve.engine.memory import chunk_size
from circurve.learning.initialize import initial_params
from circurve.learning.plan import Plan

RESULTS = Path(__file__).parent / "results"

T = TypeVar("T")


def environment() -> dict[str, Any]:
    """Hardware and versions, for the head of a result file."""
    found: dict[str, Any] = {
        "command": _command(sys.argv),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "circurve": metadata.version("circurve") if _installed("circurve") else cc.__version__,
    }
    if torch.cuda.is_available():
        found |= {"gpu": torch.cuda.get_device_name(), "cuda": torch.version.cuda}
    return found


def _command(arguments: Sequence[str]) -> str:
    """The command line, without the folders of this machine."""
    words = list(arguments)
    if "--out" in words:
        at = words.index("--out")
        del words[at : at + 2]
    for option, shown in (("--data-dir", "DEBD"), ("--before", "OLDER")):
        if option in words:
            words[words.index(option) + 1] = shown
    if "--peers-python" in words:
        words[words.index("--peers-python") + 1] = "peers/bin/python"
    if "--pyjuice" in words:
        words[words.index("--pyjuice") + 1] = "PYJUICE"
    return shlex.join(["python", *words])


def _installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def write_result(name: str, results: Any, folder: Path | None = None) -> Path:
    """Write a result file with its environment."""
    target = (folder or RESULTS) / f"{name}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps({"environment": environment(), "results": results}, indent=1) + "\n")
    return target


def interleaved(sides: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Seconds of each side, `repeats` times, one side after the other so that a disturbance falls on all of them.

    Every round has an order of its own: a side that frees much memory slows down the one after it.
    """
    times: dict[str, list[float]] = {name: [] for name in sides}
    for run in sides.values():
        run()
    order = random.Random(0)
    for _ in range(repeats):
        for name, run in order.sample(list(sides.items()), len(sides)):
            _wait()
            start = time.perf_counter()
            run()
            _wait()
            times[name].append(time.perf_counter() - start)
    return times


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def median_seconds(run: Callable[[], Any], repeats: int = 15, budget: float = 10.0) -> float:
    """The median over `repeats` calls, fewer if they take longer than `budget` seconds, after one untimed call.

    On a GPU CUDA events take the time, so a call counts from its first kernel to its last.
    """
    run()
    _wait()
    times: list[float] = []
    started = time.perf_counter()
    while len(times) < repeats and (not times or time.perf_counter() - started < budget):
        times.append(_seconds(run))
    return statistics.median(times)


def _seconds(run: Callable[[], Any]) -> float:
    if not torch.cuda.is_available():
        start = time.perf_counter()
        run()
        return time.perf_counter() - start
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first.record()
    run()
    last.record()
    torch.cuda.synchronize()
    return first.elapsed_time(last) / 1e3


def seconds_of(build: Callable[[], T]) -> tuple[T, float]:
    """What a call returns, and how long it took, until the device is done."""
    _wait()
    start = time.perf_counter()
    result = build()
    _wait()
    return result, time.perf_counter() - start


class PeakMemory:
    """How much more memory was in use at the peak, since this was made or restarted, than when it was made.

    On a GPU torch's own count; on a CPU the resident memory of the process, on Linux only (else 0).
    """

    def __init__(self) -> None:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        else:
            with suppress(OSError, AttributeError):
                ctypes.CDLL(None).malloc_trim(0)  # what was freed would hide what is needed now
        self.restart()
        self.before = torch.cuda.memory_allocated() if torch.cuda.is_available() else _resident("VmRSS")

    def restart(self) -> None:
        """Forget the peak so far."""
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
            return
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")

    @property
    def bytes(self) -> int:
        peak = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else _resident("VmHWM")
        return peak - self.before


def _resident(field: str) -> int:
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(field)), 0)


def ratio_in_turns(times: Sequence[float], others: Sequence[float]) -> float:
    """The median ratio of two sides of `interleaved`, turn by turn."""
    return statistics.median(time / other for time, other in zip(times, others, strict=True))


def medians(times: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in times.items()}


class EMStep:
    """One full-batch EM step (E-step in chunks, M-step) of an HCLT on given binary data."""

    def __init__(self, data: np.ndarray, units: int, device: str = "cpu", runs: int = 1) -> None:
        circuit = cc.hclt(data, units=units)
        table = prepare(data, circuit, "train")
        place = torch.device(device)
        self.program: Program = compile(circuit)
        starts = [initial_params(self.program, seed, table) for seed in range(runs)]
        self.params: Params = stack(starts).to(place, torch.float32)
        self.table = table.to(place)
        self.whole = Batch.rows(self.table, 0, len(self.table), torch.float32)  # made once, as in training
        self.backend = choose_backend(self.program, self.params)
        self.plan = Plan(self.program, [cc.Vanilla()] * runs, self.params.inputs[0])
        self.chunk = chunk_size(self.backend, backward=True)
        self.sizes = (len(data), data.shape[1], units, runs)

    def __call__(self, request: Request | None = None, chunk: int | None = None) -> float:
        """Do the step; returns the mean log-likelihood before it."""
        size = chunk or self.chunk
        batches = [self.whole] if size >= len(self.table) else chunks(self.table, size, torch.float32)
        sums = self.backend.statistics(self.params, batches, request)
        runs = self.params.runs
        self.params = self.plan.maximize(self.params, sums, [1.0] * runs, [0.0] * runs)
        return float(sums.mean_log_likelihood[0])

    @property
    def flops(self) -> float:
        """6 samples variables states^2: three matrix products over every edge of the tree."""
        samples, variables, units, runs = self.sizes
        return 6.0 * samples * variables * units**2 * runs


def batched_matmul_rate(units: int, samples: int, groups: int = 16) -> Callable[[], float]:
    """A function that measures the rate, in flop/s, of the same kind of product that the engine is made of."""
    weights, elements = torch.rand(groups, units, units), torch.rand(groups, units, samples)
    out = torch.empty(groups, units, samples)
    flops = 2.0 * groups * units * units * samples

    def measure() -> float:
        times = []
        for _ in range(20):
            start = time.perf_counter()
            torch.bmm(weights, elements, out=out)
            times.append(time.perf_counter() - start)
        return flops / statistics.median(times)

    return measure
