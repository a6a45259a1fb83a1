"""`circurve evaluate --scores` and `--explain`: scores row by row, and the cells that cause low scores."""

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


def run(*words: object, **more: Any) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], **more)


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture(scope="module")
def people() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 2, 200)
    return pd.DataFrame(
        {
            "city": np.array(["Rome", "Oslo"])[kind],
            "income": rng.normal(2 + 3 * kind, 0.5).round(3),
            "adult": rng.random(200) < 0.3 + 0.5 * kind,
            "born": pd.Timestamp("2000-01-01") + pd.to_timedelta(rng.integers(0, 300, 200), "D"),
        }
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, people: pd.DataFrame) -> Path:
    folder = tmp_path_factory.mktemp("scores")
    people.to_csv(folder / "people.csv", index=False)
    path = folder / "m.safetensors"
    done = run("fit", folder / "people.csv", "--units", 2, "--epochs", 15, "--out", path)
    assert done.exit_code == 0, done.output
    return path


@pytest.fixture
def odd(tmp_path: Path, people: pd.DataFrame) -> Path:
    """Ten people: the first from a city that was not seen in training, the third with an income out of all range."""
    few = people.head(10).assign(city=["Kyiv", *people["city"][1:10]])
    few["income"] = [*few["income"][:2], 40.0, *few["income"][3:]]
    path = tmp_path / "odd.csv"
    few[few.columns[::-1]].to_csv(path, index=False)
    return path


def test_every_row_has_its_line_and_score(saved: Path, odd: Path, tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    report = strict_json(run("evaluate", saved, odd, "--scores", out, "--json").stdout)
    rows = read(out.read_text())
    assert list(rows[0]) == ["line", "log_likelihood"]
    assert [int(row["line"]) for row in rows] == list(range(2, 12))
    assert rows[0]["log_likelihood"] == "-inf"
    expected = cc.load(saved).log_prob(pd.read_csv(odd, parse_dates=["born"]).iloc[1:])
    assert [float(row["log_likelihood"]) for row in rows[1:]] == pytest.approx(expected, rel=1e-6)
    assert report["scores"] == str(out)
    assert report["test_ll"] is None


def test_rows_without_a_value_are_counted_in_a_warning(saved: Path, people: pd.DataFrame, tmp_path: Path) -> None:
    few = people.head(6)
    empty = few.astype(object).where(few.index.to_series() > 1, None)  # the first two rows
    empty.loc[2] = ["Kyiv", None, None, None]  # its only value was not seen: not empty
    path, others = tmp_path / "empty.csv", tmp_path / "others.csv"
    empty.to_csv(path, index=False)
    empty.iloc[3:].to_csv(others, index=False)
    found = run("evaluate", saved, path, "--json", "--unseen", "missing")
    report, alone = strict_json(found.stdout), strict_json(run("evaluate", saved, others, "--json").stdout)
    assert (report["empty_rows"], alone["empty_rows"]) == (3, 0)
    assert report["test_ll"] == pytest.approx(alone["test_ll"] * 3 / 6, rel=1e-6)
    assert "3 of 6 rows have no observed value; each counts as log 1 = 0 in the mean log-likelihood" in found.stderr
    assert strict_json(run("evaluate", saved, path, "--json").stdout)["empty_rows"] == 2


def test_cells_to_blame_are_named_with_what_was_expected(saved: Path, odd: Path, people: pd.DataFrame) -> None:
    rows = read(run("evaluate", saved, odd, "--scores", "-", "--explain").stdout)
    first = rows[0]
    assert (first["column_1"], first["value_1"], first["log_probability_1"]) == ("city", "Kyiv", "-inf")
    assert first["expected_1"] in ("Rome", "Oslo")
    assert first["column_2"] == ""  # one unseen value explains it all
    third, model = rows[2], cc.load(saved)
    assert (third["column_1"], third["value_1"]) == ("income", "40")
    rest = {name: people[name][2] for name in ("city", "adult", "born")}
    known = model.conditional({"income": 40.0}, rest, log=True)
    assert float(third["log_probability_1"]) == pytest.approx(known, rel=1e-6)
    assert float(third["expected_1"]) == pytest.approx(model.mean(rest)["income"][0], rel=1e-5)
    assert all(row[f"column_{n}"] for row in rows[1:] for n in (1, 2, 3))
    dates = [row[f"{what}_{n}"] for row in rows for n in (1, 2, 3) if row[f"column_{n}"] == "born"
             for what in ("value", "expected")]  # fmt: skip
    assert dates
    assert all(len(text) == len("2000-01-01") for text in dates)


def test_a_cell_that_the_rest_rules_out_is_the_culprit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    circuit = cc.fully_factorized(3)
    given = {node: [[1.0 if node.variable == 1 else 0.5]] for node in circuit.inputs}
    cc.Model.from_parameters(circuit, inputs=given).save("m.safetensors")
    np.save("rows.npy", np.array([[1, 1, 0], [0, 0, 1]]))
    rows = read(run("evaluate", "m.safetensors", "rows.npy", "--scores", "-", "--explain").stdout)
    assert [row["row"] for row in rows] == ["0", "1"]
    assert (rows[1]["log_likelihood"], rows[1]["column_1"], rows[1]["value_1"]) == ("-inf", "1", "0")
    assert (rows[1]["log_probability_1"], rows[1]["expected_1"], rows[1]["column_2"]) == ("-inf", "1", "")
    cc.Model.from_parameters(circuit, inputs={node: [[1.0]] for node in circuit.inputs}).save("m.safetensors")
    blameless = read(run("evaluate", "m.safetensors", "rows.npy", "--scores", "-", "--explain").stdout)[1]
    assert blameless["log_likelihood"] == "-inf"
    assert blameless["column_1"] == ""  # two cells are impossible: neither causes it alone


def test_scores_on_standard_output_leave_the_report_to_standard_error(saved: Path, odd: Path) -> None:
    done = run("evaluate", saved, odd, "--scores", "-")
    assert done.stdout.startswith("line,log_likelihood\n2,-inf\n")
    assert "odd, model" in done.stderr
    assert "odd, model" not in done.stdout


def test_the_table_of_the_training_keeps_its_order_and_names_its_parts(saved: Path, people: pd.DataFrame) -> None:
    rows = read(run("evaluate", saved, saved.parent / "people.csv", "--scores", "-").stdout)
    assert [int(row["line"]) for row in rows] == list(range(2, 202))
    assert {row["split"] for row in rows} == {"train", "valid", "test"}
    found = [float(row["log_likelihood"]) for row in rows]
    assert found == pytest.approx(cc.load(saved).log_prob(people), rel=1e-5)


def test_rows_of_an_array_keep_their_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", np.random.default_rng(0).integers(0, 2, (40, 4)))
    assert run("fit", "rows.npy", "--units", 2, "--epochs", 2, "--out", "m.safetensors").exit_code == 0
    rows = read(run("evaluate", "m.safetensors", "rows.npy", "--scores", "-").stdout)
    assert [int(row["row"]) for row in rows] == list(range(1, 41))
    expected = cc.load("m.safetensors").log_prob(np.load("rows.npy"))
    assert [float(row["log_likelihood"]) for row in rows] == pytest.approx(expected, rel=1e-5)


def test_the_report_shows_the_least_probable_rows(saved: Path, odd: Path) -> None:
    rows = strict_json(run("evaluate", saved, odd, "--explain", "--json").stdout)["least_probable"]
    assert [row["line"] for row in rows[:2]] == [2, 4]
    assert rows[0]["cells"] == [
        {"column": "city", "value": "Kyiv", "log_probability": None, "expected": rows[0]["cells"][0]["expected"]}
    ]
    shown = run("evaluate", saved, odd, "--explain").stdout
    assert "least probable rows" in shown
    assert "Kyiv" in shown
    assert max(len(line) for line in shown.splitlines()) <= 80


def test_unseen_values_with_a_share_are_blamed_by_it(tmp_path: Path, people: pd.DataFrame) -> None:
    schema = cc.infer_schema(people, unseen_share=0.01)
    model = cc.fit(cc.hclt(people, 2, schema=schema), people, epochs=3, valid=False, progress=False).model
    model.save(tmp_path / "m.safetensors")
    people.head(3).assign(city="Kyiv").to_csv(tmp_path / "new.csv", index=False)
    rows = read(run("evaluate", tmp_path / "m.safetensors", tmp_path / "new.csv", "--scores", "-", "--explain").stdout)
    cities = [row[f"log_probability_{n}"] for row in rows for n in (1, 2, 3) if row[f"column_{n}"] == "city"]
    assert [float(text) for text in cities] == pytest.approx([np.log(0.01)] * 3)


def test_columns_that_the_model_does_not_know_are_left_out_on_request(saved: Path, odd: Path, tmp_path: Path) -> None:
    more = tmp_path / "more.csv"
    pd.read_csv(odd).assign(id=range(10)).to_csv(more, index=False)
    line = error_line(run("evaluate", saved, more))
    assert line.endswith("no column 'id' in the training data; there are 'city', 'income', 'adult', 'born'; leave it "
                         "out with --types id=drop")  # fmt: skip
    plain = run("evaluate", saved, odd, "--scores", "-").stdout
    assert run("evaluate", saved, more, "--scores", "-", "--types", "id=drop").stdout == plain


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--scores - --json", "--json and --scores - both write to standard output; name a file for the scores"),
        ("--scores rows.xlsx", "--scores rows.xlsx: unknown kind of file '.xlsx'; use one of .csv, .tsv, .parquet; -"),
        ("--scores rows", "--scores rows: the name has no suffix; use one of .csv"),
        ("--scores no/rows.csv", "no does not exist"),
        ("--scores odd.csv", "--scores odd.csv: would overwrite a file that this command reads or writes"),
        (
            "--types id=gaussian",
            "--types id=gaussian: the types are saved in the model; here only NAME=drop is allowed",
        ),
        ("--types id=drop", "odd.csv: no column 'id' to leave out; there are"),
        (
            "--types born=drop",
            "the data has no column 'born', but the training data has; add an empty column of that name",
        ),
        ("--types city=drop,income=drop,adult=drop,born=drop", "odd.csv: no column is left"),
    ],
)
def test_wrong_options(saved: Path, odd: Path, monkeypatch: pytest.MonkeyPatch, words: str, expected: str) -> None:
    monkeypatch.chdir(odd.parent)
    assert expected in error_line(run("evaluate", saved, "odd.csv", *words.split()))


def test_scores_that_cannot_be_written_hide_no_numbers(
    saved: Path, odd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("circurve.cli.evaluate.write_rows", fail)
    done = run("evaluate", saved, odd, "--scores", tmp_path / "rows.csv", "--unseen", "missing", "--json")
    assert done.exit_code == 1
    assert "circurve: error: no space left" in done.stderr
    report = strict_json(done.stdout)
    assert report["scores"] is None
    assert np.isfinite(report["test_ll"])
