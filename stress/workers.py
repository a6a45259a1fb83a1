"""Workers that are killed at random moments: of torchrun, and of a Ray cluster.

    PYTHONPATH=src OMP_NUM_THREADS=1 python stress/workers.py --moments 10

Of two workers of `torchrun -m circurve fit --checkpoint` one gets SIGKILL, each in turn. The job must end with code 1,
and the same command, started again, with the model file of an undisturbed job, bit by bit. A worker of Ray that trains
a part of a fleet gets SIGKILL; the fleet must end by itself, with the parameters and scores of an undisturbed one, bit
by bit. Every other fleet has checkpoints. The record goes to stress/results/workers.json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import psutil
import ray
import torch
from safetensors import safe_open

import circurve as cc
from circurve.learning import FleetResult
from circurve.reproduction.plan import describe_environment, portable_command

RESULT = Path(__file__).resolve().parent / "results" / "workers.json"
SOURCE = str(Path(cc.__file__).parents[1])

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
TORCHRUN += ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0"]  # any free port
FIT = ["fit", "table.csv", "--units", "4", "--epochs", "150", "--batch-size", "50", "--method", "gated", "--mu", "0.1"]
FIT += ["--gate-memory", "0.5", "--device", "cpu", "--out", "m.safetensors"]
FIT += ["--checkpoint", "runs", "--checkpoint-every", "5 epochs"]

ONE_ERROR = "worker 0 of 2 lost the connection to another worker"
PATIENCE = 300


def table(folder: Path) -> np.ndarray:
    """Binary columns that depend on the one before, as an array and as a file."""
    rows = (np.cumsum(np.random.default_rng(0).random((600, 12)) < 0.2, axis=1) % 2).astype(np.int64)
    np.savetxt(folder / "table.csv", rows, fmt="%d", delimiter=",", header=",".join("abcdefghijkl"), comments="")
    return rows


def start(folder: Path) -> subprocess.Popen[str]:
    """A job of two workers, each with one thread, once it trains."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": SOURCE, "GLOO_SOCKET_IFNAME": "lo"}
    with open(folder / "errors.txt", "w") as errors:
        command = [*TORCHRUN, "-m", "circurve", *FIT]
        job = subprocess.Popen(
            command, cwd=folder, env=environment, text=True, stdout=subprocess.DEVNULL, stderr=errors
        )
    limit = time.monotonic() + PATIENCE
    while not (folder / "runs" / "training.json").exists() and job.poll() is None and time.monotonic() < limit:
        time.sleep(0.01)
    return job


def content(path: Path) -> Any:
    """Metadata and tensors of a model file, whatever their order."""
    with safe_open(path, framework="np") as file:
        return file.metadata(), {name: file.get_tensor(name).tobytes() for name in file.keys()}  # noqa: SIM118


def clear(folder: Path) -> None:
    """Remove what a job has written."""
    shutil.rmtree(folder / "runs", ignore_errors=True)
    (folder / "m.safetensors").unlink(missing_ok=True)


def kill_torchrun(moments: int, chance: random.Random, folder: Path) -> dict[str, Any]:
    """Kill one of two workers at a random moment of the training, and start the job again."""
    job, began = start(folder), time.monotonic()
    if job.wait(PATIENCE) != 0:
        raise SystemExit((folder / "errors.txt").read_text())
    duration, wanted = time.monotonic() - began, content(folder / "m.safetensors")
    found = {"struck": 0, "too late": 0, "code 1": 0, "messages asked for": 0, "messages": 0, "continued": 0}
    found |= {"same bits": 0, "temporary files left": 0}
    while found["struck"] < moments:
        clear(folder)
        victim = str(found["struck"] % 2)
        job = start(folder)
        time.sleep(chance.uniform(0, duration))
        workers = {child.environ().get("RANK"): child for child in psutil.Process(job.pid).children()}
        if victim not in workers:
            found["too late"] += 1
            job.wait(PATIENCE)
            continue
        workers[victim].kill()
        code = job.wait(PATIENCE)
        if code == 0:
            found["too late"] += 1
            continue
        found["struck"] += 1
        found["code 1"] += code == 1
        if victim == "1":  # worker 0 prints
            found["messages asked for"] += 1
            found["messages"] += (folder / "errors.txt").read_text().count(ONE_ERROR) == 1
        found["continued"] += bool(list((folder / "runs").glob("epoch-*")))
        if start(folder).wait(PATIENCE) == 0:
            found["same bits"] += content(folder / "m.safetensors") == wanted
        found["temporary files left"] += len(list(folder.rglob(".circurve-*.tmp")))
        print(f"torchrun: {found}", flush=True)
    return found


def fleet(rows: np.ndarray, checkpoint: Path | None = None) -> FleetResult:
    """Two runs, each a part of its own."""
    runs = [cc.Run(cc.Gated(0.1, gate_memory=0.5), seed=0), cc.Run(seed=1)]
    given: dict[str, Any] = {"epochs": 100, "batch_size": 50, "device": "cpu", "progress": False, "valid": rows[:100]}
    given |= {"checkpoint": checkpoint, "checkpoint_every": "5 epochs"}
    return cc.fit_fleet(cc.hclt(rows, units=4), rows, runs, engine="ray", **given)


def bits(results: FleetResult) -> list[Any]:
    """Scores and parameters of all runs."""
    found = []
    for result in results:
        params = result.model.params
        tensors = [values.numpy().tobytes() for values in (*params.weights, *params.inputs)]
        found.append((result.train_ll, result.valid_ll, result.epoch, tensors))
    return found


def kill_one(after: float, chance: random.Random, killed: list[int]) -> None:
    """Kill a process that works on a task of this cluster, after this many seconds."""
    time.sleep(after)
    working = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if child.cmdline()[:1] == ["ray::_in_worker"]:
                working.append(child)
    if working:
        victim = chance.choice(working)
        victim.kill()
        killed.append(victim.pid)


def kill_ray(moments: int, chance: random.Random, folder: Path, rows: np.ndarray) -> dict[str, Any]:
    """Kill a worker that trains a part of a fleet at a random moment."""
    torch.set_num_threads(1)
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
        object_store_memory=100 << 20,
        runtime_env={"env_vars": {"PYTHONPATH": SOURCE}},
    )
    found: dict[str, Any] = {"version": ray.__version__, "struck": 0, "too late": 0, "ended": 0, "same bits": 0}
    wanted = bits(fleet(rows))
    began = time.monotonic()
    fleet(rows)  # workers have started by now
    duration = time.monotonic() - began
    while found["struck"] < moments:
        shutil.rmtree(folder / "parts", ignore_errors=True)
        killed: list[int] = []
        thread = threading.Thread(target=kill_one, args=(chance.uniform(0, duration), chance, killed))
        thread.start()
        checkpoint = folder / "parts" if found["struck"] % 2 else None
        results = fleet(rows, checkpoint)
        thread.join()
        if not killed:
            found["too late"] += 1
            continue
        found["struck"] += 1
        found["ended"] += all(result.stopped == "epochs" for result in results)
        found["same bits"] += bits(results) == wanted
        print(f"Ray: {found}", flush=True)
    ray.shutdown()
    return found


def main() -> None:
    """Kill, count, write; an error if a result differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=10, help="workers to kill, of torchrun and of Ray each")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    with TemporaryDirectory() as name:
        folder = Path(name)
        rows = table(folder)
        results = {"torchrun": kill_torchrun(options.moments, chance, folder)}
        results["ray"] = kill_ray(options.moments, chance, folder, rows)
    command = portable_command(["python", "stress/workers.py", *sys.argv[1:]])
    record = {"environment": describe_environment(command, "cpu"), **results}
    options.out.write_text(json.dumps(record, indent=1) + "\n")
    if any(found["same bits"] < found["struck"] for found in results.values()):
        raise SystemExit("a result differs from that of an undisturbed training")


if __name__ == "__main__":
    main()
