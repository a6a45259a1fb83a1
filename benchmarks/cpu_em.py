"""EM steps on a CPU: the share of the machine's batched-matmul rate, and seconds compared with cirkit and SPFlow.

python benchmarks/cpu_em.py                                   # the share alone
python benchmarks/cpu_em.py --peers-python peers/bin/python   # and the peers (see peers_cpu.py)

The peers are measured twice: tuned to their best, and plain, as a user runs them. The share is also measured for a
fleet of 16 runs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import EMStep, batched_matmul_rate, interleaved, medians, write_result
from peers_cpu import SIZES, sample_data

PEER_OPTIONS = ("--warmup", "2", "--repeats", "5", "--seconds", "15", "--timeout", "300")
SHAPES = {"nltcs": (16181, 16), "plants": (17412, 69), "bbc": (1670, 1058)}
WIDTHS = (1056, 4128)
"""Samples in a batched product, in addition to those of a chunk: the best rate counts. (Powers of two are slower.)"""

SHARES = tuple((name, units, 1) for name in SHAPES for units in (100, 16))
FLEETS = (("nltcs", 16, 16), ("plants", 16, 16))
"""Data, units and runs for which the share is measured."""


def share_of_matmul(name: str, units: int, repeats: int, runs: int = 1) -> dict[str, Any]:
    """The rate of an EM step over the rate of a batched product, both measured in turns in this process."""
    samples, variables = SHAPES[name]
    step = EMStep(sample_data(samples, variables, seed=0), units, runs=runs)
    rates = {width: batched_matmul_rate(units, width) for width in (*WIDTHS, step.chunk)}
    found: dict[int, list[float]] = {width: [] for width in rates}

    def measure_rates() -> None:
        for width, rate in rates.items():
            found[width].append(rate())

    times = interleaved({"step": step, "rates": measure_rates}, repeats)
    seconds, matmul = statistics.median(times["step"]), max(map(statistics.median, found.values()))
    return {
        "data": name,
        "samples": samples,
        "variables": variables,
        "units": units,
        "runs": runs,
        "chunk": step.chunk,
        "seconds_per_step": seconds,
        "gflops": step.flops / seconds / 1e9,
        "matmul_gflops": matmul / 1e9,
        "share": step.flops / seconds / matmul,
    }


def measure_shares(cases: Iterable[tuple[str, int, int]], repeats: int) -> list[dict[str, Any]]:
    """The shares of all cases, printed as they come."""
    rows = []
    for name, units, runs in cases:
        rows.append(share_of_matmul(name, units, repeats if name == "nltcs" else 3, runs))
        row = rows[-1]
        rates = f"{row['gflops']:7.1f} of {row['matmul_gflops']:7.1f} GFLOP/s"
        print(f"{name:>8} K={units:<4} R={runs:<3} {rates}: {row['share']:.0%}")
    return rows


def beside_peers(size: str, python: Path, repeats: int) -> dict[str, Any]:
    """Seconds per step at one size: ours, then each peer in its own interpreter, tuned and plain, then ours again."""
    samples, variables, units = (int(part) for part in size.split("x"))
    step = EMStep(sample_data(samples, variables, seed=0), units)
    before = medians(interleaved({"circurve": step}, repeats))["circurve"]
    tuned, plain = run_peers(size, python), run_peers(size, python, "--plain")
    after = medians(interleaved({"circurve": step}, repeats))["circurve"]
    ours = (before + after) / 2
    row: dict[str, Any] = {"size": size, "circurve": {"before": before, "after": after, "seconds_per_step": ours}}
    row |= {result["peer"]: compared(result, ours) for result in tuned}
    row["plain"] = {result["peer"]: compared(result, ours) for result in plain}
    return row


def run_peers(size: str, python: Path, *options: str) -> list[dict[str, Any]]:
    """What `peers_cpu.py` measures at one size."""
    call = [str(python), str(Path(__file__).with_name("peers_cpu.py")), "--sizes", size, *PEER_OPTIONS, *options]
    answer = subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True).stdout
    results: list[dict[str, Any]] = json.loads(answer)["results"]
    return results


def compared(result: dict[str, Any], ours: float) -> dict[str, Any]:
    """A peer's result for the result file, with how many times slower it is."""
    seconds = result.get("seconds_per_step")
    return {
        "seconds_per_step": seconds,
        "status": result["status"],
        "version": result.get("version"),
        "allocator": result.get("allocator"),
        "allocators": result.get("allocators"),
        "seconds_by_chunk": result.get("seconds_by_chunk"),
        "times_slower": None if seconds is None else seconds / ours,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers-python", type=Path, help="an interpreter with libcirkit and spflow")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--out", type=Path, help="folder for the result file")
    arguments = parser.parse_args()
    np.set_printoptions(precision=3)
    shares, fleets = (measure_shares(cases, arguments.repeats) for cases in (SHARES, FLEETS))
    peers = []
    if arguments.peers_python is not None:
        for size in SIZES:
            peers.append(beside_peers(size, arguments.peers_python, arguments.repeats))
            print(json.dumps(peers[-1]), file=sys.stderr)
    results = {"share_of_matmul": shares, "share_of_matmul_fleets": fleets, "peers": peers}
    path = write_result("cpu_em", results, arguments.out)
    print(f"written to {path}; {torch.get_num_threads()} threads")


if __name__ == "__main__":
    main()
