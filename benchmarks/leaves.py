"""Hidden Chow-Liu trees with own and with shared leaves: training steps and log-likelihoods of both, in turns.

python benchmarks/leaves.py [--device cuda] [--data-dir DIR]
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import interleaved, medians, ratio_in_turns, write_result
from gpu_steps import CASES, Load, OurSteps, load_data, numbers

import circurve as cc
from circurve.structures import chow_liu_tree

OWN, SHARED = "own", "shared"


def scores(circuit: cc.Circuit, data: np.ndarray, device: torch.device) -> partial[np.ndarray]:
    """A function that computes log p of all rows, with parameters from the start of training."""
    model = cc.fit(circuit, data[:50], epochs=0, progress=False, device=str(device)).model
    return partial(model.log_prob, data)


def measure(name: str, units: int, batch: int, arguments: argparse.Namespace) -> dict[str, Any]:
    device, data = torch.device(arguments.device), load_data(CASES[name], arguments.data_dir)
    tree = chow_liu_tree(data)
    circuits = {kind: cc.hclt(data, units, tree=tree, leaves=kind) for kind in (OWN, SHARED)}
    rows = data[: arguments.steps * batch]
    plain = {kind: OurSteps(circuit, rows, device, Load(batch)) for kind, circuit in circuits.items()}
    curved = {kind: OurSteps(circuit, rows, device, Load(batch, track=True)) for kind, circuit in circuits.items()}
    scored = {kind: scores(circuit, data, device) for kind, circuit in circuits.items()}
    found: dict[str, Any] = {"data": name, "units": units, "batch": batch}
    found["sum_units"] = {kind: circuit.describe().sum_units for kind, circuit in circuits.items()}
    for label, sides in (("steps", plain), ("steps_with_curvature", curved), ("log_prob", scored)):
        times = interleaved(sides, arguments.repeats)
        found[label] = {"seconds": medians(times), "shared_over_own": ratio_in_turns(times[SHARED], times[OWN])}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--data-dir", type=Path, help="a folder with the DEBD files; else random data")
    parser.add_argument("--only", default="nltcs,plants")
    parser.add_argument("--units", type=numbers, default=(32, 64, 100))
    parser.add_argument("--batches", type=numbers, default=(200, 4096))
    parser.add_argument("--steps", type=int, default=5, help="EM steps in a call, at most")
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--name", default="leaves", help="name of the result file")
    parser.add_argument("--out", type=Path, help="folder for the result file")
    arguments = parser.parse_args()
    torch.set_flush_denormal(True)
    rows = []
    for name in arguments.only.split(","):
        for units in arguments.units:
            for batch in arguments.batches:
                rows.append(measure(name, units, batch, arguments))
                parts = ("steps", "steps_with_curvature", "log_prob")
                ratios = " ".join(f"{part} {rows[-1][part]['shared_over_own']:.2f}" for part in parts)
                print(name, units, batch, "shared over own:", ratios, flush=True)
    print(f"written to {write_result(arguments.name, rows, arguments.out)}")


if __name__ == "__main__":
    main()
