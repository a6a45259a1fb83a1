"""What workers of a process group exchange in a step, counted, and how much faster two of them are than one.

    python benchmarks/parallel_cost.py

Two processes with one thread each train on gloo. Bytes are those handed to `all_reduce`, and those of the formula of
cost_formula.py. Three things are timed in turns, by the clock and in CPU seconds of the first worker:

    alone     one process does all rows of a step, the other waits
    both      each process does half of the rows and nothing is exchanged
    together  each process does half of the rows and they exchange their statistics, as workers do

alone / together is the speed-up: by the clock with the waiting for each other, which needs a machine at rest, and in
CPU seconds without it. both / together is the part of a worker's time that the exchange leaves for the rows. The median
over the turns counts.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from common import write_result
from cost_formula import Size, balanced, statistics_bytes
from gpu_steps import Load, OurSteps, say
from peers_cpu import sample_data

import circurve as cc
from circurve.learning.steps import PlainSteps

WORKERS = 2
SIZES = (
    *(balanced(rows, 32, 16) for rows in (512, 4096, 32_768)),
    *(balanced(rows, 64, 64) for rows in (512, 4096)),
    balanced(4096, 16, 16, runs=4),
)
CLOCKS = {"clock": time.perf_counter, "cpu": time.process_time}


def steps_of(size: Size, rows: int, alone: bool) -> OurSteps:
    """EM steps on `rows` rows; alone: by this process, even in a process group."""
    data = sample_data(rows, size.columns, seed=0)
    parents = (np.arange(size.columns) - 1) // 2
    circuit = cc.hclt(data, units=size.units, families=[cc.Bernoulli()] * size.columns, tree=parents)
    run = OurSteps(circuit, data, torch.device("cpu"), Load(rows, size.runs))
    if alone:
        steps = run.engine_steps
        run.engine_steps = PlainSteps(steps.backend, steps.plan, steps.train, steps.params, None)  # type: ignore[attr-defined]
    return run


def bytes_sent(run: Callable[[], None]) -> list[int]:
    """Bytes of each all-reduce in a call."""
    sent: list[int] = []
    original = dist.all_reduce

    def counted(tensor: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        sent.append(tensor.numel() * tensor.element_size())
        return original(tensor, *arguments, **options)

    dist.all_reduce = counted
    try:
        run()
    finally:
        dist.all_reduce = original
    return sent


def timed(run: Callable[[], None], takes_part: bool) -> dict[str, float]:
    """Seconds by each clock until all workers are done; a worker that takes no part waits."""
    dist.barrier()
    started = {name: clock() for name, clock in CLOCKS.items()}
    if takes_part:
        run()
    used = time.process_time() - started["cpu"]
    dist.barrier()
    return {"clock": time.perf_counter() - started["clock"], "cpu": used}


def measure(size: Size, number: int, turns: int) -> dict[str, Any]:
    """One size, in one of the workers."""
    sides = {
        "alone": (steps_of(size, size.rows, alone=True), number == 0),
        "both": (steps_of(size, size.rows // WORKERS, alone=True), True),
        "together": (steps_of(size, size.rows, alone=False), True),
    }
    sent = bytes_sent(sides["together"][0])
    for run, takes_part in sides.values():
        timed(run, takes_part)
    turned = [{name: timed(*side) for name, side in sides.items()} for _ in range(turns)]

    def ratio(over: str, clock: str) -> float:
        return statistics.median(turn[over][clock] / turn["together"][clock] for turn in turned)

    return {
        **asdict(size),
        "all_reduces_in_a_step": len(sent),
        "bytes": sum(sent),
        "bytes_by_formula": statistics_bytes(size),
        "seconds": {
            clock: {name: statistics.median(turn[name][clock] for turn in turned) for name in sides} for clock in CLOCKS
        },
        "speed_up": {clock: ratio("alone", clock) for clock in CLOCKS},
        "left_by_the_exchange": {clock: ratio("both", clock) for clock in CLOCKS},
    }


def work(number: int, store: str, turns: int, results: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=number, world_size=WORKERS)
    for size in SIZES:
        found = measure(size, number, turns)
        if number == 0:
            results.put(found)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=25)
    parser.add_argument("--out", type=Path, help="folder for the result file")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        children = [
            context.Process(target=work, args=(number, f"{folder}/store", arguments.turns, results))
            for number in range(WORKERS)
        ]
        for child in children:
            child.start()
        rows = []
        for _ in SIZES:
            rows.append(results.get(timeout=300))
            say(str(rows[-1]))
        for child in children:
            child.join()
    found = {"workers": WORKERS, "load_average_before": load, "rows": rows}
    say(f"written to {write_result('parallel_cost', found, arguments.out)}")


if __name__ == "__main__":
    main()
