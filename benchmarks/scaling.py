"""Time and memory of an EM step over all samples, against samples, variables, units and runs: one at a time.

    python benchmarks/scaling.py [--device cuda] [--quick]

A slope is that of a least-squares line through log(time) or log(memory): 1 is linear, 2 quadratic. It is given for all
points and for the upper half of them, where fixed costs weigh less. One step goes over the whole data set, in chunks
whose buffers fit --memory-gib: beyond that, memory should grow with the samples by the data alone.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import write_result
from gpu_steps import Load, guarded, measure_ours, say
from peers_cpu import sample_data

import circurve as cc


@dataclass(frozen=True)
class Size:
    """One point."""

    samples: int
    variables: int
    units: int
    runs: int


BASE = {
    "cuda": Size(16_384, 128, 128, 1),
    "cpu": Size(2048, 32, 32, 1),
}
AXES = {
    "cuda": {
        "samples": (2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072),
        "variables": (16, 32, 64, 128, 256, 512, 1024),
        "units": (16, 32, 64, 128, 256, 512),
        "runs": (1, 2, 4, 8, 16, 32, 64),
    },
    "cpu": {
        "samples": (1024, 2048, 4096, 8192),
        "variables": (16, 32, 64, 128),
        "units": (16, 32, 64, 128),
        "runs": (1, 2, 4, 8),
    },
}


def point(size: Size, device: torch.device, memory_budget: int, seconds: float) -> dict[str, Any]:
    data = sample_data(size.samples, size.variables, seed=0)
    parents = (np.arange(size.variables) - 1) // 2  # a balanced tree, so that depth does not limit the speed
    circuit = cc.hclt(data, units=size.units, families=[cc.Bernoulli()] * size.variables, tree=parents)
    load = Load(size.samples, size.runs, memory_budget=memory_budget)
    measured = measure_ours(circuit, data, device, load, seconds)
    kept = ("seconds_per_step", "first_call_seconds", "compile_seconds", "peak_bytes", "engine")
    return {**asdict(size), **{name: measured[name] for name in kept}}


def slopes(rows: list[dict[str, Any]], axis: str) -> dict[str, dict[str, float]]:
    """Slopes of log(time) and log(memory) against log(size), for all points and the upper half."""
    measured = [row for row in rows if "error" not in row]
    halves = {"all": measured, "upper": measured[len(measured) // 2 :]}
    found: dict[str, dict[str, float]] = {}
    for quantity in ("seconds_per_step", "peak_bytes"):
        parts = {name: [row for row in part if row[quantity] > 0] for name, part in halves.items()}
        found[quantity] = {name: _slope(part, axis, quantity) for name, part in parts.items() if len(part) > 1}
    return found


def _slope(rows: list[dict[str, Any]], axis: str, quantity: str) -> float:
    x, y = (np.log([row[name] for row in rows]) for name in (axis, quantity))
    return float(np.polyfit(x, y, 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--axes", default="samples,variables,units,runs")
    parser.add_argument("--seconds", type=float, default=3.0, help="time for the repeats of one point")
    parser.add_argument("--memory-gib", type=float, default=4.0, help="for the buffers of a chunk")
    parser.add_argument("--quick", action="store_true", help="three points on each axis")
    parser.add_argument("--name", default="scaling", help="name of the result file")
    parser.add_argument("--out", type=Path, help="folder for the result file")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    base = BASE[device.type]
    measure = partial(point, device=device, memory_budget=int(arguments.memory_gib * 2**30), seconds=arguments.seconds)
    guarded(partial(measure, replace(base, samples=1024)))  # libraries take memory of their own when first called
    results: dict[str, Any] = {"base": asdict(base), "memory_gib": arguments.memory_gib, "axes": {}}
    for axis in arguments.axes.split(","):
        values = AXES[device.type][axis][: 3 if arguments.quick else None]
        rows = []
        for value in values:
            size = replace(base, **{axis: value})
            rows.append({**asdict(size), **guarded(partial(measure, size))})
            say(str(rows[-1]))
        results["axes"][axis] = {"rows": rows, "slopes": slopes(rows, axis)}
        say(f"{axis}: {results['axes'][axis]['slopes']}")
        write_result(arguments.name, results, arguments.out)
    say(f"written to {write_result(arguments.name, results, arguments.out)}")


if __name__ == "__main__":
    main()
