"""`circurve statistics` and `circurve merge`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_helpers import error_line, write_csv
from numpy.typing import NDArray
from typer.testing import Result

import circurve as cc

Answer = Callable[[str], dict[str, Any]]


@pytest.fixture
def trained(answer: Answer, rows: NDArray[np.int64]) -> None:
    write_csv("t.csv", rows, "a,b,c,d,e")
    answer("fit t.csv --units 2 --epochs 2 --no-split --out m")


@pytest.mark.usefixtures("trained")
def test_shards_measured_apart_and_merged_are_one_pass(answer: Answer) -> None:
    whole = answer("statistics m t.csv --out whole.npz")
    for number in (1, 2, 3):
        part = answer(f"statistics m t.csv --shard {number}/3 --out s{number}.npz")
        assert part["shards"] == [f"{number}/3"]
    merged = answer("merge s3.npz s1.npz s2.npz --out all.npz --model m --step next")
    assert merged["rows"] == whole["rows"] == 100
    for name in ("mean_ll", "sharpness"):
        assert merged[name] == pytest.approx(whole[name], rel=1e-12)
    before, after = cc.load("m"), cc.load("next")
    table = cc.load_data("t.csv").train
    assert after.log_prob(table).mean() > before.log_prob(table).mean()
    assert answer("merge all.npz")["sharpness"] == merged["sharpness"]
    assert answer("curvature m t.csv")["trace"] == pytest.approx(merged["sharpness"], rel=1e-4)


@pytest.mark.usefixtures("trained")
def test_what_cannot_be_merged_gets_one_line(invoke: Callable[[str], Result]) -> None:
    assert invoke("statistics m t.csv --shard 1/2 --out s1.npz").exit_code == 0
    text = invoke("merge s1.npz").stdout
    assert "1/2" in text
    assert "sharpness" in text
    lines = {
        "statistics m t.csv --shard 3/2 --out x.npz": "--shard must be I/N with whole numbers 1 <= I <= N",
        "statistics m t.csv --shard half --out x.npz": "such as 2/4, not 'half'",
        "statistics m t.csv --shard 1/2 --out m": "would overwrite a file that this command reads or writes",
        "merge s1.npz s1.npz": "shard 1/2 is given twice",
        "merge s1.npz --step next": "--step needs --model: pass both",
        "merge m": "m: not a readable statistics file",
        "merge nothing.npz": "cannot read nothing.npz",
    }
    for words, message in lines.items():
        assert message in error_line(invoke(words)), words
    assert not Path("x.npz").exists()


def test_all_parts_of_a_data_set_are_measured_together(answer: Answer) -> None:
    answer("fit digits --units 2 --epochs 1 --device cpu --out m")
    found = {
        part: answer(f"statistics m digits --split {part} --out {part}.npz")
        for part in ("all", "train", "valid", "test")
    }
    merged = answer("merge train.npz valid.npz test.npz")
    assert found["all"]["rows"] == merged["rows"] == 1797
    assert found["all"]["mean_ll"] == pytest.approx(merged["mean_ll"], rel=1e-12)
    assert answer("statistics m digits --split all --shard 2/3 --out x.npz")["rows"] == 599


@pytest.mark.usefixtures("trained")
def test_all_rows_and_a_shard_of_them_are_not_added_up(answer: Answer, invoke: Callable[[str], Result]) -> None:
    whole = answer("statistics m t.csv --split all --out whole.npz")
    answer("statistics m t.csv --shard 1/3 --out s1.npz")
    assert whole["rows"] == 100
    message = "all rows of a table and its shard 1/3 are given (whole.npz and s1.npz), so rows would count twice"
    assert message in error_line(invoke("merge whole.npz s1.npz --out all.npz"))
    assert not Path("all.npz").exists()
