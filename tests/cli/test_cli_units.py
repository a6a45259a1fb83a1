"""`circurve fit --units auto`: the number of units chosen by validation."""

from __future__ import annotations

import pytest
from cli_helpers import error_line

import circurve as cc
from circurve.cli import training
from circurve.learning.recipe import UNITS_GRID

TINY = "--epochs 3 --precision float64"


def test_the_best_of_several_numbers_is_taken_and_saved(answer, table):
    report = answer(f"fit {table} {TINY} --units 4,2,3 --out m.safetensors")
    path = report["units_path"]
    assert [size["units"] for size in path] == [2, 3, 4][: len(path)]
    assert report["units"] == max(path, key=lambda size: size["valid_ll"])["units"]
    assert [size["units"] for size in path if size["chosen"]] == [report["units"]]
    for size in path:
        alone = answer(f"fit {table} {TINY} --units {size['units']}")
        assert (size["valid_ll"], size["test_ll"]) == pytest.approx((alone["valid_ll"], alone["test_ll"]))
        assert "units_path" not in alone
    assert cc.load("m.safetensors").circuit.describe().parameters == report["parameters"]


def test_auto_tries_the_grid_with_the_options_of_a_single_run(answer, table, monkeypatch):
    sizes, build = [], training.build_circuit

    def counted(shape, *rest):
        sizes.append(shape.units)
        return build(shape, *rest)

    monkeypatch.setattr(training, "build_circuit", counted)
    report = answer(f"fit {table} {TINY} --units auto --method gated --mu 0.1 --structure mixture")
    assert sizes == list(UNITS_GRID[: len(sizes)])
    assert len(sizes) >= 3
    assert report["method"] == "gated"
    assert len(report["units_path"]) == len(sizes)


def test_the_table_of_sizes_is_printed(invoke, table):
    result = invoke(f"fit {table} {TINY} --units 2,3")
    assert "units; * is the best by validation log-likelihood" in result.stdout


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("--units some", "--units must be a whole number, several (8,16,32), or auto, not 'some'"),
        ("--units 0,2", "--units must be a whole number from 1 to 1000000, not 0"),
        (
            "--units 2,3 --no-split",
            "several --units need validation rows: pass --valid FILE or a share in --split; or pass one number, "
            "--units N",
        ),
        (
            "--units auto --structure chow_liu",
            "--units has no effect with --structure chow_liu; leave it out",
        ),
    ],
)
def test_units_that_cannot_be_chosen_are_refused(invoke, table, typed, message):
    assert error_line(invoke(f"fit {table} --epochs 2 {typed}")) == message
