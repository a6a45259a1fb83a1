"""What the methods cost: a training step of each, with its curvature sums, gates and M-step, against plain EM.

python benchmarks/method_cost.py [--device cuda]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from common import interleaved, medians, ratio_in_turns, write_result
from gpu_steps import CASES, Load, OurSteps, load_data, numbers

import circurve as cc
from circurve.learning.methods import Method

BATCH, STEPS, MU = 200, 5, 0.001
PLAIN = "plain EM"
METHODS: dict[str, Method] = {
    PLAIN: cc.Vanilla(),
    "global": cc.Global(MU),
    "gated": cc.Gated(MU),
    "gated, exact simplex": cc.Gated(MU, simplex="exact"),
    "gated, exact penalty": cc.Gated(MU, penalty="exact"),
    "gated, both": cc.Gated(MU, simplex="exact", penalty="exact"),
}


def measure(name: str, runs: int, device: torch.device, repeats: int) -> dict[str, Any]:
    """One fleet: some steps of every method, in turns, on random data of the case's shape."""
    data, units = load_data(CASES[name], None), CASES[name].units
    circuit = cc.hclt(data, units=units)
    sides = {}
    for label, method in METHODS.items():
        load = Load(BATCH, runs, (method,) * runs, mu=0.0 if label == PLAIN else MU)
        sides[label] = OurSteps(circuit, data[: STEPS * BATCH], device, load)
    times = interleaved(sides, repeats)
    seconds = {label: value / STEPS for label, value in medians(times).items()}
    ratios = {label: ratio_in_turns(values, times[PLAIN]) for label, values in times.items()}
    return {"data": name, "runs": runs, "batch": BATCH, "units": units, "seconds": seconds, "ratio": ratios}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--fleets", type=numbers, default=(1, 16))
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--name", default="method_cost", help="name of the result file")
    parser.add_argument("--out", type=Path, help="folder for the result file")
    arguments = parser.parse_args()
    torch.set_flush_denormal(True)
    rows = []
    for name in ("nltcs", "plants"):
        for runs in arguments.fleets:
            rows.append(measure(name, runs, torch.device(arguments.device), arguments.repeats))
            print(
                name, runs, " ".join(f"{label}: {ratio:.2f}" for label, ratio in rows[-1]["ratio"].items()), flush=True
            )
    print(f"written to {write_result(arguments.name, rows, arguments.out)}")


if __name__ == "__main__":
    main()
