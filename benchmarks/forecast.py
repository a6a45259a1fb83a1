"""What the fitted cost model says about training with many workers: from result files alone, nothing is measured.

    python benchmarks/forecast.py [--rows 1000000000] [--columns 1000] [--workers 64]

Steps on a GPU come from cost_model_cuda.json, or without that file from cost_of_benchmarks.json. Both were recorded as
CUDA graphs, as those of workers are; what a worker's step takes beyond them is in parallel_gpu.json.
The host's part comes from host_cost.json, the rate of a copy on the GPU from roofline.json. Parts of an epoch add up,
because nothing overlaps in the present code.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from common import RESULTS, write_result
from cost_formula import (
    MEMORY_TERMS,
    TERMS,
    Size,
    all_reduce_seconds,
    memory_terms,
    predict,
    statistics_bytes,
    terms,
)
from gpu_steps import say

from circurve.data.stream import BUFFER

BANDWIDTHS = {"InfiniBand": 50e9, "NVLink": 450e9}
"""Bytes per second and direction of one GPU. Assumptions: one port of 400 Gb/s for each GPU (NVIDIA ConnectX-7 data
sheet), and half of the 900 GB/s of both directions (NVIDIA H200 data sheet)."""

HOP_SECONDS = 10e-6
"""Assumption: from one worker to the next, whatever the size of the message."""

CAST_BYTES = 24
"""GPU memory traffic of a statistic on its way: float32 read, float64 written, float64 read, float32 written."""

WORKER_BYTES = 16
"""Memory of a worker for each weight, beyond that of a step: float64 sums, float32 sums, the best epoch's weights."""

ORDER_BYTES = 8
"""Of a row's number in the order of an epoch, which is on the GPU."""

UNITS = (64, 256)
ROWS_PER_GPU = (512, 4096, 16_384)

WINDOW_BYTES = BUFFER // 2
"""Bytes of a window, within which the rows of a Parquet file are mixed."""

LEVELS, INNER = 14, 0.5
"""Assumptions about the tree: sum layers, and the share of columns that have children."""

TREE_SAMPLE = 1_000_000
"""Rows of a sample for the tree."""


@dataclass(frozen=True)
class Job:
    """The training to predict: rows and columns of the data, workers with one GPU each."""

    rows: int
    columns: int
    workers: int


@dataclass(frozen=True)
class Model:
    """Constants: seconds and bytes of a step, seconds of a row on the host, bytes per second of a copy on the GPU."""

    step: tuple[float, ...]
    memory: tuple[float, ...]
    copy_rate: float
    read: dict[str, dict[str, float]]
    """Seconds to check, decode and pick a row, by kind of file."""

    order_seconds: float
    """For each row."""

    tree: dict[str, float]


def step_seconds(model: Model, size: Size, workers: int, bandwidth: float) -> dict[str, float]:
    """The parts of a step; size.rows are the rows of each worker."""
    message = statistics_bytes(size)
    return {
        "compute": predict(model.step, terms(size)),
        "cast": CAST_BYTES * message / 8 / model.copy_rate,
        "network": all_reduce_seconds(message, workers, bandwidth, HOP_SECONDS),
    }


def forecast(model: Model, job: Job, units: int, rows_per_gpu: int, network: str) -> dict[str, Any]:
    """One epoch, read from a mapped array: seconds by part, memory, and the rates that it needs."""
    size = Size(rows_per_gpu, job.columns, units, 1, round(INNER * job.columns), LEVELS)
    steps = -(-job.rows // (rows_per_gpu * job.workers))
    step = step_seconds(model, size, job.workers, BANDWIDTHS[network])
    epoch = {name: steps * seconds for name, seconds in step.items()}
    training = sum(epoch.values())
    return {
        "units": units,
        "rows_per_gpu": rows_per_gpu,
        "network": network,
        "steps": steps,
        "step_seconds": step,
        "epoch_seconds": epoch,
        "training_seconds": training,
        "compute_share": epoch["compute"] / training,
        "message_bytes": statistics_bytes(size),
        "memory_bytes": memory(model, job, size),
        "rows_per_second": job.rows / training,
        "read_bytes_per_second": job.rows * job.columns / training,
        "parquet_seconds": parquet_seconds(model, job, rows_per_gpu),
    }


def decoded_share(rows_per_gpu: int, workers: int, window: int) -> float:
    """The share of all blocks that a worker decodes in an epoch: those of the windows that its part of a batch touches.

    A batch is a row of windows, in which a worker's part touches 1 + part / window of them on average.
    """
    return min(1.0, (window + rows_per_gpu) / (rows_per_gpu * workers))


def parquet_seconds(model: Model, job: Job, rows_per_gpu: int) -> float:
    """Reading an epoch from a Parquet file, with one thread of each worker."""
    parquet = model.read["parquet"]
    share = decoded_share(rows_per_gpu, job.workers, WINDOW_BYTES // job.columns)
    return parquet["decode"] * share * job.rows + parquet["pick"] * job.rows / job.workers


def memory(model: Model, job: Job, size: Size) -> dict[str, float]:
    """Bytes on each GPU: the step's, the worker's, and the order of an epoch."""
    return {
        "step": predict(model.memory, memory_terms(size)),
        "worker": float(WORKER_BYTES * size.weights),
        "order": float(ORDER_BYTES * job.rows),
    }


def host(model: Model, job: Job) -> dict[str, float]:
    """Seconds on the host of one worker, with one thread, for each epoch or once.

    A worker picks its own rows, but it checks all of them, and makes the order and the tree of all.
    """
    per_row = model.tree["per_value"] * job.columns + model.tree["per_row_and_pair"] * job.columns**2
    fixed = model.tree["per_pair"] * job.columns**2
    mapped, parquet = model.read["mapped"], model.read["parquet"]
    return {
        "mapped_epoch": mapped["pick"] * job.rows / job.workers,
        "check_mapped_once": mapped["check"] * job.rows,
        "check_parquet_once": parquet["check"] * job.rows,
        "order_epoch": model.order_seconds * job.rows,
        "tree_once": fixed + per_row * job.rows,
        "tree_of_sample_once": fixed + per_row * TREE_SAMPLE,
    }


def results(name: str, folder: Path) -> Any:
    return json.loads((folder / f"{name}.json").read_text())["results"]


def load_model(folder: Path, columns: int) -> tuple[Model, str]:
    """The constants of the result files, and the file that the steps come from."""
    source = "cost_model_cuda" if (folder / "cost_model_cuda.json").exists() else "cost_of_benchmarks"
    fits = results(source, folder)["fits"]
    steps = fits["graph"]["constants"]
    of_host = results("host_cost", folder)
    scale = columns / of_host["read"]["columns"]
    model = Model(
        step=tuple(steps[name] for name in TERMS),
        memory=tuple(fits["memory"]["constants"][name] for name in MEMORY_TERMS),
        copy_rate=results("roofline", folder)["rates"]["copy"],
        read={
            kind: {what: scale * seconds for what, seconds in of_host["read"][kind].items()}
            for kind in ("mapped", "parquet")
        },
        order_seconds=of_host["order"]["seconds_per_row"],
        tree=of_host["tree"]["constants"],
    )
    return model, source


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10**9)
    parser.add_argument("--columns", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--out", type=Path, help="folder for the result file")
    arguments = parser.parse_args()
    job = Job(arguments.rows, arguments.columns, arguments.workers)
    model, source = load_model(RESULTS, job.columns)
    rows = [
        forecast(model, job, units, rows_per_gpu, network)
        for units in UNITS
        for rows_per_gpu in ROWS_PER_GPU
        for network in BANDWIDTHS
    ]
    for row in rows:
        say(
            f"{row['units']} {row['rows_per_gpu']} {row['network']} {row['training_seconds']:.0f} {row['step_seconds']}"
        )
    found = {
        "job": asdict(job),
        "steps_from": source,
        "assumptions": {
            "bandwidths": BANDWIDTHS,
            "hop_seconds": HOP_SECONDS,
            "levels": LEVELS,
            "inner_share": INNER,
            "tree_sample": TREE_SAMPLE,
            "window_bytes": WINDOW_BYTES,
        },
        "epochs": rows,
        "host": host(model, job),
    }
    say(str(found["host"]))
    say(f"written to {write_result('forecast', found, arguments.out)}")


if __name__ == "__main__":
    main()
