"""Seconds of an all-reduce between processes of one machine, and the formula of cost_formula.py fitted to them.

    python benchmarks/network_cost.py [--sizes 54] [--turns 40]

Two processes with one thread each add up float64 numbers on gloo, as workers do with their statistics once in a step.
The numbers of bytes are random, with uniform logarithms. Every third is held out of the fit of

    seconds = 2 (M - 1) (hop_seconds + bytes / M / bytes_per_second)

with M = 2 processes. Seconds are by the clock, the median over the turns of the slower process: the machine must be at
rest. Small messages are sent many times in a row, which leaves out how long a process takes to wake up. Sizes take
turns in random order, so that a disturbance does not fall on one of them.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from common import write_result
from cost_formula import all_reduce_seconds, error_summary, fit, parts
from gpu_steps import say

from circurve.learning.parallel import add_up

WORKERS = 2
LEAST, MOST = 1 << 13, 1 << 26
"""Bytes: from the statistics of some columns with few units to those of a thousand columns with 90."""


BYTES_AT_LEAST, MOST_REPEATS = 20_000_000, 200
"""In a turn a message is sent again until this many bytes have travelled, but not more often than that."""


def draw(count: int, rng: np.random.Generator) -> list[int]:
    """Numbers of bytes."""
    return [8 * round(math.exp(rng.uniform(math.log(LEAST), math.log(MOST))) / 8) for _ in range(count)]


def measure(sizes: list[int], turns: int) -> list[float]:
    """The median seconds of each size, in one of the workers; all of them get the same."""
    numbers = [torch.zeros(size // 8, dtype=torch.float64) for size in sizes]
    found = torch.empty(turns + 1, len(sizes), dtype=torch.float64)
    rng = np.random.default_rng(1)  # the same order in all workers
    for turn in range(turns + 1):
        for place in rng.permutation(len(sizes)):
            repeats = min(MOST_REPEATS, -(-BYTES_AT_LEAST // sizes[place]))
            dist.barrier()
            started = time.perf_counter()
            for _ in range(repeats):
                add_up(numbers[place])
            found[turn, place] = (time.perf_counter() - started) / repeats
    dist.all_reduce(found, dist.ReduceOp.MAX)
    seconds: list[float] = found[1:].median(0).values.tolist()  # the first turn opens connections
    return seconds


def work(number: int, store: str, sizes: list[int], turns: int, results: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=number, world_size=WORKERS)
    found = measure(sizes, turns)
    if number == 0:
        results.put(found)
    dist.destroy_process_group()


def fitted(sizes: list[int], seconds: list[float]) -> dict[str, Any]:
    """The constants, from the sizes that are not held out, and the errors of all."""
    hops = 2 * (WORKERS - 1)
    rows = [[float(hops), hops * size / WORKERS] for size in sizes]
    part = parts(len(sizes))
    inside = [place for place, name in enumerate(part) if name == "fit"]
    hop, per_byte = fit([rows[place] for place in inside], [seconds[place] for place in inside])
    predicted = [all_reduce_seconds(size, WORKERS, 1 / per_byte, hop) for size in sizes]
    errors = [guess / actual - 1 for guess, actual in zip(predicted, seconds, strict=True)]
    return {
        "hop_seconds": hop,
        "bytes_per_second": 1 / per_byte,
        "errors": {
            name: error_summary([error for error, own in zip(errors, part, strict=True) if own == name])
            for name in ("fit", "check")
        },
        "rows": [
            {"bytes": size, "seconds": actual, "error": error, "part": name}
            for size, actual, error, name in zip(sizes, seconds, errors, part, strict=True)
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, default=54)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--out", type=Path, help="folder for the result file")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    sizes = draw(arguments.sizes, np.random.default_rng(0))
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        children = [
            context.Process(target=work, args=(number, f"{folder}/store", sizes, arguments.turns, results))
            for number in range(WORKERS)
        ]
        for child in children:
            child.start()
        seconds = results.get(timeout=600)
        for child in children:
            child.join()
    found = {"workers": WORKERS, "load_average_before": load, **fitted(sizes, seconds)}
    say(str({name: value for name, value in found.items() if name != "rows"}))
    say(f"written to {write_result('network_cost', found, arguments.out)}")


if __name__ == "__main__":
    main()
