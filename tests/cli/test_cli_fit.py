"""`circurve fit` as a user would use it, on tiny files."""

from __future__ import annotations

import _thread
import signal
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cli_helpers import FIELDS, error_line, strict_json, write_csv

import circurve as cc
from circurve.cli import training
from circurve.data import split_rows
from circurve.learning import FleetResult
from circurve.learning.loop import Trainer
from circurve.persistence import read_metadata
from circurve.words import counted

TINY = "--units 3 --epochs 2"


def test_fit_reports_scores_and_writes_a_model_that_has_them(answer, table, rows):
    report = answer(f"fit {table} {TINY} --out m.safetensors")
    assert all(field in report for field in FIELDS)
    assert report["dataset"] == "table"
    assert report["rows"] == {"train": 80, "valid": 10, "test": 10}
    assert (report["variables"], report["units"], report["method"], report["seed"]) == (5, 3, "vanilla", 0)
    assert (report["epochs"], report["stopped"], report["out"]) == (2, "epochs", "m.safetensors")
    assert (report["mu"], report["gate"], report["notes"]) == (None, None, [])
    model = cc.load("m.safetensors")
    assert report["sharpness"] == pytest.approx(
        cc.curvature(model, split_rows(rows, 0.1, 0.1, seed=0)[0]).trace, rel=1e-4
    )
    for split, part in zip(("train", "valid", "test"), split_rows(rows, 0.1, 0.1, seed=0), strict=True):
        assert report[f"{split}_ll"] == pytest.approx(model.log_prob(part).mean(), abs=1e-5)
    assert report["parameters"] == model.circuit.describe().parameters
    assert report["dof"] == pytest.approx(abs(report["valid_ll"] - report["train_ll"]) / abs(report["valid_ll"]))


def test_fit_shows_a_table_within_80_columns(invoke, table):
    result = invoke(f"fit {table} {TINY} --out m.safetensors")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert max(len(line) for line in result.stdout.splitlines()) <= 80
    for text in ("table: hclt, 3 units, vanilla", "train", "valid", "test", "2 (all epochs done)", "m.safetensors"):
        assert text in result.stdout


def test_fit_takes_every_kind_of_file(answer, rows):
    write_csv("rows.data", rows)
    np.save("rows.npy", rows)
    np.savez("parts.npz", train=rows[:70], valid=rows[70:80], test=rows[80:])
    same = [answer(f"fit {name} {TINY}") for name in ("rows.data", "rows.npy")]
    assert same[0]["train_ll"] == same[1]["train_ll"]
    assert answer(f"fit parts.npz {TINY}")["rows"] == {"train": 70, "valid": 10, "test": 20}


def test_fit_takes_a_data_set_from_a_folder(answer, rows, folder):
    for split, part in (("train", rows[:80]), ("valid", rows[80:90]), ("test", rows[90:])):
        write_csv(f"tiny.{split}.data", part)
    report = answer(f"fit tiny --data-dir {folder} {TINY}")
    assert (report["dataset"], report["rows"]) == ("tiny", {"train": 80, "valid": 10, "test": 10})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--split 0.5,0.3,0.2", (50, 30, 20)),
        ("--split 0.9,0.1", (90, 10, None)),
        ("--split 0.9,0,0.1", (90, None, 10)),
        ("--no-split", (100, None, None)),
        ("--valid held.csv", (100, 30, None)),
        ("--valid held.csv --test held.csv", (100, 30, 30)),
    ],
)
def test_fit_holds_out_rows_as_it_is_told(answer, table, rows, options, expected):
    write_csv("held.csv", rows[:30], "a,b,c,d,e")
    report = answer(f"fit {table} {TINY} {options}")
    assert tuple(report["rows"].values()) == expected
    assert tuple(report[f"{split}_ll"] is None for split in report["rows"]) == tuple(n is None for n in expected)


@pytest.mark.parametrize("structure", ["hclt", "chow_liu", "hmm", "rat", "mixture", "factorized"])
def test_fit_builds_every_structure(answer, table, structure):
    report = answer(f"fit {table} {TINY} --structure {structure}")
    assert report["structure"] == structure
    assert np.isfinite(report["train_ll"])


def test_leaves_of_an_hclt_are_own_or_shared(answer, invoke, table):
    own, shared = (answer(f"fit {table} {TINY} {option}") for option in ("", "--leaves shared"))
    assert (own["leaves"], shared["leaves"]) == ("own", "shared")
    assert shared["parameters"] < own["parameters"]
    assert answer(f"fit {table} {TINY} --structure hmm")["leaves"] is None
    refused = invoke(f"fit {table} {TINY} --structure hmm --leaves own")
    assert refused.exit_code != 0
    assert "--leaves has no effect with --structure hmm; use hclt" in refused.stderr


def test_options_of_training_reach_the_library(answer, table, rows):
    report = answer(
        f"fit {table} --no-split --structure mixture --units 2 --epochs 7 --batch-size full --step-size linear:1:0.5 "
        "--pseudocount 0.5 --seed 3 --precision float64 --device cpu"
    )
    result = cc.fit(
        cc.mixture(5, 2),
        rows,
        method=cc.Vanilla(0.5),
        seed=3,
        epochs=7,
        batch_size=None,
        step_size=cc.schedules.linear(1.0, 0.5),
        precision="float64",
        device="cpu",
    )
    assert report["train_ll"] == pytest.approx(result.train_ll, abs=1e-12)
    assert (report["step_size"], report["batch_size"], report["precision"]) == ("linear:1:0.5", "full", "float64")


def test_training_stops_early_when_asked(answer, table):
    assert answer(f"fit {table} --units 8 --epochs 500 --patience 2")["stopped"] == "patience"
    tolerant = answer(f"fit {table} --units 2 --epochs 500 --batch-size full --tolerance 1 --select last")
    assert tolerant["stopped"] == "tolerance"
    assert 2 <= tolerant["epochs"] == tolerant["epoch"] < 10


def test_the_same_seed_gives_the_same_model(invoke, table):
    for name in ("first", "second"):
        assert invoke(f"fit {table} {TINY} --out {name}").exit_code == 0
    assert read_metadata("first") == read_metadata("second")
    first, second = cc.load("first"), cc.load("second")
    for one, other in zip(first.circuit.sums, second.circuit.sums, strict=True):
        np.testing.assert_array_equal(first.weights(one), second.weights(other))


def test_an_existing_file_is_replaced(invoke, table):
    Path("m.safetensors").write_text("old")
    assert invoke(f"fit {table} {TINY} --out m.safetensors").exit_code == 0
    assert cc.load("m.safetensors").circuit.variables == 5


def test_a_mark_for_missing_values_is_understood(answer, invoke, rows):
    rows[::7, 2] = -1
    write_csv("holes.csv", rows)
    assert answer(f"fit holes.csv {TINY} --missing -1 --out m.safetensors")["notes"] == []
    assert cc.load("m.safetensors").circuit.families == (cc.Bernoulli(),) * 5
    unmarked = invoke(f"fit holes.csv {TINY} --out m.safetensors")
    assert unmarked.stderr == (
        "circurve: warning: column 3: whole numbers from -1 up, read as Gaussian; "
        "if -1 marks missing values, pass --missing -1\n"
    )


@pytest.mark.parametrize("command", ["fit", "sweep --methods vanilla --seeds 1"])
def test_the_model_knows_what_the_training_file_holds_and_other_values_are_unseen(command, answer, invoke, folder):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"city": rng.choice(["Oslo", "Rome"], 40), "age": rng.normal(40, 9, 40)})
    frame.to_csv("train.csv", index=False)
    frame.assign(city=["Kyiv", *frame["city"][1:]]).to_csv("test.csv", index=False)
    line = f"{command} train.csv --test test.csv {TINY} --precision float64"

    def scores(options):
        report = answer(f"{line} {options}")
        return (report if command == "fit" else report["runs"][0]) | {"variables": report["variables"]}

    left_out = scores("")["test_ll"]
    assert "'Kyiv' was not seen in training ('Oslo', 'Rome'); 1 row in all" in invoke(line).stderr
    assert scores("--unseen missing")["test_ll"] == left_out
    assert scores("--unseen impossible")["test_ll"] is None
    error = error_line(invoke(f"{line} --unseen error"))
    assert "test data: column 1 ('city'), line 2: 'Kyiv' was not seen in training" in error
    assert "pass --unseen missing" in error
    if command == "fit":
        answer(f"{line} --out m.safetensors")
        model = cc.load("m.safetensors")
        assert model.schema.columns[0].categories == ("Oslo", "Rome")
        test = pd.read_csv("test.csv").replace("Kyiv", None)
        assert left_out == pytest.approx(model.log_prob(test).mean(), rel=1e-6)


def test_warnings_are_one_line_each_and_leave_the_json_alone(invoke, folder):
    Path("empty_row.csv").write_text("0,1\n,\n" + "1,0\n" * 20)
    result = invoke(f"fit empty_row.csv --no-split {TINY} --json --out m")
    assert result.stderr.splitlines() == [
        "circurve: warning: train data: 1 of 22 rows have no observed value; they only slow EM down, and each "
        "counts as log 1 = 0 in mean log-likelihoods; remove them"
    ]
    strict_json(result.stdout)


def test_fit_without_out_says_that_nothing_is_saved(invoke, table, folder):
    result = invoke(f"fit {table} {TINY} --json")
    assert result.exit_code == 0
    assert result.stderr == "circurve: warning: no --out FILE, so the model will not be saved\n"
    assert strict_json(result.stdout)["out"] is None
    assert [path.name for path in folder.iterdir()] == [table]


@pytest.mark.parametrize(
    ("out", "reason"),
    [
        ("nowhere/m", "does not exist"),
        (".", "is a folder, not a file"),
        ("table.csv/m", "is a file"),
        ("table.csv", "would overwrite a file that this command reads or writes"),
        pytest.param("/proc/m", "cannot write to the folder /proc", marks=pytest.mark.linux),
        pytest.param("/dev/null", "is not a regular file", marks=pytest.mark.linux),
    ],
)
def test_a_hopeless_out_is_refused_before_training(invoke, table, monkeypatch, out, reason):
    monkeypatch.setattr("circurve.cli.fit.train", lambda *_: pytest.fail("trained"))
    line = error_line(invoke(f"fit {table} {TINY} --out {out}"))
    assert line.startswith(f"--out {out}: ")
    assert reason in line


def test_a_disk_that_fills_up_costs_the_file_but_not_the_numbers(invoke, table, monkeypatch):
    def full(*_):
        raise cc.errors.FileAccessError("cannot write m: No space left on device")

    monkeypatch.setattr("circurve.cli.saving.save_model", full)
    result = invoke(f"fit {table} {TINY} --json --out m")
    assert result.exit_code == 1
    assert result.stderr == "circurve: error: cannot write m: No space left on device\n"
    report = strict_json(result.stdout)
    assert report["out"] is None
    assert report["train_ll"] < 0


def test_ctrl_c_keeps_what_was_learned(invoke, table, monkeypatch):
    def told(*arguments):
        if not timer.ident:
            timer.start()  # after the first epoch, whenever a busy machine comes to it
        return tell(*arguments)

    tell, timer = Trainer._tell, threading.Timer(0.3, _thread.interrupt_main)
    monkeypatch.setattr(Trainer, "_tell", told)
    # a shell that starts the tests in the background has them ignore interrupts
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    result = invoke(f"fit {table} --units 3 --epochs 1000000 --out m.safetensors --json")
    timer.cancel()
    signal.signal(signal.SIGINT, before)
    assert result.exit_code == 130
    report = strict_json(result.stdout)
    assert report["stopped"] == "interrupted"
    assert result.stderr == (
        f"circurve: interrupted after {counted(report['epochs'], 'complete epoch')}; "
        f"the model trained so far is saved in m.safetensors\n"
    )
    assert cc.load("m.safetensors").circuit.variables == 5


def test_ctrl_c_before_the_first_step_leaves_an_older_model_alone(invoke, table, model, monkeypatch):
    def interrupted(*arguments):
        (result,) = train(*arguments)
        return FleetResult((replace(result, stopped="interrupted", history=(), epoch=0),))

    train = training.train_fleet
    monkeypatch.setattr(training, "train_fleet", interrupted)
    before = Path(model).read_bytes()
    result = invoke(f"fit {table} {TINY} --out {model} --json")
    assert result.exit_code == 130
    assert result.stderr == (
        "circurve: interrupted after 0 complete epochs; nothing was saved, "
        "because no step of the training was complete\n"
    )
    assert strict_json(result.stdout)["out"] is None
    assert Path(model).read_bytes() == before


def test_ctrl_c_before_training_says_so(invoke, table, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("circurve.cli.fit.load_for", interrupt)
    result = invoke(f"fit {table} {TINY} --out m")
    assert (result.exit_code, result.stderr, result.stdout) == (130, "circurve: interrupted\n", "")


def test_ctrl_c_while_the_command_line_is_read_says_so(invoke, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("circurve.cli.program.TyperGroup.make_context", interrupt)
    result = invoke("fit digits")
    assert (result.exit_code, result.stderr, result.stdout) == (130, "circurve: interrupted\n", "")


def test_training_can_start_around_rows_of_the_data(answer, table):
    words = f"fit {table} --units 3 --epochs 2"
    random, again, prototypes = (answer(words + more) for more in ("", " --init random", " --init prototypes"))
    assert (random["init"], prototypes["init"]) == ("random", "prototypes")
    assert random["train_ll"] == again["train_ll"] != prototypes["train_ll"]
