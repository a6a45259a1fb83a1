"""Tables with text, dates and unseen values on the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cli_helpers import error_line

import circurve as cc

TINY = "--units 3 --epochs 2"


@pytest.fixture
def people(folder: Path) -> pd.DataFrame:
    """Sixty people in people.csv."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "id": [f"p{n}" for n in range(60)],
            "age": rng.integers(20, 80, 60),
            "city": rng.choice(["Oslo", "Rome"], 60),
            "smoker": rng.choice([True, False], 60),
            "seen": pd.date_range("2024-01-01", periods=60).strftime("%Y-%m-%d"),
        }
    )
    frame.to_csv("people.csv", index=False)
    return frame


def test_text_and_dates_are_trained_on_and_scored_by_name(answer, invoke, people):
    assert "types: " not in error_line(invoke(f"fit people.csv {TINY}"))
    assert "leave the column out with --types id=drop" in error_line(invoke(f"fit people.csv {TINY}"))
    fitted = answer(f"fit people.csv {TINY} --types id=drop,age=gaussian --out m.safetensors")
    assert fitted["columns"] == ["age", "city", "smoker", "seen"]
    model = cc.load("m.safetensors")
    assert [family.name for family in model.schema.families] == ["gaussian", "categorical", "bernoulli", "gaussian"]
    people[people.columns[::-1]].to_parquet("turned.parquet")
    found = answer("evaluate m.safetensors turned.parquet")
    assert found["test_ll"] == pytest.approx(model.log_prob(people).mean(), abs=1e-5)
    trace = answer("curvature m.safetensors turned.parquet")["trace"]
    assert trace == pytest.approx(cc.curvature(model, people).trace, rel=1e-4)


def test_unseen_values_are_impossible_missing_or_errors(answer, invoke, people):
    answer(f"fit people.csv {TINY} --types id=drop --out m.safetensors")
    people.assign(city=["Kyiv", *people["city"][1:]]).to_csv("new.csv", index=False)
    result = invoke("evaluate m.safetensors new.csv")
    assert "column 2 ('city'): 'Kyiv' was not seen in training" in result.stderr
    assert (
        "1 row in all, first in line 2: rows with such a value have probability 0; pass --unseen missing"
        in result.stderr
    )
    report = answer("evaluate m.safetensors new.csv")
    assert (report["test_ll"], report["unseen_rows"]) == (None, 1)
    missing = answer("evaluate m.safetensors new.csv --unseen missing")
    assert np.isfinite(missing["test_ll"])
    line = error_line(invoke("evaluate m.safetensors new.csv --unseen error"))
    assert "new.csv: column 2 ('city'), line 2: 'Kyiv' was not seen in training ('Oslo', 'Rome')" in line
    assert answer("curvature m.safetensors new.csv")["samples"] == 59


def test_data_info_shows_families_and_what_read_the_file(answer, invoke, people):
    report = answer("data info people.csv --types id=categorical")
    assert sum(report["families"].values()) == 5
    assert report["read_by"].startswith("pyarrow ")
    assert [column["name"] for column in report["schema"]["columns"]] == list(people.columns)
    assert "read by" in invoke("data info people.csv --types id=drop").stdout


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ("age", "--types must be NAME=TYPE,NAME=TYPE, not 'age'"),
        ("age=normal", "types: 'normal' is not one of bernoulli, categorical"),
        ("aeg=gaussian", "no column 'aeg'; do you mean 'age'?"),
        ("city=gaussian,id=drop", "column 2 ('city') holds text, which cannot be gaussian"),
    ],
)
def test_wrong_types_are_named(invoke, people, types, expected):
    assert expected in error_line(invoke(f"fit people.csv {TINY} --types {types}"))


def test_types_need_names(invoke, rows, folder):
    np.savetxt("rows.data", rows, fmt="%g", delimiter=",")
    assert "rows has no column names; give the file a header" in error_line(invoke("fit rows.data --types a=gaussian"))
