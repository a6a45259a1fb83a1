"""The Chow-Liu tree in the paper's tables."""

from __future__ import annotations

import csv

import numpy as np
import pytest

import circurve as cc
from circurve.data import take_fraction
from circurve.learning.recipe import CHOW_LIU_SMOOTHING
from circurve.reproduction import ReproduceOptions, comparisons, reproduce
from circurve.reproduction.comparisons import BASELINES_FILE
from circurve.reproduction.outputs import Shelf
from circurve.reproduction.records import FILE_NAME, read_records


@pytest.fixture
def rows():
    source = np.random.default_rng(0)
    hidden = source.integers(0, 2, (160, 1))
    return np.where(source.random((160, 5)) < 0.2, 1 - hidden, hidden)


@pytest.fixture
def options(tmp_path, rows):
    np.savez(tmp_path / "mine.npz", train=rows[:100], valid=rows[100:130], test=rows[130:])
    data = (str(tmp_path / "mine.npz"),)
    return ReproduceOptions(
        datasets=data, out=tmp_path / "out", seeds=(0, 1), units=2, epochs=1, mu=(0.1,), device="cpu"
    )


def _by_hand(train, rows):
    """The test log-likelihood of the tree with the pseudocount that validation prefers, one model at a time."""
    circuit = cc.chow_liu(train)
    fitted = [
        cc.fit(circuit, train, valid=False, method=cc.Vanilla(added), batch_size=None, epochs=1, progress=False).model
        for added in CHOW_LIU_SMOOTHING
    ]
    best = max(fitted, key=lambda model: model.log_prob(rows[100:130]).mean())
    return best.log_prob(rows[130:]).mean()


def test_tables_show_the_tree_of_their_training_rows(options, rows):
    reproduce(["table-b", "table-c", "table-d"], options)
    whole = _by_hand(rows[:100], rows)
    with open(options.out / "table-c.csv") as file:
        values = {float(row["fraction"]): float(row["chow_liu"]) for row in csv.DictReader(file)}
    for fraction, found in values.items():
        parts = [take_fraction(rows[:100], fraction, seed) for seed in (0, 1)] if fraction < 1 else [rows[:100]]
        assert found == pytest.approx(np.mean([_by_hand(part, rows) for part in parts]), abs=1e-4)
    assert f"| mine | {whole:.2f} |" in (options.out / "table-b.md").read_text()
    assert "| mine | 100% |" in (options.out / "table-c.md").read_text()
    assert f"| Chow-Liu tree | {whole:.2f} | - | - | - |" in (options.out / "table-d.md").read_text()


def test_the_page_shows_what_the_table_shows(options):
    reproduce(["table-b"], options)
    made = Shelf.load(options.out).report("table-b")
    assert made.tables[0].heads[1] == "Chow-Liu\ntree"
    assert f"| mine | {made.tables[0].rows[0][1].text()} |" in (options.out / "table-b.md").read_text()
    (options.out / BASELINES_FILE).unlink()
    assert Shelf.load(options.out).report("table-b").tables[0].heads[1] == "vanilla"


def test_it_is_recorded_once_and_not_among_the_runs(options, monkeypatch):
    reproduce(["table-b"], options)
    before = read_records(options.out / BASELINES_FILE)
    assert len(before) == 1
    monkeypatch.setattr(comparisons, "fit_fleet", None)
    reproduce(["table-b", "table-d"], options, resume=True)
    assert read_records(options.out / BASELINES_FILE) == before
    assert all(record["study"] != "chow_liu" for record in read_records(options.out / FILE_NAME))


def test_columns_that_are_not_discrete_have_no_baseline(tmp_path, options):
    real = np.random.default_rng(0).normal(size=(60, 3))
    np.savez(tmp_path / "real.npz", train=real[:40], valid=real[40:50], test=real[50:])
    changed = ReproduceOptions(**{**vars(options), "datasets": (str(tmp_path / "real.npz"),)})
    report = reproduce(["table-b"], changed).reports[0]
    assert report.tables[0].heads[:2] == ("data set", "vanilla")
