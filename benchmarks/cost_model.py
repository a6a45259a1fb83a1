"""What an EM step costs, as a formula: fitted to measured steps, and checked on steps of other sizes.

    python benchmarks/cost_model.py [--device cuda] [--points 54] [--checks 18]

    seconds = latency + per_layer * layers + per_weight * R V K^2 + per_value * R V N K + per_edge * R V N K K'

for R runs of a hidden Chow-Liu tree over V binary columns with K states each, on batches of N rows. K' is K rounded up
to a multiple of 16, the smallest tile that a matrix unit multiplies. The five constants are at least 0 and have the
least relative errors. Sizes are drawn at random, some for the fit and others for the check.

`statistics_bytes` is what workers exchange in a step: 4 for each weight of each run.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import write_result
from gpu_steps import Load, guarded, measure_ours, say
from peers_cpu import sample_data
from scipy.optimize import nnls

import circurve as cc

TILE = 16
TERMS = ("latency", "per_layer", "per_weight", "per_value", "per_edge")


@dataclass(frozen=True)
class Size:
    """One step: rows in a batch, columns, states of a latent, runs side by side."""

    rows: int
    columns: int
    units: int
    runs: int


@dataclass(frozen=True)
class Range:
    """The sizes to draw from, and the most multiplications and weights of a step."""

    rows: tuple[int, int]
    columns: tuple[int, int]
    units: tuple[int, ...]
    runs: tuple[int, ...]
    most_edges: float
    most_weights: float


RANGES = {
    "cuda": Range((200, 16_384), (16, 1024), (16, 32, 64, 128, 256, 512), (1, 4, 16), 4e12, 1e9),
    "cpu": Range((64, 2048), (8, 64), (8, 16, 32, 64), (1, 4), 2e9, 1e7),
}


def draw(count: int, limits: Range, rng: np.random.Generator) -> list[Size]:
    """Sizes whose logarithms are uniform, without those beyond the limits."""
    sizes: list[Size] = []
    while len(sizes) < count:
        rows, columns = (round(math.exp(rng.uniform(*np.log(ends)))) for ends in (limits.rows, limits.columns))
        size = Size(rows, columns, int(rng.choice(limits.units)), int(rng.choice(limits.runs)))
        weights = size.runs * size.columns * size.units**2
        if weights <= limits.most_weights and weights * size.rows <= limits.most_edges:
            sizes.append(size)
    return sizes


def layers(columns: int) -> int:
    """Levels of the balanced tree that is measured."""
    return max(1, math.ceil(math.log2(columns + 1)))


def terms(size: Size) -> list[float]:
    """What each constant of the formula is multiplied with."""
    blocks, padded = size.runs * size.columns, TILE * math.ceil(size.units / TILE)
    values = blocks * size.rows * size.units
    return [1.0, float(layers(size.columns)), float(blocks * size.units**2), float(values), float(values * padded)]


def fit(rows: Sequence[dict[str, Any]]) -> np.ndarray:
    """The constants with the least sum of squared relative errors; none is negative."""
    measured = np.array([row["seconds_per_step"] for row in rows])
    matrix = np.array([terms(_size(row)) for row in rows]) / measured[:, None]
    scale = matrix.max(0)
    found, _ = nnls(matrix / scale, np.ones(len(rows)))
    return np.asarray(found / scale)


def predict(constants: Sequence[float], size: Size) -> float:
    """Seconds of a step."""
    return float(np.dot(constants, terms(size)))


def _size(row: dict[str, Any]) -> Size:
    return Size(row["rows"], row["columns"], row["units"], row["runs"])


def measure(size: Size, device: torch.device, seconds: float) -> dict[str, Any]:
    data = sample_data(size.rows, size.columns, seed=0)
    parents = (np.arange(size.columns) - 1) // 2
    circuit = cc.hclt(data, units=size.units, families=[cc.Bernoulli()] * size.columns, tree=parents)
    found = measure_ours(circuit, data, device, Load(size.rows, size.runs), seconds)
    weights = circuit.describe().parameters
    kept = {name: found[name] for name in ("seconds_per_step", "peak_bytes", "engine")}
    return {**asdict(size), **kept, "statistics_bytes": 4 * size.runs * weights}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--points", type=int, default=54, help="sizes to fit the formula to")
    parser.add_argument("--checks", type=int, default=18, help="other sizes to check it on")
    parser.add_argument("--seconds", type=float, default=0.5, help="time for the repeats of one size")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--name", help="name of the result file (cost_model_cuda or cost_model_cpu)")
    parser.add_argument("--out", type=Path, help="folder for the result file")
    arguments = parser.parse_args()
    device, rng = torch.device(arguments.device), np.random.default_rng(arguments.seed)
    sizes = draw(arguments.points + arguments.checks, RANGES[device.type], rng)
    sizes = sorted(sizes[: arguments.points], key=_kernel) + sorted(sizes[arguments.points :], key=_kernel)
    rows: list[dict[str, Any]] = []
    for number, size in enumerate(sizes):
        found = guarded(partial(measure, size, device, arguments.seconds))
        rows.append({**asdict(size), "part": "fit" if number < arguments.points else "check", **found})
        say(str(rows[-1]))
    good = [row for row in rows if "error" not in row]
    constants = fit([row for row in good if row["part"] == "fit"])
    for row in good:
        row["predicted_seconds"] = predict(constants, _size(row))
        row["error_of_prediction"] = row["predicted_seconds"] / row["seconds_per_step"] - 1
    errors = {part: [abs(r["error_of_prediction"]) for r in good if r["part"] == part] for part in ("fit", "check")}
    summary = {
        part: {"median": float(np.median(e)), "largest": max(e), "within_20_percent": float(np.mean(np.less(e, 0.2)))}
        for part, e in errors.items()
        if e
    }
    say(str(dict(zip(TERMS, constants.tolist(), strict=True))))
    say(str(summary))
    results = {"constants": dict(zip(TERMS, constants.tolist(), strict=True)), "errors": summary, "rows": rows}
    name = arguments.name or f"cost_model_{device.type}"
    say(f"written to {write_result(name, results, arguments.out)}")


def _kernel(size: Size) -> tuple[int, int]:
    """Sizes with the same kernels follow each other."""
    return size.units, size.runs


if __name__ == "__main__":
    main()
