"""Standard input and output by `-`, and the files that rows are written to."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cli_helpers import error_line, strict_json
from typer.testing import CliRunner, Result

import circurve as cc
from circurve.cli import app


def run(*words: object, **more: Any) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], **more)


@pytest.fixture
def people(folder: Path) -> pd.DataFrame:
    """Sixty people in people.csv; the column `id` is left out of the model in m.safetensors."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "id": [f"p{n}" for n in range(60)],
            "age": rng.integers(20, 80, 60),
            "city": rng.choice(["Oslo", "Rome"], 60),
            "seen": pd.date_range("2024-01-01", periods=60).strftime("%Y-%m-%d"),
        }
    )
    frame.to_csv("people.csv", index=False)
    words = ["fit", "people.csv", "--units", "2", "--epochs", "2", "--types", "id=drop", "--out", "m.safetensors"]
    assert run(*words).exit_code == 0
    return frame


HOLES = "id,age,city,seen\n7,,Rome,2024-01-05\n8,33,,\n"


def test_data_come_from_standard_input(people):
    text = Path("people.csv").read_text()
    fitted = run(
        "fit", "-", "--units", 2, "--epochs", 2, "--types", "id=drop", "--out", "n.safetensors", "--json", input=text
    )
    assert strict_json(fitted.stdout)["dataset"] == "standard input"
    from_file = strict_json(run("evaluate", "n.safetensors", "people.csv", "--json").stdout)
    from_stream = strict_json(run("evaluate", "n.safetensors", "-", "--json", input=text).stdout)
    assert {name: from_file[name] for name in ("train_ll", "valid_ll", "test_ll", "rows")} == {
        name: from_stream[name] for name in ("train_ll", "valid_ll", "test_ll", "rows")
    }
    packed = strict_json(run("evaluate", "n.safetensors", "-", "--json", input=gzip.compress(text.encode())).stdout)
    assert packed["test_ll"] == from_file["test_ll"]


def test_holes_are_filled_from_stream_to_stream(people):
    done = run("impute", "m.safetensors", "-", "--out", "-", input=HOLES)
    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert list(rows[0]) == ["id", "age", "city", "seen"]  # what the training left out is copied
    assert [row["id"] for row in rows] == ["7", "8"]
    assert (rows[0]["city"], rows[0]["seen"], rows[1]["age"]) == ("Rome", "2024-01-05", "33")
    expected = cc.load("m.safetensors").mean({"city": "Rome", "seen": "2024-01-05"})["age"][0]
    assert float(rows[0]["age"]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_rows_are_written_to_files_of_three_kinds(people, suffix):
    Path("holes.csv").write_text(HOLES)
    done = run("impute", "m.safetensors", "holes.csv", "--out", f"filled{suffix}")
    assert "filled    3 of 6 values" in done.stdout
    sep = {".csv": ",", ".tsv": "\t"}
    path = f"filled{suffix}"
    frame = pd.read_parquet(path) if suffix == ".parquet" else pd.read_csv(path, sep=sep[suffix], parse_dates=["seen"])
    assert frame["id"].tolist() == [7, 8]
    assert frame["city"][0] == "Rome"
    assert frame["seen"][0] == pd.Timestamp("2024-01-05")
    assert not frame.isna().to_numpy().any()
    assert run("sample", "m.safetensors", "-n", 4, "--out", f"drawn{suffix}").exit_code == 0
    drawn = (
        pd.read_parquet(f"drawn{suffix}") if suffix == ".parquet" else pd.read_csv(f"drawn{suffix}", sep=sep[suffix])
    )
    assert drawn.shape == (4, 3)


def test_values_that_training_did_not_see_are_errors_or_replaced(people):
    Path("new.csv").write_text("age,city,seen\n30,Kyiv,2024-01-05\n")
    line = error_line(run("impute", "m.safetensors", "new.csv"))
    assert "new.csv: column 2 ('city'), line 2: 'Kyiv' was not seen in training ('Oslo', 'Rome')" in line
    done = run("impute", "m.safetensors", "new.csv", "--unseen", "missing")
    assert next(csv.DictReader(io.StringIO(done.stdout)))["city"] in ("Oslo", "Rome")
    assert "'impossible' is not one of 'missing', 'error'" in error_line(
        run("impute", "m.safetensors", "new.csv", "--unseen", "impossible")
    )


def test_columns_that_the_model_does_not_know_are_copied_on_request(people):
    text = "note,age,city\nfirst,,Rome\n"
    assert "leave it out with --types note=drop" in error_line(run("impute", "m.safetensors", "-", input=text))
    done = run("impute", "m.safetensors", "-", "--types", "note=drop", input=text)
    row = next(csv.DictReader(io.StringIO(done.stdout)))
    assert list(row) == ["note", "age", "city", "seen"]
    assert row["note"] == "first"
    line = error_line(run("impute", "m.safetensors", "-", "--types", "age=poisson", input=text))
    assert "--types age=poisson: the types are saved in the model; here only NAME=drop is allowed" in line


def test_parquet_needs_pyarrow(people, monkeypatch):
    monkeypatch.setattr("circurve.cli.files.find_spec", lambda name: None)
    line = error_line(run("sample", "m.safetensors", "--out", "rows.parquet"))
    assert line == "--out rows.parquet: Parquet files need pyarrow: pip install 'circurve[pyarrow]', or write .csv"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            "sample m.safetensors --out rows.json",
            "--out rows.json: unknown kind of file '.json'; use one of .csv, .tsv",
        ),
        ("impute m.safetensors people.csv --out rows", "--out rows: the name has no suffix; use one of .csv, .tsv"),
        (
            "impute m.safetensors people.csv --out people.csv",
            "--out people.csv: would overwrite a file that this command reads or writes",
        ),
        ("sample m.safetensors -n 0", "-n must be a whole number >= 1, not 0"),
        ("sample m.safetensors --given city", "the column 'city' has no value; write city=VALUE"),
        ("sample m.safetensors --given cty=Rome", "no column 'cty'; do you mean 'city'?"),
        (
            "sample m.safetensors --given city=Roma",
            "column 'city': 'Roma' was not seen in training; do you mean 'Rome'?",
        ),
        ("sample m.safetensors --given city=Rome,city=Oslo", "the column 'city' is given twice"),
        ("sample m.safetensors --given seen=soon", "('seen') holds the text 'soon', not a date such as '2024-01-31'"),
        ("sample m.safetensors --seed -1", "--seed must be a whole number >= 0, not -1"),
        ("impute m.safetensors people.csv --how best", "--how must be one of mean, mode, sample, not 'best'"),
        ("impute m.safetensors nowhere.csv", "nowhere.csv: no such file"),
        ("impute people.csv people.csv", "people.csv: not a safetensors file"),
        ("impute m.safetensors digits", "digits has several parts; impute takes a file with one table"),
        ("impute m.safetensors -", "standard input: there is nothing to read"),
        ("evaluate m.safetensors -", "standard input: there is nothing to read"),
        ("fit - --valid -", "standard input (-) can be read only once; name files for the other tables"),
        ("fit people.csv --out -", "--out -: this cannot be written to standard output; name a file"),
        (
            "curvature m.safetensors people.csv --csv -",
            "--csv -: this cannot be written to standard output; name a file",
        ),
    ],
)
def test_wrong_places(people, words, expected):
    assert expected in error_line(run(*words.split()))


def test_info_shows_the_schema(people):
    shown = run("info", "m.safetensors").stdout
    for text in ("Oslo, Rome", "categories", "Categorical(states=2)", "days since 2024-01-01", "left out"):
        assert text in shown
    report = strict_json(run("info", "m.safetensors", "--json").stdout)
    assert [column["name"] for column in report["schema"]["columns"]] == ["age", "city", "seen"]
    assert report["schema"]["columns"][1]["categories"] == ["Oslo", "Rome"]
    assert report["schema"]["ignored"] == ["id"]


def test_info_of_a_wide_model_lists_the_first_columns(folder):
    names = [f"v{n}" for n in range(50)]
    pd.DataFrame(np.random.default_rng(0).integers(0, 2, (30, 50)), columns=names).to_csv("wide.csv", index=False)
    assert run("fit", "wide.csv", "--structure", "factorized", "--epochs", 1, "--out", "w.safetensors").exit_code == 0
    shown = run("info", "w.safetensors").stdout
    assert "v39" in shown
    assert "v40" not in shown
    assert "10 more" in shown


def test_nodes_of_the_curvature_name_the_columns_below(people):
    report = strict_json(run("curvature", "m.safetensors", "people.csv", "--json").stdout)
    below = {(node["name"], node["unit"]): node for node in report["top"]["total"]}
    assert below["root", 0]["columns"] is None
    assert below["root", 0]["scope_size"] == 3
    single = [node["columns"] for node in below.values() if node["scope_size"] == 1]
    assert single
    assert {name for names in single for name in names} <= {"age", "city", "seen"}
    assert "columns" in run("curvature", "m.safetensors", "people.csv").stdout
