"""Seconds of the first fit in a new process with an empty Triton cache, and of the second one, for five shapes of data.

python benchmarks/first_fit.py

Every shape has a process of its own, and an empty folder as Triton's cache. Rows are made up: they follow a random tree
and have as many columns, rows and held-out rows as the data set that the shape is named after. A fit is one epoch of
plain EM with batches of 200 and a score of the held-out rows. `ready_seconds` is what comes before it: imports, a CUDA
context, the circuit. `ahead_seconds` is the part of the first fit in which kernels are collected, compiled and loaded.
`kernels` counts what the first fit loaded, `kernels_compiled_by_fit` those that no other process had compiled for it,
and `kernels_of_second` what was left for the second one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

SHAPES = {
    "nltcs": (16, 16181, 2157, 100),
    "plants": (69, 17412, 2321, 100),
    "baudio": (100, 15000, 2000, 100),
    "dna": (180, 1600, 400, 100),
    "bbc": (1058, 1670, 225, 128),
}
"""Columns, rows, held-out rows, hidden states."""

NEAR = 4
"""How far before a column its parent is at most."""


def tree_rows(columns: int, rows: int) -> np.ndarray:  # (N, V)
    """Binary rows from a random tree: a column is that of its parent with one value in five turned over."""
    rng = np.random.default_rng(0)
    values = np.empty((rows, columns), dtype=np.int64)
    values[:, 0] = rng.integers(0, 2, rows)
    for column in range(1, columns):
        parent = rng.integers(max(0, column - NEAR), column)
        values[:, column] = values[:, parent] ^ (rng.random(rows) < 0.2)
    return values


def measure(shape: str, device: str) -> dict[str, Any]:
    """Both fits in this process, whose Triton cache must be empty."""
    started = time.perf_counter()
    import torch

    import circurve as cc
    from circurve.engine.cuda import compile_ahead

    torch.zeros(1, device=device)
    columns, rows, held_out, units = SHAPES[shape]
    data = tree_rows(columns, rows + held_out)
    train, valid = data[:rows], data[rows:]
    circuit = cc.hclt(train, units)
    ahead = _timed(compile_ahead, "_compile_ahead")
    ready = time.perf_counter() - started

    def fit() -> dict[str, Any]:
        ahead.clear()
        start = time.perf_counter()
        loaded = _listen()
        cc.fit(circuit, train, valid=valid, epochs=1, batch_size=200, device=device, progress=False)
        if device == "cuda":
            torch.cuda.synchronize()
        return {"seconds": time.perf_counter() - start, "ahead": sum(ahead), "kernels": loaded}

    first, second = fit(), fit()
    return {
        "columns": columns,
        "rows": rows,
        "hidden_states": units,
        "ready_seconds": ready,
        "first_seconds": first["seconds"],
        "second_seconds": second["seconds"],
        "ahead_seconds": first["ahead"],
        "kernels": len(first["kernels"]),
        "kernels_compiled_by_fit": sum(not found for found in first["kernels"]),
        "kernels_of_second": len(second["kernels"]),
    }


def _timed(module: Any, name: str) -> list[float]:
    """Take the time of every call of a function."""
    inner, seconds = getattr(module, name), []

    def timed(*arguments: Any) -> None:
        start = time.perf_counter()
        inner(*arguments)
        seconds.append(time.perf_counter() - start)

    setattr(module, name, timed)
    return seconds


def _listen() -> list[bool]:
    """One entry for each kernel that Triton loads: whether it was found in the cache. Its import is part of a fit."""
    import triton

    loaded: list[bool] = []
    triton.knobs.compilation.listener = lambda *, cache_hit, **_: loaded.append(cache_hit)
    return loaded


def in_new_process(shape: str, device: str) -> dict[str, Any]:
    """What `measure` returns in a process with an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TRITON_CACHE_DIR": folder}
        command = [sys.executable, __file__, "--one", shape, "--device", device]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES), metavar="SHAPE")
    parser.add_argument(
        "--repeats", type=int, default=1, help="processes for each shape; the median of their first fit"
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--one", choices=SHAPES, help="measure one shape in this process and print the result")
    parser.add_argument("--out", type=Path, default=None, help="folder for the result file")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options.device)))
        return
    from common import write_result

    results = []
    for shape in options.shapes:
        found = sorted(
            (in_new_process(shape, options.device) for _ in range(options.repeats)),
            key=lambda result: float(result["first_seconds"]),
        )
        results.append({"shape": shape, **found[len(found) // 2], "repeats": options.repeats})
        last = results[-1]
        print(
            f"{shape:>7}  first fit {last['first_seconds']:6.2f} s ({last['ahead_seconds']:.2f} s for kernels), "
            f"second {last['second_seconds']:6.2f} s, {last['kernels']} kernels, "
            f"{last['kernels_compiled_by_fit']} of them compiled by the fit itself",
            flush=True,
        )
    print(write_result("first_fit", results, options.out))


if __name__ == "__main__":
    main()
