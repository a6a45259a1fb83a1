"""`torchrun -m circurve fit`: two workers give what one gives, and one continues where two were broken off."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch.distributed as dist
from cli_helpers import strict_json
from typer.testing import CliRunner

import circurve as cc
from circurve.cli import app

pytestmark = [
    pytest.mark.linux,
    pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs gloo"),
]

LIMIT = 600
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
TORCHRUN += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]  # any free port
FIT = ["fit", "table.csv", "--units", "2", "--batch-size", "20", "--precision", "float64", "--device", "cpu"]
FIT += ["--out", "m.safetensors", "--overwrite"]


def torchrun(*words: str) -> subprocess.Popen[str]:
    """Two workers, with the package that is tested here, each with one thread."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(cc.__file__).parents[1])}
    command = [*TORCHRUN, "-m", "circurve", *FIT, *words]
    return subprocess.Popen(command, text=True, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def assert_close(one: cc.Model, other: cc.Model) -> None:
    for a, b in zip(one.params.weights, other.params.weights, strict=True):
        assert float((a - b).abs().max()) < 1e-8


def test_two_workers_give_the_model_of_one_and_one_report(table):
    with torchrun("--epochs", "4", "--json") as launcher:
        report, errors = launcher.communicate(timeout=LIMIT)
    assert launcher.returncode == 0, errors
    together = cc.load("m.safetensors")
    alone = CliRunner().invoke(app, [*FIT, "--epochs", "4", "--json"])
    assert strict_json(report)["train_ll"] == pytest.approx(strict_json(alone.stdout)["train_ll"], rel=1e-9)
    assert_close(together, cc.load("m.safetensors"))


def test_a_killed_worker_ends_the_job_and_one_process_continues(table):
    words = ["--epochs", "300", "--checkpoint", "runs", "--checkpoint-every", "3 epochs"]
    with torchrun(*words) as launcher:
        end = time.monotonic() + LIMIT
        while not list(Path("runs").glob("epoch-*")) and launcher.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        children = psutil.Process(launcher.pid).children()
        next(child for child in children if child.environ().get("RANK") == "1").kill()
        errors = launcher.communicate(timeout=LIMIT)[1]
    assert launcher.returncode == 1
    lost = "circurve: error: worker 0 of 2 lost the connection to another worker" in errors
    ended = "circurve: interrupted after" in errors  # torchrun asked worker 0 to end before it noticed
    assert lost != ended, errors
    assert Path("m.safetensors").exists() == ended
    newest = int(max(path.stem for path in Path("runs").glob("epoch-*"))[-6:])
    assert 3 <= newest < 300
    again = CliRunner().invoke(app, [*FIT, *words])
    assert again.exit_code == 0
    assert f"continuing after epoch {newest} of checkpoint runs" in again.stderr
    continued = cc.load("m.safetensors")
    assert CliRunner().invoke(app, [*FIT, "--epochs", "300"]).exit_code == 0
    assert_close(continued, cc.load("m.safetensors"))
