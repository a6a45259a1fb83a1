"""Where the time of a fleet's EM step goes, kernel by kernel, and what bounds it.

    python benchmarks/fleet_limits.py [--data-dir DIR] [--only nltcs,plants] [--runs 64] [--batch 200]

The time of each kernel is compared with the time in which the machine copies as many bytes as the kernel must read and
write, and the three matrix products with the time of the vendor's batched product of the same size, in float32 and in
tf32. Kernels that run side by side are counted in full, so that the sum may exceed the time of a step.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import torch
from common import median_seconds, write_result
from gpu_steps import CASES, Load, OurSteps, guarded, load_data, say
from roofline import FLOAT, copy_rate, matmul_precision, matmul_rate
from torch.profiler import ProfilerActivity, profile

import circurve as cc
from circurve.engine.cuda.blueprint import FACTOR
from circurve.engine.cuda.fused import FusedEngine

PRODUCTS = ("sums", "flows", "counts")


def kernel_seconds(run: OurSteps) -> dict[str, float]:
    """Seconds of each kernel in a step."""
    run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        run()
        torch.cuda.synchronize()
    times = {event.key: event.self_device_time_total / 1e6 / run.steps for event in found.key_averages()}
    return {name: seconds for name, seconds in times.items() if seconds > 0}


def least_bytes(engine: FusedEngine) -> dict[str, float]:
    """What each kernel reads and writes at least in a step."""
    plans, tables, packs = engine.blueprint.sums, engine.blueprint.tables, engine.packing.packs
    values = sum(g * k for g, k, _ in (plan.shape for plan in plans))
    elements = sum(g * c for g, _, c in (plan.shape for plan in plans))
    messages = sum(int((plan.kinds == FACTOR).sum()) * plan.shape[2] for plan in plans)
    received = sum(int((plan.readers > 0).sum()) for plan in plans)
    by_state = sum(int((plan.readers > 0).sum()) for plan in tables)
    edges = sum(pack.size * pack.width for pack in packs)
    widths = {number: packs[at].width for number, (at, _) in engine.packing.place.items()}
    leaves = sum(plan.groups * plan.units * widths[plan.sums] for plan in tables if plan.sums is not None)
    inner = edges - leaves
    row, edge = FLOAT * engine.runs * engine.width, FLOAT * engine.runs
    return {
        "elements": row * (messages + elements),
        "sums": row * (elements + values) + edge * inner,
        "ratios": row * (received + 2 * values),
        "flows": row * (values + 2 * elements) + edge * inner,
        "counts": row * (values + elements) + 2 * edge * inner,
        "by_state": row * by_state,
        "leaf_counts": 2 * edge * leaves,
        "maximize": 3 * edge * edges,
    }


def library_seconds(engine: FusedEngine, units: int, device: torch.device) -> dict[str, float]:
    """The vendor's batched product of all groups of `units` units, as one of the three products of a step."""
    groups = engine.runs * sum(plan.shape[0] for plan in engine.blueprint.sums if plan.shape[1:] == (units, units))
    found = {}
    for name, precision in (("float32", "highest"), ("tf32", "high")):
        with matmul_precision(precision):
            found[name] = 2.0 * groups * units**2 * engine.width / matmul_rate(device, groups, units, engine.width)
    return found


def measure(name: str, load: Load, data_dir: Path | None, device: torch.device, copies: float) -> dict[str, Any]:
    """One circuit: a step as a whole, and each kernel compared with its bounds."""
    data = load_data(CASES[name], data_dir)
    units = CASES[name].units
    run = OurSteps(cc.hclt(data, units=units), data, device, load)
    seconds = median_seconds(run, budget=1.0) / run.steps
    engine = getattr(run.engine_steps, "engine", None)
    assert isinstance(engine, FusedEngine), "this benchmark is about the fused kernels"
    bounds, library = least_bytes(engine), library_seconds(engine, units, device)
    kernels = [
        {
            "kernel": kernel,
            "seconds": time,
            "copy_seconds": bounds[kernel] / copies if kernel in bounds else None,
            "library_seconds": library if kernel in PRODUCTS else None,
        }
        for kernel, time in sorted(kernel_seconds(run).items(), key=lambda item: -item[1])
    ]
    return {"seconds_per_step": seconds, "kernels": kernels}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="nltcs,plants")
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--runs", type=int, default=64)
    parser.add_argument("--data-dir", type=Path, help="a folder with the DEBD files; else random data")
    parser.add_argument("--out", type=Path, help="folder for the result file")
    arguments = parser.parse_args()
    device = torch.device("cuda", torch.cuda.current_device())
    copies = copy_rate(device, 1 << 30)
    rows = []
    for name in arguments.only.split(","):
        load = Load(arguments.batch, arguments.runs)
        row = {"case": name, "units": CASES[name].units, "batch": load.batch, "runs": load.runs}
        rows.append(row | guarded(partial(measure, name, load, arguments.data_dir, device, copies)))
        say(str(rows[-1]))
    say(f"written to {write_result('fleet_limits', {'copy': copies, 'rows': rows}, arguments.out)}")


if __name__ == "__main__":
    main()
