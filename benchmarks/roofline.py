"""How close an EM step comes to what the machine can do: the larger of arithmetic and memory traffic over its time.

    python benchmarks/roofline.py [--device cuda] [--quick]

With N samples in a step, R runs, and a sum of K units over C child units:

    flops = 6 N R sum over the sums of K C
            (three products of 2 N K C: values, flows of the children, counts)
    bytes = 4 R (6 sum of K C  +  3 N sum of (K + C)  +  N sum of input units)
            (float32. Weights: read in both passes, and in the M-step; counts: written, read; new weights: written.
             Values: children read and own written; in the backward pass children and own read again. Flows: own read,
             children's written; those of inputs read again)

The bytes are the least for passes that go through memory layer by layer; the flops are those of the plain algorithm.
An engine that computes less than that (sums over discrete inputs once for each state) may pass 100 %. The share is

    max(flops / measured rate of a large matrix product, bytes / measured rate of a copy) / measured seconds,

for a product in float32 and in tf32. Next to it are the rates of batched products as large as those of the circuit.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import median_seconds, write_result
from gpu_steps import CASES, Load, guarded, load_data, measure_ours, numbers, say

import circurve as cc

FLOAT = 4
"""Bytes of a number."""


@contextmanager
def matmul_precision(name: str) -> Iterator[None]:
    """ "highest" is float32, "high" allows tf32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def matmul_rate(device: torch.device, groups: int, rows: int, columns: int) -> float:
    """flop/s of `groups` products (rows x rows) (rows x columns)."""
    left = torch.rand(groups, rows, rows, device=device)
    right = torch.rand(groups, rows, columns, device=device)
    out = torch.empty(groups, rows, columns, device=device)
    seconds = median_seconds(lambda: torch.bmm(left, right, out=out), budget=1.0)
    return 2.0 * groups * rows * rows * columns / seconds


def copy_rate(device: torch.device, size: int) -> float:
    """Bytes read and written in a second by a copy of `size` bytes."""
    source = torch.empty(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2.0 * size / median_seconds(lambda: target.copy_(source), budget=1.0)


def machine(device: torch.device) -> dict[str, float]:
    """Rates that nothing on this machine exceeds by much."""
    large = 8192 if device.type == "cuda" else 1024
    found = {"copy": copy_rate(device, (1 << 30) if device.type == "cuda" else (1 << 27))}
    for name, precision in (("float32", "highest"), ("tf32", "high")):
        with matmul_precision(precision):
            found[name] = matmul_rate(device, 1, large, large)
    return found


def flops(circuit: cc.Circuit, samples: int, runs: int) -> float:
    return 6.0 * samples * runs * sum(node.edges for node in circuit.sums)


def traffic(circuit: cc.Circuit, samples: int, runs: int) -> float:
    """Bytes, by the formula above."""
    edges = sum(node.edges for node in circuit.sums)
    units = sum(node.units + node.child_units for node in circuit.sums)
    inputs = sum(node.units for node in circuit.inputs)
    return float(FLOAT * runs * (6 * edges + 3 * samples * units + samples * inputs))


def share(
    circuit: cc.Circuit, data: np.ndarray, device: torch.device, load: Load, rates: dict[str, float], budget: float
) -> dict[str, Any]:
    """One configuration: the bounds and what part of them the measured step reaches."""
    measured = measure_ours(circuit, data, device, load, budget)
    seconds = measured["seconds_per_step"]
    arithmetic, memory = flops(circuit, load.batch, load.runs), traffic(circuit, load.batch, load.runs)
    bounds = {name: max(arithmetic / rates[name], memory / rates["copy"]) for name in ("float32", "tf32")}
    return {
        "seconds_per_step": seconds,
        "engine": measured["engine"],
        "flops": arithmetic,
        "bytes": memory,
        "flops_per_second": arithmetic / seconds,
        "bytes_per_second": memory / seconds,
        "bound": {
            name: "memory" if memory / rates["copy"] > arithmetic / rates[name] else "arithmetic" for name in bounds
        },
        "share": {name: bound / seconds for name, bound in bounds.items()},
    }


def batched_rates(units: int, load: Load, device: torch.device) -> dict[str, float]:
    """flop/s of products of the circuit's size, 16 sums of all runs at a time."""
    groups = min(16 * load.runs, max(1, (1 << 30) // (FLOAT * units * (units + 2 * load.batch))))
    found = {}
    for name, precision in (("float32", "highest"), ("tf32", "high")):
        with matmul_precision(precision):
            found[name] = matmul_rate(device, groups, units, load.batch)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--batches", type=numbers, default=(200, 512, 4096))
    parser.add_argument("--fleets", type=numbers, default=(1, 16))
    parser.add_argument("--precisions", default="float32,tf32", help="of Circurve's products")
    parser.add_argument("--data-dir", type=Path, help="a folder with the DEBD files; else random data")
    parser.add_argument("--seconds", type=float, default=4.0, help="time for the repeats of one configuration")
    parser.add_argument("--quick", action="store_true", help="nltcs, one batch size, one run")
    parser.add_argument("--name", default="roofline", help="of the result file")
    parser.add_argument("--out", type=Path, help="folder for the result file")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    names = ["nltcs"] if arguments.quick else arguments.only.split(",")
    batches, fleets = ((512,), (1,)) if arguments.quick else (arguments.batches, arguments.fleets)
    precisions = arguments.precisions.split(",") if device.type == "cuda" else ["float32"]
    rates = machine(device)
    say(f"rates: {rates}")
    results: dict[str, Any] = {"rates": rates, "rows": []}
    for name in names:
        data = load_data(CASES[name], arguments.data_dir)
        units = CASES[name].units
        circuit = cc.hclt(data, units=units)
        sizes = {"samples": len(data), "variables": data.shape[1], "units": units}
        for batch in sorted({min(batch, len(data)) for batch in batches}):
            for runs in fleets:
                for precision in precisions:
                    load = Load(batch, runs, precision=precision)
                    row = {"case": name, **sizes, **asdict(load)}
                    row |= guarded(partial(share, circuit, data, device, load, rates, arguments.seconds))
                    row["batched_matmul"] = guarded(partial(batched_rates, units, load, device))
                    results["rows"].append(row)
                    reached = row.get("share", {}).get(precision, math.nan)
                    say(f"{name} batch {batch} runs {runs} {precision}: {reached:.1%} {row.get('error', '')}")
                    write_result(arguments.name, results, arguments.out)
    say(f"written to {write_result(arguments.name, results, arguments.out)}")


if __name__ == "__main__":
    main()
