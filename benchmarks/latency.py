"""Seconds of one call of `model.log_prob`, from 1 to 100,000 rows: what a call costs before the rows do.

python benchmarks/latency.py

HCLTs of 64 variables with 32 hidden states, over binary data and over data with 32 states, for numpy arrays and torch
tensors. Up to a few hundred rows, the backend is timed in turns with the way that `log_prob` chooses. `times_one_row`
is the fastest time over that of one row: below the number of rows, many rows cost less than as many calls.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import interleaved, write_result

import circurve as cc
from circurve.data import as_table, check
from circurve.engine import Batch

VARIABLES, UNITS, TRAINING = 64, 32, 4000
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 3000, 10_000, 30_000, 100_000)
MAX_BACKEND_ROWS = 512
"""Beyond, `log_prob` takes the backend itself."""


def data(states: int, rows: int) -> np.ndarray:  # (N, V)
    """Eight clusters, with a pattern of their own and noise."""
    rng = np.random.default_rng(0)
    pattern = rng.integers(0, states, (8, VARIABLES))
    noise = rng.integers(0, states, (rows, VARIABLES))
    return np.where(rng.random((rows, VARIABLES)) < 0.7, pattern[rng.integers(0, 8, rows)], noise)


def through_backend(model: cc.Model, x: np.ndarray) -> Callable[[], Any]:
    """A call that checks the rows and asks the backend."""

    def call() -> Any:
        table = check(as_table(x), model.circuit.families)
        return model.backend.log_prob(model.params, Batch.rows(table, 0, len(table), model.dtype))

    return call


def latency(states: int, repeats: int) -> dict[str, Any]:
    """The curve of one model."""
    x = data(states, max(ROWS))
    model = cc.fit(cc.hclt(x[:TRAINING], units=UNITS), x[:TRAINING], epochs=1, seed=0, progress=False).model
    curve: list[dict[str, Any]] = []
    for rows in ROWS:
        array = np.ascontiguousarray(x[:rows])
        tensor = torch.from_numpy(array)
        sides = {"numpy": lambda a=array: model.log_prob(a), "torch": lambda t=tensor: model.log_prob(t)}
        if rows <= MAX_BACKEND_ROWS:
            sides["backend"] = through_backend(model, array)
        times = interleaved(sides, max(3, min(repeats, 20 * repeats // rows)))
        entry: dict[str, Any] = {"rows": rows}
        for name, seconds in times.items():
            entry[name] = {"median_seconds": statistics.median(seconds), "fastest_seconds": min(seconds)}
        one = curve[0] if curve else entry
        entry["times_one_row"] = entry["numpy"]["fastest_seconds"] / one["numpy"]["fastest_seconds"]
        curve.append(entry)
        print(f"{states:>3} states {rows:>7} rows  {entry['numpy']['fastest_seconds'] * 1e3:9.3f} ms")
    return {
        "variables": VARIABLES,
        "hidden_states": UNITS,
        "states": states,
        "backend": model.backend.describe(),
        "rows_without_backend": model._small.max_samples,
        "curve": curve,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--out", type=Path, help="folder for the result file")
    arguments = parser.parse_args()
    path = write_result("latency", [latency(states, arguments.repeats) for states in (2, 32)], arguments.out)
    print(f"written to {path}")


if __name__ == "__main__":
    main()
