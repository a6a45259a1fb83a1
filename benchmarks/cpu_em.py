"""EM steps on a CPU: the share of the machine's batched-matmul rate, and seconds beside cirkit and SPFlow.

python benchmarks/cpu_em.py                                   # the share alone
python benchmarks/cpu_em.py --peers-python peers/bin/python   # and the peers (see peers_cpu.py)
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import EMStep, batched_matmul_rate, interleaved, medians, write_result
from peers_cpu import SIZES, sample_data

PEER_OPTIONS = ("--warmup", "2", "--repeats", "5", "--seconds", "15", "--timeout", "300")
SHAPES = {"nltcs": (16181, 16), "plants": (17412, 69), "bbc": (1670, 1058)}


def share_of_matmul(name: str, units: int, repeats: int) -> dict[str, Any]:
    """The rate of an EM step over the rate of a batched product, both measured in turns in this process."""
    samples, variables = SHAPES[name]
    step = EMStep(sample_data(samples, variables, seed=0), units)
    rate = batched_matmul_rate(units, step.chunk)
    rates: list[float] = []
    times = interleaved({"step": step, "rate": lambda: rates.append(rate())}, repeats)
    seconds, matmul = statistics.median(times["step"]), statistics.median(rates)
    return {
        "data": name,
        "samples": samples,
        "variables": variables,
        "units": units,
        "chunk": step.chunk,
        "seconds_per_step": seconds,
        "gflops": step.flops / seconds / 1e9,
        "matmul_gflops": matmul / 1e9,
        "share": step.flops / seconds / matmul,
    }


def beside_peers(size: str, python: Path, repeats: int) -> dict[str, Any]:
    """Seconds per step at one size: ours, then each peer in its own interpreter, then ours again."""
    samples, variables, units = (int(part) for part in size.split("x"))
    step = EMStep(sample_data(samples, variables, seed=0), units)
    before = medians(interleaved({"circurve": step}, repeats))["circurve"]
    call = [str(python), str(Path(__file__).with_name("peers_cpu.py")), "--sizes", size, *PEER_OPTIONS]
    answer = subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True).stdout
    after = medians(interleaved({"circurve": step}, repeats))["circurve"]
    ours = (before + after) / 2
    row: dict[str, Any] = {"size": size, "circurve": {"before": before, "after": after, "seconds_per_step": ours}}
    for result in json.loads(answer)["results"]:
        seconds = result.get("seconds_per_step")
        row[result["peer"]] = {
            "seconds_per_step": seconds,
            "status": result["status"],
            "version": result.get("version"),
            "allocator": result.get("allocator"),
            "allocators": result.get("allocators"),
            "seconds_by_chunk": result.get("seconds_by_chunk"),
            "times_slower": None if seconds is None else seconds / ours,
        }
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers-python", type=Path, help="an interpreter with libcirkit and spflow")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--out", type=Path, help="folder for the result file")
    arguments = parser.parse_args()
    np.set_printoptions(precision=3)
    shares = []
    for name in SHAPES:
        for units in (100, 16):
            shares.append(share_of_matmul(name, units, arguments.repeats if name == "nltcs" else 3))
            row = shares[-1]
            rates = f"{row['gflops']:7.1f} of {row['matmul_gflops']:7.1f} GFLOP/s"
            print(f"{name:>8} K={units:<4} {rates}: {row['share']:.0%}")
    peers = []
    if arguments.peers_python is not None:
        for size in SIZES:
            peers.append(beside_peers(size, arguments.peers_python, arguments.repeats))
            print(json.dumps(peers[-1]), file=sys.stderr)
    path = write_result("cpu_em", {"share_of_matmul": shares, "peers": peers}, arguments.out)
    print(f"written to {path}; {torch.get_num_threads()} threads")


if __name__ == "__main__":
    main()
