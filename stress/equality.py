"""How equal results are: by number of threads, size of chunks, a break and a checkpoint, and number of workers.

    PYTHONPATH=src python stress/equality.py

Every training and every score runs in a process of its own. Two results are compared bit by bit, and as the largest
difference of a log-probability in nats. Trainings with one and two workers (one thread each) take turns, so that both
meet the same load; a speed-up is the ratio of the medians of their times, and means something on an idle machine only.
The record, with the load, goes to stress/results/equality.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

import circurve as cc
from circurve.reproduction.plan import describe_environment, portable_command

RESULT = Path(__file__).resolve().parent / "results" / "equality.json"
TURNS = 3
SMALL_CHUNKS = 1 << 20
"""Bytes, enough for a few hundred rows at once."""


def table(rows: int, variables: int) -> np.ndarray:
    """Binary columns that depend on the one before, (rows, variables)."""
    generator = np.random.default_rng(0)
    flips = generator.random((rows, variables)) < 0.2
    return (np.cumsum(flips, axis=1) % 2).astype(np.uint8)


def train(task: dict[str, Any], folder: Path) -> dict[str, Any]:
    """One training, or a worker of one; runs in a process of its own."""
    torch.set_num_threads(task["threads"])
    group, number = task["workers"] > 1, task["worker"]
    if group:
        store = f"file://{folder / task['store']}"
        torch.distributed.init_process_group("gloo", init_method=store, rank=number, world_size=task["workers"])
    rows = table(task["rows"], task["variables"])
    circuit = cc.hclt(rows[:2000], units=task["units"])
    options: dict[str, Any] = {"epochs": 6, "batch_size": task["batch"], "precision": task["precision"], "seed": 0}
    if task["break_after"] is not None:
        options |= {"checkpoint": folder / task["store"], "checkpoint_every": "1 epoch"}
        _break_off(circuit, rows, options, task["break_after"])
    start = time.monotonic()
    model = cc.fit(circuit, rows, method=cc.Gated(0.1), device="cpu", progress=False, valid=False, **options).model
    seconds = time.monotonic() - start
    scores = model.log_prob(rows[:2000], memory_budget=task["memory_budget"])
    np.save(folder / f"{task['store']}-{number}.npy", scores)
    model.save(folder / f"{task['store']}-{number}.safetensors")
    if group:
        torch.distributed.destroy_process_group()
    return {"seconds": seconds}


def _break_off(circuit: cc.Circuit, rows: np.ndarray, options: dict[str, Any], epoch: int) -> None:
    """Train up to an epoch and fail in its callbacks; the checkpoint of the epoch before is there."""

    def fail(event: Any) -> None:
        if event.epoch == epoch:
            raise InterruptedError

    try:
        cc.fit(
            circuit, rows, method=cc.Gated(0.1), device="cpu", progress=False, valid=False, callbacks=[fail], **options
        )
    except InterruptedError:
        return
    raise AssertionError("the training was not broken off")


class Trainings:
    """Runs tasks in processes of their own and compares what they leave in a folder."""

    def __init__(self, folder: Path, size: dict[str, int]) -> None:
        self.folder, self.size, self.count = folder, size, 0

    def run(self, **task: Any) -> tuple[str, float]:
        """The name of the result, and the seconds of the slowest worker."""
        self.count += 1
        plain = {"threads": 1, "workers": 1, "break_after": None, "memory_budget": None, "precision": "float32"}
        given = {**plain, **self.size, "store": f"t{self.count}", **task}
        children = [
            subprocess.Popen(
                [sys.executable, __file__, "--child", json.dumps({**given, "worker": worker}), str(self.folder)],
                stdout=subprocess.PIPE,
                text=True,
            )
            for worker in range(given["workers"])
        ]
        answers = [child.communicate()[0] for child in children]
        if any(child.returncode for child in children):
            raise SystemExit(f"a training failed: {given}")
        return given["store"], max(json.loads(answer.splitlines()[-1])["seconds"] for answer in answers)

    def compare(self, one: str, other: str) -> dict[str, Any]:
        """Whether model files and scores agree to the bit, and the largest difference of a score."""
        scores = [np.load(self.folder / f"{name}-0.npy") for name in (one, other)]
        files = [(self.folder / f"{name}-0.safetensors").read_bytes() for name in (one, other)]
        return {
            "same_model_bytes": files[0] == files[1],
            "same_score_bits": scores[0].tobytes() == scores[1].tobytes(),
            "largest_difference_nats": float(np.abs(scores[0] - scores[1]).max()),
        }


def measure(trainings: Trainings) -> dict[str, Any]:
    first = trainings.run()[0]
    pairs = {
        "1 thread, twice": trainings.compare(first, trainings.run()[0]),
        "2 threads, twice": trainings.compare(threads := trainings.run(threads=2)[0], trainings.run(threads=2)[0]),
        "1 thread and 2 threads": trainings.compare(first, threads),
        "scores in one chunk and in chunks of 1 MiB": trainings.compare(
            first, trainings.run(memory_budget=SMALL_CHUNKS)[0]
        ),
        "without a break, and broken off in epoch 4": trainings.compare(first, trainings.run(break_after=4)[0]),
    }
    doubles = {workers: trainings.run(workers=workers, precision="float64")[0] for workers in (1, 2)}
    pairs["1 worker and 2 workers, float64"] = trainings.compare(doubles[1], doubles[2])
    seconds: dict[int, list[float]] = {1: [], 2: []}
    names: dict[int, str] = {}
    for _ in range(TURNS):
        for workers in (1, 2):
            name, took = trainings.run(workers=workers)
            seconds[workers].append(took)
            if workers in names:
                pairs.setdefault(f"{workers} workers, twice", trainings.compare(names[workers], name))
            names[workers] = name
    pairs.pop("1 workers, twice", None)
    pairs["1 worker and 2 workers, float32"] = trainings.compare(names[1], names[2])
    load = round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None
    medians = {workers: statistics.median(taken) for workers, taken in seconds.items()}
    speed = {
        "seconds": {str(workers): [round(one, 2) for one in taken] for workers, taken in seconds.items()},
        "speed_up": round(medians[1] / medians[2], 2),
        "turns": TURNS,
        "cores": os.cpu_count(),
        "load_average": load,
    }
    return {"pairs": pairs, "workers": speed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--variables", type=int, default=64)
    parser.add_argument("--units", type=int, default=64)
    parser.add_argument("--batch", type=int, default=8_000)
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--child", nargs=2, default=None, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(train(json.loads(arguments.child[0]), Path(arguments.child[1]))))
        return
    size = {name: getattr(arguments, name) for name in ("rows", "variables", "units", "batch")}
    with TemporaryDirectory() as folder:
        found = measure(Trainings(Path(folder), size))
    environment = describe_environment(portable_command(["python", "stress/equality.py", *sys.argv[1:]]), "cpu")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    document = {"environment": environment, "size": size, **found}
    arguments.out.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
