"""What the benchmarks share: the EM step under test, interleaved timing, result files that say where they come from."""

from __future__ import annotations

import json
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

import circurve as cc
from circurve.engine import Engine, Params, Program, Request, Samples, compile, stack
from circurve.engine import statistics as e_step
from circurve.engine.memory import chunk_size
from circurve.learning.examples import prepare
from circurve.learning.initialize import initial_params
from circurve.learning.plan import Plan
from circurve.learning.score import chunks

RESULTS = Path(__file__).parent / "results"


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
    if "--data-dir" in words:
        words[words.index("--data-dir") + 1] = "DEBD"
    if "--peers-python" in words:
        words[words.index("--peers-python") + 1] = "peers/bin/python"
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
    """Seconds of each side, `repeats` times, one side after the other so that a disturbance falls on all of them."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for run in sides.values():
        run()
    for _ in range(repeats):
        for name, run in sides.items():
            _wait()
            start = time.perf_counter()
            run()
            _wait()
            times[name].append(time.perf_counter() - start)
    return times


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def medians(times: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in times.items()}


class EMStep:
    """One full-batch EM step (E-step in chunks, M-step) of an HCLT on given binary data."""

    def __init__(self, data: np.ndarray, units: int, device: str = "cpu", runs: int = 1) -> None:
        circuit = cc.hclt(data, units=units)
        prepared = prepare(data, circuit, "train")
        place = torch.device(device)
        self.program: Program = compile(circuit)
        starts = [initial_params(self.program, seed, prepared.table) for seed in range(runs)]
        self.params: Params = stack(starts).to(place, torch.float32)
        self.samples = Samples.of(prepared.table, place, torch.float32)
        self.engine = Engine(self.program, runs, place, torch.float32, tables=True)
        self.plan = Plan(self.program, [cc.Vanilla()] * runs, self.params.inputs[0])
        self.chunk = chunk_size(self.engine, backward=True)
        self.sizes = (len(data), data.shape[1], units, runs)

    def __call__(self, request: Request | None = None, chunk: int | None = None) -> float:
        """Do the step; returns the mean log-likelihood before it."""
        sums = e_step(self.engine, self.params, chunks(self.samples, chunk or self.chunk), request)
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
