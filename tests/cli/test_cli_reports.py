"""`evaluate`, `info`, `data` and the program itself."""

from __future__ import annotations

import json

import numpy as np
import pytest
from cli_helpers import FIELDS, strict_json, write_csv

import circurve as cc
from circurve.cli.parse import parse_step_size
from circurve.cli.show import document, print_table, significant
from circurve.persistence import read_metadata


def test_evaluate_scores_every_part(answer, invoke, model, rows):
    np.savez("parts.npz", train=rows[:80], valid=rows[80:90], test=rows[90:])
    report = answer(f"evaluate {model} parts.npz")
    assert all(field in report for field in FIELDS)
    loaded = cc.load(model)
    for split, part in (("train", rows[:80]), ("valid", rows[80:90]), ("test", rows[90:])):
        assert report[f"{split}_ll"] == pytest.approx(loaded.log_prob(part).mean())
        assert report["sharpness_by_split"][split] == pytest.approx(cc.curvature(loaded, part).trace)
    assert report["sharpness"] == report["sharpness_by_split"]["train"]
    assert (report["method"], report["units"], report["epochs"], report["seed"]) == ("vanilla", 3, 2, 0)
    one = answer(f"evaluate {model} parts.npz --split valid")
    assert (one["train_ll"], one["valid_ll"], one["test_ll"]) == (None, report["valid_ll"], None)
    assert one["dof"] is None
    assert one["sharpness"] == one["sharpness_by_split"]["valid"] == report["sharpness_by_split"]["valid"]
    assert one["sharpness_by_split"]["train"] is None
    text = invoke(f"evaluate {model} parts.npz").stdout
    assert "sharpness" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_a_single_table_is_scored_whole(answer, invoke, model, rows):
    write_csv("new.data", rows[:30])
    expected = pytest.approx(cc.load(model).log_prob(rows[:30]).mean())
    assert answer(f"evaluate {model} new.data")["test_ll"] == expected
    assert answer(f"evaluate {model} new.data --split train")["train_ll"] == expected
    result = invoke(f"evaluate {model} new.data")
    assert result.stderr == ""
    assert "new, model model.safetensors" in result.stdout


def test_the_table_of_the_training_is_split_as_it_was_then(answer, invoke, table, rows):
    fitted = answer(f"fit {table} --units 3 --epochs 2 --seed 4 --split 0.6,0.3,0.1 --out m.safetensors")
    found = answer(f"evaluate m.safetensors {table}")
    assert found["rows"] == fitted["rows"] == {"train": 60, "valid": 30, "test": 10}
    for name in ("train_ll", "valid_ll", "test_ll"):
        assert found[name] == pytest.approx(fitted[name], abs=1e-5)
    test = answer(f"evaluate m.safetensors {table} --split test")
    assert test["rows"] == {"train": None, "valid": None, "test": 10}
    assert test["test_ll"] == found["test_ll"]
    assert invoke(f"evaluate m.safetensors {table}").stderr == ""
    write_csv("other.csv", rows[::-1], "a,b,c,d,e")
    assert answer("evaluate m.safetensors other.csv --split test")["rows"]["test"] == 100


def test_a_model_from_before_splits_were_recorded_points_to_its_table(invoke, model, table):
    loaded, training = cc.load(model), json.loads(read_metadata(model)["training"])
    del training["split"]
    loaded.save("old.safetensors", {"training": json.dumps(training)})
    assert invoke(f"evaluate old.safetensors {table}").stderr == (
        "circurve: warning: table.csv looks like the table that the model was trained on; "
        "test_ll includes the training rows\n"
    )


def test_evaluate_takes_missing_values(answer, model, rows):
    holes = rows.astype(float)
    holes[::3, 1] = np.nan
    np.save("holes.npy", holes)
    write_csv("marked.csv", np.nan_to_num(holes, nan=-1))
    expected = pytest.approx(cc.load(model).log_prob(holes).mean())
    assert answer(f"evaluate {model} holes.npy")["test_ll"] == expected
    assert answer(f"evaluate {model} marked.csv --missing -1")["test_ll"] == expected


def test_probability_zero_is_null_with_a_note(answer, invoke, folder):
    circuit = cc.fully_factorized(2)
    certain = cc.Model.from_parameters(circuit, inputs={node: [[1.0]] for node in circuit.inputs})
    certain.save("certain.safetensors")
    np.save("rows.npy", np.array([[1, 1], [0, 1]]))
    report = answer("evaluate certain.safetensors rows.npy")
    assert report["test_ll"] is None
    assert report["notes"] == ["test_ll is -inf: at least one row has probability zero"]
    assert report["sharpness"] == 0
    assert (report["method"], report["epochs"]) == (None, None)
    assert "-inf" in invoke("evaluate certain.safetensors rows.npy").stdout


def test_json_holds_no_number_that_json_does_not_know():
    fields = {"a": float("nan"), "b": {"c": [float("inf"), 1.5]}, "d": np.float64(2), "e": True, "f": None}
    assert document(fields) == {
        "a": None,
        "b": {"c": [None, 1.5]},
        "d": 2.0,
        "e": True,
        "f": None,
        "notes": ["a is nan", "b.c is inf"],
    }


def test_a_table_folds_text_but_never_cuts_a_number(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    numbers = [f"-{i}23456.789" for i in range(9)]
    heads = ("name", *("a number" for _ in numbers), "word")
    print_table(heads, [("a name of many words", *numbers, "two words")], texts=["word"])
    shown = capsys.readouterr().out
    assert all(text in shown for text in (*numbers, "words"))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1892.4, "1,892"),
        (515.16, "515.2"),
        (0.99999, "1.000"),
        (0.0123456, "0.01235"),
        (1.5e9, "1.500e+09"),
        (-2.5e-7, "-2.500e-07"),
        (0.0, "0"),
        (float("inf"), "inf"),
        (None, "-"),
    ],
)
def test_numbers_of_any_size_keep_four_digits(value, shown):
    assert significant(value) == shown


def test_info_describes_the_model(answer, invoke, model):
    report = answer(f"info {model}")
    summary = cc.load(model).circuit.describe()
    assert (report["variables"], report["parameters"], report["depth"]) == (5, summary.parameters, summary.depth)
    assert (report["format"], report["format_version"], report["dtype"]) == ("circurve", 1, "float32")
    assert report["families"] == {"Bernoulli": 5}
    assert report["training"]["dataset"] == "table"
    text = invoke(f"info {model}").stdout
    for part in ("5 x Bernoulli", f"{summary.parameters:,}", "sum edges", "trained on", "table"):
        assert part in text


def test_info_of_a_model_saved_from_python(answer, invoke, folder):
    circuit = cc.fully_factorized(2)
    cc.Model.from_parameters(circuit, inputs={node: [[0.5]] for node in circuit.inputs}).save("m.safetensors")
    assert answer("info m.safetensors")["training"] is None
    assert "trained" not in invoke("info m.safetensors").stdout


def test_data_list_tells_what_is_there(answer, invoke, folder, rows):
    for split in ("train", "valid", "test"):
        write_csv(f"tiny.{split}.data", rows)
    listed = {item["name"]: item for item in answer(f"data list --data-dir {folder}")["datasets"]}
    assert listed["digits"]["available"]
    assert listed["tiny"]["rows"] == {"train": 100, "valid": 100, "test": 100}
    assert not listed["nltcs"]["available"]
    text = invoke("data list").stdout
    assert "download on first use" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_data_info_of_a_file(answer, invoke, rows):
    table = np.column_stack([rows, np.full(100, 3.5), np.arange(100) % 4])
    table[:10, 0] = -1
    write_csv("mixed.csv", table, "a,b,c,d,e,fixed,kind")
    report = answer("data info mixed.csv --missing -1")
    assert report["rows"] == {"train": 100, "valid": None, "test": None}
    assert report["columns"] == ["a", "b", "c", "d", "e", "fixed", "kind"]
    assert report["families"]["Bernoulli"] == 5
    assert report["families"]["Categorical(states=4)"] == 1
    assert report["missing"] == pytest.approx(10 / 700)
    assert report["constant_columns"] == ["fixed"]
    text = invoke("data info mixed.csv --missing -1").stdout
    for part in ("1.43% of values, in 1 of 7 columns", "1: fixed", "5 x Bernoulli"):
        assert part in text
    lines = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    assert all(name in lines for name in report["columns"])
    assert "Categorical(states=4)" in lines["kind"]


def test_data_info_of_a_data_set(invoke):
    text = invoke("data info digits").stdout
    assert "1,257 train, 270 valid, 270 test" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_version_and_help(invoke):
    assert invoke("--version").stdout == f"circurve {cc.__version__}\n"
    data = ("data", "data list", "data info", "data download")
    for command in ("", "fit", "evaluate", "curvature", "sweep", "info", "demo", *data):
        result = invoke(f"{command} --help")
        assert result.exit_code == 0
        assert "Usage: circurve" in result.stdout


@pytest.mark.parametrize("command", ["", "data"])
def test_a_group_alone_shows_its_help_and_counts_as_bad_use(invoke, command):
    result = invoke(command)
    assert result.exit_code == 2
    assert "Commands" in result.stdout


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.1", 0.1),
        ("1", 1.0),
        ("cosine:0.2:0.005", cc.schedules.cosine(0.2, 0.005)),
        ("linear:1:0.5", cc.schedules.linear(1.0, 0.5)),
        ("exponential:1e-1:1e-3", cc.schedules.exponential(0.1, 0.001)),
    ],
)
def test_step_sizes_are_numbers_or_schedules(text, expected):
    assert parse_step_size(text) == expected


def test_every_report_is_strict_json(invoke, model, table):
    for command in (f"info {model}", f"data info {table}", "data list", f"evaluate {model} {table}"):
        assert strict_json(invoke(f"{command} --json").stdout)["command"] == " ".join(
            word for word in command.split() if word not in (model, table)
        )
