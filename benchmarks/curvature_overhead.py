"""What the curvature sums add to an EM step, on this machine's CPU and, where there is one, its GPU.

python benchmarks/curvature_overhead.py [--repeats N]
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import EMStep, interleaved, medians, ratio_in_turns, write_result
from peers_cpu import sample_data

from circurve.engine import Request

REQUESTS = {
    "plain": None,
    "curvature": Request(curvature=True),
    "curvature and mean ratio": Request(curvature=True, mean_ratio=True),
    "curvature and second moment": Request(curvature=True, second_moment=True),
    "curvature weighted by flow": Request(curvature=True, flow_weighted=True),
    "curvature and squared ratio": Request(curvature=True, squared_ratio=True),
}


@dataclass(frozen=True)
class Setting:
    """Where and how large: on a GPU all rows at once, on a CPU in the chunks that `fit` uses."""

    device: str
    units: int = 100
    runs: int = 1
    batch: int | None = None
    """Rows of a step; None for all of them."""


def overhead(data: np.ndarray, name: str, setting: Setting, repeats: int) -> dict[str, Any]:
    """Ratios of an EM step with curvature sums to the plain step, measured in turns.

    A ratio is the median of those of single turns: a machine that changes its pace changes it for both sides of most.
    """
    data = data[: setting.batch]
    step = EMStep(data, setting.units, setting.device, setting.runs)
    sides = {label: (lambda request=request: step(request)) for label, request in REQUESTS.items()}
    times = interleaved(sides, repeats)
    seconds = medians(times)
    ratios = {label: ratio_in_turns(values, times["plain"]) for label, values in times.items()}
    return {
        "data": name,
        "rows": len(data),
        **asdict(setting),
        "chunk": step.chunk,
        "seconds": seconds,
        "ratio": ratios,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--name", default="curvature_overhead", help="name of the result file")
    parser.add_argument("--out", type=Path, help="folder for the result file")
    arguments = parser.parse_args()
    settings = [Setting("cpu"), Setting("cpu", batch=200), Setting("cpu", batch=200, runs=16)]
    if torch.cuda.is_available():
        settings = [Setting("cuda"), Setting("cuda", runs=16)]
    rows = []
    for name, (samples, variables) in {"nltcs": (16181, 16), "plants": (17412, 69)}.items():
        data = sample_data(samples, variables, seed=0)
        for setting in settings:
            rows.append(overhead(data, name, setting, arguments.repeats))
            ratio = rows[-1]["ratio"]
            print(name, setting, " ".join(f"{label}: {value:.3f}" for label, value in ratio.items()))
    print(f"written to {write_result(arguments.name, rows, arguments.out)}")


if __name__ == "__main__":
    main()
