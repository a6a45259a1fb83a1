"""`circurve sweep`: one fleet, means over seeds, the chosen mu, a table of runs and their models."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from cli_helpers import error_line, strict_json

import circurve as cc
from circurve.cli import training
from circurve.cli.sweep import summarise
from circurve.data import split_rows

TINY = "--units 3 --epochs 2"


def test_a_sweep_is_one_fleet_of_all_settings_and_seeds(answer, table, monkeypatch):
    fleets = []
    train = training.train_fleet
    monkeypatch.setattr(training, "train_fleet", lambda *args: fleets.append(args[2]) or train(*args))
    report = answer(f"sweep {table} {TINY} --mu 0.01,0.1 --seeds 2 --seed 3")
    (fleet,) = fleets
    settings = [cc.Vanilla(), cc.Global(0.01), cc.Global(0.1), cc.Gated(0.01), cc.Gated(0.1)]
    assert [(run.method, run.seed) for run in fleet] == [(method, seed) for method in settings for seed in (3, 4)]
    assert report["seeds"] == [3, 4]
    assert [(s["method"], s["gate"], s["mu"]) for s in report["settings"]] == [
        ("vanilla", None, None),
        ("global", None, 0.01),
        ("global", None, 0.1),
        ("gated", "max_norm", 0.01),
        ("gated", "max_norm", 0.1),
    ]
    assert len(report["runs"]) == 10


def test_settings_are_means_and_deviations_of_their_runs(answer, table):
    report = answer(f"sweep {table} {TINY} --mu 0.01,0.1 --seeds 3 --methods global")
    for number, setting in enumerate(report["settings"]):
        runs = report["runs"][3 * number : 3 * number + 3]
        assert [run["mu"] for run in runs] == [setting["mu"]] * 3
        for name in ("train_ll", "valid_ll", "test_ll", "dof", "sharpness"):
            values = [run[name] for run in runs]
            assert setting[name]["mean"] == pytest.approx(np.mean(values))
            assert setting[name]["std"] == pytest.approx(np.std(values, ddof=1))
    best = max(report["settings"], key=lambda setting: setting["valid_ll"]["mean"])
    assert [setting["chosen"] for setting in report["settings"]] == [s is best for s in report["settings"]]


def test_a_run_of_a_sweep_equals_the_same_fit(answer, table):
    swept = answer(f"sweep {table} {TINY} --mu 0.2 --seeds 1 --seed 2 --methods gated --gates rank,log_norm")
    alone = answer(f"fit {table} {TINY} --method gated --gate log_norm --mu 0.2 --seed 2")
    run = swept["runs"][1]
    for name in ("gate", "mu", "seed", "epoch"):
        assert run[name] == alone[name]
    for name in ("train_ll", "valid_ll", "test_ll", "sharpness", "dof"):
        assert run[name] == pytest.approx(alone[name], rel=1e-4)


@pytest.mark.parametrize(("columns", "most"), [("80", 80), ("120", 120)])
def test_the_table_fits_the_terminal_and_marks_the_chosen_mu(invoke, table, monkeypatch, columns, most):
    monkeypatch.setenv("COLUMNS", columns)
    result = invoke(f"sweep {table} {TINY} --mu 0.01,0.1 --seeds 2 --gates max_norm,top_fraction:0.1:total")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert max(len(line) for line in lines) <= most
    assert sum(" * 0." in line for line in lines) == 3
    assert "mean and standard deviation over 2 seeds" in lines[0]
    assert "±" in result.stdout


def test_runs_and_models_are_written(answer, table, rows):
    report = answer(
        f"sweep {table} {TINY} --mu 0.1 --seeds 2 --methods vanilla,gated --gates top_fraction:0.5 "
        "--csv runs.csv --out-dir deep/models"
    )
    with open("runs.csv", newline="") as file:
        written = list(csv.DictReader(file))
    assert [row["out"] for row in written] == [run["out"] for run in report["runs"]]
    assert sorted(path.name for path in Path("deep/models").iterdir()) == [
        *(f"gated-top_fraction_0.5-mu0.1-seed{seed}.safetensors" for seed in (0, 1)),
        *(f"vanilla-seed{seed}.safetensors" for seed in (0, 1)),
    ]
    assert (written[0]["mu"], written[2]["mu"]) == ("", "0.1")
    train = split_rows(rows, 0.1, 0.1, seed=0)[0]
    for row in written:
        assert float(row["train_ll"]) == pytest.approx(cc.load(row["out"]).log_prob(train).mean(), abs=1e-5)
    assert answer(f"info {written[2]['out']}")["training"]["gate"] == "top_fraction:0.5"


def test_without_validation_rows_no_mu_is_marked(invoke, table):
    result = invoke(f"sweep {table} {TINY} --no-split --mu 0.1 --seeds 1 --json")
    report = strict_json(result.stdout)
    assert not any(setting["chosen"] for setting in report["settings"])
    assert report["settings"][0]["valid_ll"] == {"mean": None, "std": None}
    assert report["settings"][0]["train_ll"]["std"] is None
    assert "*" not in invoke(f"sweep {table} {TINY} --no-split --mu 0.1 --seeds 1").stdout


def test_an_impossible_row_makes_a_mean_infinite_and_no_deviation():
    record = {"method": "global", "gate": None, "mu": 0.1, "train_ll": -1.0, "valid_ll": -np.inf, "test_ll": None}
    (setting,) = summarise([[record | {"dof": None, "sharpness": 1.0}] * 2])
    assert setting["valid_ll"] == {"mean": -np.inf, "std": None}
    assert setting["train_ll"] == {"mean": -1.0, "std": 0.0}
    assert setting["dof"] == {"mean": None, "std": None}


def test_a_disk_that_fills_up_hides_no_numbers(invoke, table, monkeypatch):
    def full(*_):
        raise cc.FileAccessError("cannot write runs.csv: No space left on device")

    monkeypatch.setattr("circurve.cli.sweep.write_csv", full)
    result = invoke(f"sweep {table} {TINY} --methods vanilla --seeds 1 --csv runs.csv --json")
    assert result.exit_code == 1
    assert result.stderr == "circurve: error: cannot write runs.csv: No space left on device\n"
    report = strict_json(result.stdout)
    assert report["csv"] is None
    assert report["runs"][0]["train_ll"] < 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--seeds 0", "--seeds must be a whole number >= 1, not 0"),
        ("--methods vanilla,newton", "--methods must be some of vanilla, global, gated, not 'newton'"),
        ("--methods vanilla,", "--methods has a gap"),
        ("--methods vanilla --mu foo", "--mu must be a number, or numbers with commas between them, not 'foo'"),
        ("--mu auto", "--mu must be a number, or numbers with commas between them, not 'auto'"),
        ("--methods vanilla,global --gates rank", "--gate has no effect with vanilla, global; use gated"),
        ("--gates auto", "--gates lists the gates to compare"),
        ("--gates max", "--gate must be one of"),
        ("--csv table.csv", "--csv table.csv: would overwrite a file that this command reads or writes"),
        ("--out-dir table.csv", "--out-dir table.csv: is a file, not a folder"),
        ("--out-dir table.csv/deep", "table.csv is a file, not a folder"),
        ("--select best --no-split", "need validation rows"),
    ],
)
def test_wrong_options_of_sweep(invoke, table, options, expected):
    assert expected in error_line(invoke(f"sweep {table} {TINY} {options}"))


def test_strengths_that_look_alike_have_models_of_their_own(answer, table):
    report = answer(f"sweep {table} {TINY} --methods global --mu 0.12345678,0.12345679,0.5 --seeds 1 --out-dir models")
    names = [Path(run["out"]).name for run in report["runs"]]
    assert names == [f"global-mu{mu}-seed0.safetensors" for mu in ("0.12345678", "0.12345679", "0.5")]
    assert sorted(path.name for path in Path("models").iterdir()) == names


def test_a_folder_is_made_only_when_there_is_something_to_put_in(invoke, table):
    error_line(invoke(f"sweep no-such.csv {TINY} --out-dir deep/models"))
    assert not Path("deep").exists()
    assert invoke(f"sweep {table} {TINY} --methods vanilla --seeds 1 --out-dir deep/models").exit_code == 0
    assert list(Path("deep/models").glob("*.safetensors"))
