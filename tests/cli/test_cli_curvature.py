"""`circurve curvature`: numbers against the library, tables within 80 columns, a CSV of all nodes."""

from __future__ import annotations

import csv

import numpy as np
import pandas as pd
import pytest
from cli_helpers import error_line, strict_json, write_csv

import circurve as cc
from circurve.curvature import concentration, reversals
from circurve.data.dataset import split_rows
from circurve.errors import FileAccessError
from circurve.learning.local_curvature import ESTIMATORS


@pytest.fixture
def parts(rows, folder):
    np.savez("parts.npz", train=rows[:80], valid=rows[80:90], test=rows[90:])
    return "parts.npz"


def test_curvature_reports_the_decomposition(answer, model, parts, rows):
    report = answer(f"curvature {model} {parts}")
    curv = cc.curvature(cc.load(model), rows[:80]).with_local("geometric")
    assert report["estimator"] == "geometric"
    assert (report["samples"], report["sum_nodes"], report["impossible"]) == (80, len(curv), 0)
    assert report["trace"] == pytest.approx(curv.trace)
    for by in ("total", "local"):
        found = concentration(curv, by)
        assert report["concentration"][by] == {f"{s:g}": found.fraction_for(s) for s in (0.9, 0.99, 0.9999)}
        assert report["gini"][by] == pytest.approx(found.gini)
        values = getattr(curv, by)
        top = report["top"][by]
        assert [node[by] for node in top] == pytest.approx(np.sort(values)[::-1][:10])
        first = int(np.argmax(values))
        assert (top[0]["name"], top[0]["unit"]) == (curv.nodes[first].name, curv.nodes[first].unit)
        assert (top[0]["layer"], top[0]["depth"]) == (curv.layer[first], curv.depth_min[first])
        assert top[0]["flow_squared"] == pytest.approx(curv.flow_squared[first])
    pairs = reversals(curv)
    assert report["reversals"] == {
        "pairs": pairs.pairs,
        "disagree": pairs.disagree,
        "share": pairs.share,
        "tau": pytest.approx(pairs.tau),
    }
    assert sum(part["units"] for part in report["depth_profile"]) == len(curv)
    assert sum(part["share_total"] for part in report["depth_profile"]) == pytest.approx(1)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_estimator_of_t_can_be_chosen(answer, invoke, model, table, rows, estimator):
    report = answer(f"curvature {model} {table} --split all --estimator {estimator}")
    curv = cc.curvature(cc.load(model), rows)
    assert report["top"]["local"][0]["local"] == pytest.approx(curv.by(estimator).max())
    assert invoke(f"curvature {model} {table} --estimator {estimator}").exit_code == 0


def test_edges_at_the_floor_are_counted_and_warned_of(answer, invoke, folder):
    """Two units over two children; one edge at the floor explains one row in its unit."""
    left, right = (cc.Input(v, cc.Bernoulli(), 2) for v in range(2))
    middle = cc.Sum(cc.Product([left, right]), 2)
    root = cc.Sum(middle)
    weights = {middle: [[1 - 1e-12, 1e-12], [0.5, 0.5]], root: [[0.5, 0.5]]}
    inputs = {node: [[1e-6], [1 - 1e-6]] for node in (left, right)}
    cc.Model.from_parameters(cc.Circuit(root), weights, inputs).save("dead.safetensors")
    np.save("few.npy", np.array([[0, 0]] * 49 + [[1, 1]]))
    floor = answer("curvature dead.safetensors few.npy")["floor"]
    assert (floor["edges"], floor["of_edges"]) == (1, 6)
    assert floor["share_of_local"] == pytest.approx(1)
    text = " ".join(invoke("curvature dead.safetensors few.npy").stdout.split())
    assert "1 of 6 edges have weights near zero and make up 100.00% of the mean trace of t" in text
    assert "do not rely on mean_trace and mean_ratio here" in text


def test_the_part_to_measure_can_be_chosen(answer, model, parts, table, rows):
    loaded = cc.load(model)
    train, _, test = split_rows(rows, 0.1, 0.1, 0)  # as `fit` split the table
    write_csv("other.csv", rows[:50], "a,b,c,d,e")
    for options, part in (
        (f"{parts} --split valid", rows[80:90]),
        (f"{parts} --split all", rows),
        (table, train),
        (f"{table} --split test", test),
        (f"{table} --split all", rows),
        ("other.csv", rows[:50]),
    ):
        report = answer(f"curvature {model} {options}")
        assert report["samples"] == len(part)
        assert report["trace"] == pytest.approx(cc.curvature(loaded, part).trace)


@pytest.mark.parametrize("columns", ["80", "120"])
def test_curvature_shows_tables_within_the_width_of_the_terminal(invoke, model, table, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    result = invoke(f"curvature {model} {table}")
    assert (result.exit_code, result.stderr) == (0, "")
    assert max(len(line) for line in result.stdout.splitlines()) <= int(columns)
    for text in ("trace (sharpness)", "Gini", "Kendall", "99.99 %", "depth profile", "by T", "by t", "root[0]", "F^2"):
        assert text in result.stdout


def test_top_says_how_many_nodes_to_list(answer, invoke, model, table):
    assert [len(nodes) for nodes in answer(f"curvature {model} {table} --top 2")["top"].values()] == [2, 2]
    assert "largest contributors" not in invoke(f"curvature {model} {table} --top 0").stdout


def test_the_csv_has_a_row_for_each_sum_unit(answer, model, table, rows):
    assert answer(f"curvature {model} {table} --split all --csv nodes.csv")["csv"] == "nodes.csv"
    expected = cc.curvature(cc.load(model), rows).to_pandas()
    read = pd.read_csv("nodes.csv")
    assert list(read.columns) == list(expected.columns)
    pd.testing.assert_frame_equal(read, expected, check_dtype=False, rtol=1e-6)
    with open("nodes.csv", newline="") as file:
        assert next(csv.DictReader(file))["depth_min"].isdigit()


def test_rows_of_probability_zero_are_counted_and_pointed_out(answer, invoke, folder):
    leaves = [cc.Input(0, cc.Bernoulli(), 1, name="a"), cc.Input(0, cc.Bernoulli(), 1, name="b")]
    circuit = cc.Circuit(cc.Sum(leaves, 1, name="root"))
    certain = cc.Model.from_parameters(circuit, {circuit.roots[0]: [[0.5, 0.5]]}, {leaf: [[1.0]] for leaf in leaves})
    certain.save("certain.safetensors")
    np.save("rows.npy", np.array([[1], [0], [1]]))
    report = answer("curvature certain.safetensors rows.npy")
    assert (report["samples"], report["impossible"], report["trace"]) == (2, 1, pytest.approx(2.0))
    result = invoke("curvature certain.safetensors rows.npy")
    assert result.stderr.startswith("circurve: warning: 1 row has probability zero")
    assert "1 of probability zero left out" in result.stdout
    np.save("rows.npy", np.array([[0]]))
    assert "rows.npy: curvature data: every row has probability zero" in error_line(
        invoke("curvature certain.safetensors rows.npy")
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("model.safetensors table.csv --top -1", "--top must be a whole number >= 0, not -1"),
        (
            "model.safetensors table.csv --csv table.csv",
            "--csv table.csv: would overwrite a file that this command reads or writes",
        ),
        (
            "model.safetensors table.csv --csv model.safetensors",
            "would overwrite a file that this command reads or writes",
        ),
        ("model.safetensors table.csv --csv nowhere/x.csv", "does not exist"),
        ("model.safetensors narrow.csv", "narrow.csv: data has 3 columns, the circuit has 5 variables"),
        ("flat.safetensors table.csv", "flat.safetensors: the model has no sum nodes"),
        ("two.safetensors table.csv", "the model has 2 outputs"),
    ],
)
def test_wrong_arguments_of_curvature(invoke, model, rows, arguments, expected):
    np.savetxt("narrow.csv", rows[:, :3], fmt="%g", delimiter=",")
    flat = cc.fully_factorized(5)
    cc.Model.from_parameters(flat, inputs={node: [[0.5]] for node in flat.inputs}).save("flat.safetensors")
    leaf = cc.Input(0, cc.Bernoulli(), 2)
    two = cc.Circuit([cc.Sum(leaf, 1), cc.Sum(leaf, 1)])
    cc.Model.from_parameters(two, inputs={leaf: [[0.2], [0.7]]}).save("two.safetensors")
    assert expected in error_line(invoke(f"curvature {arguments}"))


def test_a_table_that_cannot_be_written_hides_no_numbers(invoke, model, table, monkeypatch):
    def full(*_):
        raise FileAccessError("cannot write nodes.csv: No space left on device")

    monkeypatch.setattr("circurve.cli.curvature.write_csv", full)
    result = invoke(f"curvature {model} {table} --csv nodes.csv --json")
    assert result.exit_code == 1
    assert result.stderr == "circurve: error: cannot write nodes.csv: No space left on device\n"
    report = strict_json(result.stdout)
    assert report["csv"] is None
    assert report["trace"] > 0
