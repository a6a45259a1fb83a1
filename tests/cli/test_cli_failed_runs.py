"""A training that fails: one line and exit code 1 from `fit`; `sweep` lists the run and continues."""

from __future__ import annotations

import csv
import math

import pytest
import torch
from cli_helpers import error_line, strict_json

from circurve import Global, Vanilla
from circurve.learning.steps import PlainSteps

SWEEP = "--units 3 --epochs 3 --methods vanilla,global --mu 0.1,1 --seeds 2"


@pytest.fixture
def fault(monkeypatch):
    """Break, at the end of an epoch, every run of a method."""

    def put(epoch, is_meant):
        run = PlainSteps.run
        epochs = iter(range(1, 1000))

        def broken(self, *arguments):
            totals = run(self, *arguments)
            if next(epochs) == epoch:
                self.params = self.params.clone()
                for place, method in enumerate(self.plan.methods):
                    if is_meant(place, method):
                        self.params.weights[-1][place].view(-1)[0] = torch.nan
            return totals

        monkeypatch.setattr(PlainSteps, "run", broken)

    return put


def test_fit_ends_with_one_line_and_no_file(invoke, table, fault, folder):
    fault(2, lambda place, method: True)
    line = error_line(invoke(f"fit {table} --units 3 --epochs 5 --out m.safetensors --device cpu"), 1)
    assert line == "run 0 (vanilla, seed 0) failed in epoch 2: Sum 'root': a parameter is not finite"
    assert not (folder / "m.safetensors").exists()


def test_fit_leaves_out_a_candidate_that_failed(invoke, table, fault):
    fault(2, lambda place, method: isinstance(method, Global) and method.mu == 0.1)
    result = invoke(f"fit {table} --units 3 --epochs 3 --method global --mu 0.1,1 --out m.safetensors --json")
    assert result.exit_code == 0
    assert "warning: run 0 (global, mu 0.1, seed 0) failed in epoch 2: Sum 'root'" in result.stderr
    report = strict_json(result.stdout)
    assert (report["mu"], report["stopped"], report["failure"]) == (1.0, "epochs", None)
    assert [(c["stopped"], c["chosen"], c["valid_ll"] is None) for c in report["path"]] == [
        ("failed", False, True),
        ("epochs", True, False),
    ]
    fault(2, lambda place, method: isinstance(method, Global) and method.mu == 0.1)
    assert "failed" in invoke(f"fit {table} --units 3 --epochs 3 --method global --mu 0.1,1").stdout


def test_sweep_lists_failed_runs_and_leaves_them_out_of_the_means(invoke, table, fault, folder):
    def second_vanilla(place, method):
        return isinstance(method, Vanilla) and place == 1

    whole = strict_json(invoke(f"sweep {table} {SWEEP} --json").stdout)
    fault(2, second_vanilla)
    result = invoke(f"sweep {table} {SWEEP} --json --csv runs.csv --out-dir models")
    assert result.exit_code == 0
    assert "warning: run 1 (vanilla, seed 1) failed in epoch 2: Sum 'root': a parameter is not finite" in result.stderr
    report = strict_json(result.stdout)
    assert [setting["failed"] for setting in report["settings"]] == [1, 0, 0]
    assert report["settings"][0]["test_ll"] == {"mean": whole["runs"][0]["test_ll"], "std": None}
    assert report["settings"][1:] == whole["settings"][1:]
    assert [run["stopped"] for run in report["runs"]] == ["epochs", "failed", *["epochs"] * 4]
    assert report["runs"][1]["failure"] == "in epoch 2: Sum 'root': a parameter is not finite"
    assert report["runs"][1]["test_ll"] is None
    assert report["runs"][1]["out"] is None
    assert len(list((folder / "models").iterdir())) == 5
    rows = list(csv.DictReader((folder / "runs.csv").open()))
    assert (rows[1]["stopped"], rows[1]["test_ll"]) == ("failed", "")
    assert math.isfinite(float(rows[0]["test_ll"]))


def test_sweep_names_failed_runs_below_its_table(invoke, table, fault):
    fault(1, lambda place, method: isinstance(method, Vanilla))
    words = " ".join(invoke(f"sweep {table} {SWEEP}").stdout.split())
    assert "failed 2 of 6 runs, left out of the means: run 0 (vanilla, seed 0) in epoch 1: Sum 'root'" in words


def test_sweep_without_any_run_left_is_an_error(invoke, table, fault):
    fault(1, lambda place, method: True)
    result = invoke(f"sweep {table} {SWEEP}")
    assert result.exit_code == 1
    last = result.stderr.splitlines()[-1]
    assert last.startswith("circurve: error: all 6 runs failed; the first: run 0 (vanilla, seed 0) failed in epoch 1: ")
