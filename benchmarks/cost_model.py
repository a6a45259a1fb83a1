"""Measures EM steps of random sizes, fits the formula of cost_formula.py to two thirds and checks it on the others.

    python benchmarks/cost_model.py [--device cuda] [--sizes 54] [--seconds 0.1] [--limit 100]

Every third size is held out of the fit. The sizes take turns, `--rounds` times, and the median over the rounds counts:
CPU seconds of the process on a CPU, with one thread, which other work on the machine disturbs less than the clock;
seconds between CUDA events on a GPU. There each size is measured twice: with the step recorded as a CUDA graph, as one
process trains (`graph`), and step by step, as workers of a process group do (`plain`).
"""

from __future__ import annotations

import argparse
import gc
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import PeakMemory, median_seconds, write_result
from cost_formula import (
    MEMORY_TERMS,
    TERMS,
    Size,
    balanced,
    error_summary,
    fit,
    memory_terms,
    parts,
    predict,
    terms,
)
from gpu_steps import Load, OurSteps, guarded, say
from peers_cpu import sample_data

import circurve as cc
from circurve.engine import choose_backend
from circurve.learning.graph_steps import GraphSteps
from circurve.learning.steps import PlainSteps


@dataclass(frozen=True)
class Range:
    """The sizes to draw from, and the most multiplications and weights of a step."""

    rows: tuple[int, int]
    columns: tuple[int, int]
    units: tuple[int, ...]
    runs: tuple[int, ...]
    most_edges: float
    most_weights: float


RANGES = {
    "cuda": Range((200, 16_384), (16, 1024), (16, 32, 64, 128, 256), (1, 4, 16), 1e12, 7e7),
    "cpu": Range((64, 4096), (8, 128), (8, 16, 32, 64), (1, 4), 1e9, 2e6),
}

SHORTEST = 0.005
"""Calls that take fewer seconds are timed several at a time."""


def draw(count: int, limits: Range, rng: np.random.Generator) -> list[Size]:
    """Sizes whose logarithms are uniform, without those beyond the limits."""
    sizes: list[Size] = []
    while len(sizes) < count:
        rows, columns = (round(math.exp(rng.uniform(*np.log(ends)))) for ends in (limits.rows, limits.columns))
        units, runs = int(rng.choice(limits.units)), int(rng.choice(limits.runs))
        size = balanced(rows, columns, units, runs)
        if size.weights <= limits.most_weights and size.weights * size.rows <= limits.most_edges:
            sizes.append(size)
    return sizes


def measure(size: Size, device: torch.device, budget: float) -> dict[str, Any]:
    """Seconds of a step by the kind of steps, and peak memory on a GPU."""
    data = sample_data(size.rows, size.columns, seed=0)
    parents = (np.arange(size.columns) - 1) // 2
    circuit = cc.hclt(data, units=size.units, families=[cc.Bernoulli()] * size.columns, tree=parents)
    gc.collect()
    peak = PeakMemory()
    run = OurSteps(circuit, data, device, Load(size.rows, size.runs))
    recorded = run.engine_steps
    if not isinstance(recorded, GraphSteps):
        return {"seconds": {"plain": cpu_seconds(run, budget)}}
    found: dict[str, Any] = {"seconds": {"graph": median_seconds(run, budget=budget)}, "peak_bytes": peak.bytes}
    params = recorded.snapshot()
    backend = choose_backend(recorded.backend.program, params, recorded.backend.name, "float32")
    run.engine_steps = PlainSteps(backend, recorded.plan, recorded.train, params, None)
    found["seconds"]["plain"] = median_seconds(run, budget=budget)
    return found


def cpu_seconds(run: Callable[[], Any], budget: float) -> float:
    """The median of the CPU seconds of a call, after two calls that are not timed."""
    run()
    started = time.process_time()
    run()
    calls = max(1, math.ceil(SHORTEST / max(time.process_time() - started, 1e-6)))
    times: list[float] = []
    while len(times) < 3 or sum(times) * calls < budget:
        started = time.process_time()
        for _ in range(calls):
            run()
        times.append((time.process_time() - started) / calls)
    return statistics.median(times)


def rounds_of(sizes: Sequence[Size], device: torch.device, arguments: argparse.Namespace) -> list[list[dict[str, Any]]]:
    """What each size had in each round, until the time is up. Each round has an order of its own."""
    found: list[list[dict[str, Any]]] = [[] for _ in sizes]
    started, rng = time.perf_counter(), np.random.default_rng(arguments.seed + 1)
    for number in range(arguments.rounds):
        for place in rng.permutation(len(sizes)):
            if time.perf_counter() - started > arguments.limit:
                say(f"{arguments.limit:g} s are over in round {number + 1}")
                return found
            size = sizes[place]
            row = guarded(lambda size=size: measure(size, device, arguments.seconds))
            found[place].append(row)
            say(f"{time.perf_counter() - started:.1f} s: {size} {row}")
    return found


def collected(sizes: Sequence[Size], found: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """One row for each size that was measured: the median of its rounds."""
    rows = []
    for size, part, tries in zip(sizes, parts(len(sizes)), found, strict=True):
        good = [one for one in tries if "error" not in one]
        row: dict[str, Any] = {**asdict(size), "part": part}
        if good:
            kinds = good[0]["seconds"]
            row["seconds"] = {kind: statistics.median(one["seconds"][kind] for one in good) for kind in kinds}
            if "peak_bytes" in good[0]:
                row["peak_bytes"] = max(one["peak_bytes"] for one in good)
        elif tries:
            row["error"] = tries[0]["error"]
        if tries:
            rows.append(row)
    return rows


def fitted(
    rows: Sequence[dict[str, Any]],
    value: Callable[[dict[str, Any]], float],
    features: Callable[[Size], list[float]],
    names: Sequence[str],
) -> dict[str, Any]:
    """Constants from the rows of the fit, and the relative error at each row."""
    sizes = [features(size_of(row)) for row in rows]
    used = [place for place, row in enumerate(rows) if row["part"] == "fit"]
    constants = fit([sizes[place] for place in used], [value(rows[place]) for place in used])
    errors = [predict(constants, size) / value(row) - 1 for size, row in zip(sizes, rows, strict=True)]
    by_part = {
        part: [error for error, row in zip(errors, rows, strict=True) if row["part"] == part]
        for part in ("fit", "check")
    }
    return {
        "constants": dict(zip(names, constants, strict=True)),
        "errors": {part: error_summary(of) for part, of in by_part.items() if of},
        "relative_errors": errors,
    }


def size_of(row: dict[str, Any]) -> Size:
    return Size(*(row[name] for name in ("rows", "columns", "units", "runs", "inner", "levels")))


def fits(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The formula for each kind of steps, and that for memory where it was measured."""
    good = [row for row in rows if "seconds" in row]
    kinds = good[0]["seconds"] if good else ()
    found = {kind: fitted(good, lambda row, kind=kind: row["seconds"][kind], terms, TERMS) for kind in kinds}
    with_memory = [row for row in good if row.get("peak_bytes", 0) > 0]
    if with_memory:
        found["memory"] = fitted(with_memory, lambda row: row["peak_bytes"], memory_terms, MEMORY_TERMS)
    for name, each in found.items():
        say(f"{name}: {each['constants']} {each['errors']}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--sizes", type=int, default=54, help="how many sizes; every third is held out")
    parser.add_argument("--rounds", type=int, default=1, help="how often each size is measured")
    parser.add_argument("--seconds", type=float, default=0.1, help="time for the repeats of one size in a round")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds after which no further size is measured")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--name", help="name of the result file (cost_model_cuda or cost_model_cpu)")
    parser.add_argument("--out", type=Path, help="folder for the result file")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    if device.type == "cpu":
        torch.set_num_threads(1)
    sizes = draw(arguments.sizes, RANGES[device.type], np.random.default_rng(arguments.seed))
    rows = collected(sizes, rounds_of(sizes, device, arguments))
    results = {"rounds": arguments.rounds, "fits": fits(rows), "rows": rows}
    say(f"written to {write_result(arguments.name or f'cost_model_{device.type}', results, arguments.out)}")


if __name__ == "__main__":
    main()
