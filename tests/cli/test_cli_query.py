"""`circurve query`, `sample` and `impute` on a small table with text, numbers and true and false."""

from __future__ import annotations

import csv
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


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 2, 300)
    frame = pd.DataFrame(
        {
            "home town": np.array(["Rome", "Oslo, N"])[(kind + (rng.random(300) < 0.1)) % 2],
            "income": rng.normal(2 + 3 * kind, 0.5),
            "adult": rng.random(300) < 0.3 + 0.5 * kind,
            "born": pd.Timestamp("2000-01-01") + pd.to_timedelta(rng.integers(0, 300, 300), "D"),
        }
    )
    model = cc.fit(cc.hclt(frame, 2), frame, epochs=10, batch_size=None, valid=None, progress=False).model
    path = tmp_path_factory.mktemp("models") / "people.safetensors"
    model.save(path)
    return path


def run(*words: object, **more: Any) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], **more)


def test_a_name_alone_asks_for_a_distribution(saved: Path) -> None:
    document = strict_json(run("query", saved, "'home town' | income=2.0, adult=no", "--json").stdout)
    table = document["distributions"]["home town"]["table"]
    expected = cc.load(saved).distribution("home town", {"income": 2.0, "adult": False})
    assert table["home town"] == expected["home town"].tolist()
    assert table["probability"] == expected["probability"].tolist()


def test_values_and_intervals_ask_for_a_probability(saved: Path) -> None:
    document = strict_json(run("query", saved, "income=1..3, adult=true | 'home town'='Oslo, N'", "--json").stdout)
    expected = cc.load(saved).conditional({"income": (1, 3), "adult": True}, {"home town": "Oslo, N"})
    assert document["probability"] == pytest.approx(expected, rel=1e-12)
    assert document["density"] is False
    half_open = strict_json(run("query", saved, "income=..3", "--json").stdout)
    assert half_open["probability"] == pytest.approx(cc.load(saved).interval({"income": (None, 3)}), rel=1e-12)
    assert strict_json(run("query", saved, "income=3", "--json").stdout)["density"] is True
    dated = strict_json(run("query", saved, "born=2000-01-01..2000-06-30", "--json").stdout)
    assert dated["probability"] == pytest.approx(
        cc.load(saved).interval({"born": ("2000-01-01", "2000-06-30")}), rel=1e-12
    )


def test_tables_show_probabilities_and_quantiles(saved: Path) -> None:
    shown = run("query", saved, "'home town' | adult=yes").stdout
    assert "Oslo, N" in shown and "probability" in shown  # noqa: PT018 - one picture
    shown = run("query", saved, "income").stdout
    assert "50 %" in shown and "standard deviation" in shown  # noqa: PT018
    assert "probability  " in run("query", saved, "adult=yes").stdout


def test_csv_is_one_table(saved: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(run("query", saved, "income | adult=yes", "--csv").stdout)))
    assert len(rows) == 201
    assert float(rows[-1]["cumulative"]) == pytest.approx(0.999)
    assert run("query", saved, "adult=yes", "--csv").stdout.startswith("probability,log_probability\n")


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("incme", "no column 'incme'; do you mean 'income'?"),
        ("'home town'=Roma", "'Roma' was not seen in training; do you mean 'Rome'?"),
        ("income | income=3", "'income' is on both sides of the bar"),
        ("income | adult", "the column 'adult' has no value; write adult=VALUE"),
        ("income, adult=yes", "'income' has no value, but other columns have one"),
        ("| adult=yes", "is empty on the left of the bar"),
        ("income | adult=yes | born=2000-01-01", "more than one bar"),
        ("income | adult=perhaps", "holds true and false, not 'perhaps'"),
        ("income=much", "holds numbers, not 'much'"),
        ("income=", "there is no value after income="),
        ("income=5..1", "has its ends in the wrong order"),
        ("income | adult=yes,", "there is nothing between two"),
        ("income | 'adult=yes", "there is no closing quote"),
        ("income | adult=yes, adult=no", "'adult' is given twice"),
    ],
)
def test_a_question_that_makes_no_sense_is_one_line(saved: Path, question: str, words: str) -> None:
    assert words in error_line(run("query", saved, question))


def test_json_and_csv_exclude_each_other(saved: Path) -> None:
    assert "cannot be combined" in error_line(run("query", saved, "income", "--json", "--csv"))


def test_rows_are_drawn_to_standard_output_or_a_file(saved: Path, tmp_path: Path) -> None:
    shown = run("sample", saved, "-n", 5, "--given", "adult=yes, income=2.25", "--seed", 3)
    assert shown.exit_code == 0, shown.output
    rows = list(csv.DictReader(io.StringIO(shown.stdout)))
    assert [row["adult"] for row in rows] == ["True"] * 5
    assert {row["income"] for row in rows} == {"2.25"}
    assert len(rows[0]["born"]) == len("2000-01-01")
    out = tmp_path / "rows.csv"
    again = run("sample", saved, "-n", 5, "--given", "adult=yes, income=2.25", "--seed", 3, "--out", out)
    assert again.exit_code == 0
    assert out.read_text() == shown.stdout
    assert "does not exist" in error_line(run("sample", saved, "--out", tmp_path / "no" / "rows.csv"))
    assert "n must be" in error_line(run("sample", saved, "-n", 0))


def test_holes_of_a_file_are_filled(saved: Path, tmp_path: Path) -> None:
    source, out = tmp_path / "holes.csv", tmp_path / "filled.csv"
    source.write_text("income,home town,adult\n2.123456789,,true\n,Rome,\n")
    done = run("impute", saved, source, "--out", out)
    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader(io.StringIO(out.read_text())))
    assert rows[0]["income"] == "2.123456789"
    assert rows[0]["home town"] in ("Rome", "Oslo, N")
    assert rows[1]["home town"] == "Rome"
    assert float(rows[1]["income"]) == pytest.approx(cc.load(saved).mean({"home town": "Rome"})["income"][0], rel=1e-5)
    assert len(rows[1]["income"].lstrip("-").replace(".", "").lstrip("0")) <= 7
    assert all(value for row in rows for value in row.values())
    assert "would overwrite a file that this command reads or writes" in error_line(
        run("impute", saved, source, "--out", source)
    )
    assert "--how must be one of" in error_line(run("impute", saved, source, "--how", "best"))


def test_every_question_has_a_memory_budget(invoke, model, table):
    for words in (
        f"query {model} a",
        f"sample {model} -n 5",
        f"impute {model} {table}",
        f"statistics {model} {table} --out s.npz",
    ):
        assert invoke(f"{words} --memory-budget 10MB").exit_code == 0, words
        assert "--memory-budget" in error_line(invoke(f"{words} --memory-budget none")), words
    line = error_line(invoke(f"sample {model} -n 100000 --memory-budget 1MB"))
    assert line.startswith(
        "sample needs 8 MB (rows 8 MB), but --memory-budget 1000000 is less: draw fewer rows at once"
    )


def test_rows_without_names_are_written_as_they_are_read(invoke, folder: Path) -> None:
    """A header of indices would come back as one more row."""
    np.savetxt("bare.csv", np.random.default_rng(0).integers(0, 2, (40, 3)), fmt="%d", delimiter=",")
    assert invoke("fit bare.csv --units 2 --epochs 1 --no-split --out m.safetensors").exit_code == 0
    drawn = invoke("sample m.safetensors -n 4 --out drawn.csv")
    assert drawn.exit_code == 0
    assert len(Path("drawn.csv").read_text().splitlines()) == 4
    report = strict_json(invoke("evaluate m.safetensors drawn.csv --json").stdout)
    assert report["test_ll"] > -10
    Path("holes.csv").write_text("1,,1\n0,1,0\n")
    assert invoke("impute m.safetensors holes.csv --how mode").stdout.splitlines()[1:] == ["0,1,0"]
    Path("named.csv").write_text("x,y,z,more\n1,0,1,7\n")
    filled = invoke("impute m.safetensors named.csv --types more=drop")
    assert filled.stdout == "x,y,z,more\n1,0,1,7\n"
