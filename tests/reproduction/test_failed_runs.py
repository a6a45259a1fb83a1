"""Runs that broke in training: recorded as such, left out of means, counted under every table and figure."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from made_records import made_records
from tiny_study import SETTINGS, run, tiny_study

import circurve.learning
from circurve import CircurveWarning, Vanilla
from circurve.errors import FileFormatError
from circurve.learning.steps import PlainSteps
from circurve.reproduction import RecordFile, ReproduceOptions
from circurve.reproduction.figures import FIGURES
from circurve.reproduction.outputs import TABLES
from circurve.reproduction.plan import provenance
from circurve.reproduction.records import FILE_NAME, line_of, read_records
from circurve.reproduction.selection import selection_data, selection_study
from circurve.reproduction.summary import choose
from circurve.reproduction.table import as_markdown

Record = dict[str, Any]


def break_in_epoch(monkeypatch: pytest.MonkeyPatch, epoch: int, meant: Any) -> None:
    original = PlainSteps.run
    epochs = iter(range(1, 10**6))

    def broken(self: Any, *arguments: Any) -> Any:
        totals = original(self, *arguments)
        if next(epochs) == epoch:
            self.params = self.params.clone()
            for place, method in enumerate(self.plan.methods):
                if meant(method):
                    self.params.weights[-1][place].view(-1)[0] = torch.nan
        return totals

    monkeypatch.setattr(PlainSteps, "run", broken)


def test_a_failed_run_is_recorded_with_its_epoch_and_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = tiny_study(tmp_path, fractions=(1.0,))
    study = tiny_study(tmp_path, fractions=(1.0,), datasets=study.datasets[:1])
    whole = run(study, tmp_path / "whole")
    break_in_epoch(monkeypatch, 3, lambda method: isinstance(method, Vanilla))
    with pytest.warns(CircurveWarning, match="failed in epoch 3"):
        records = run(study, tmp_path / "out")
    failed = [record for record in records if record.get("status") == "failed"]
    assert [(record["label"], record["seed"]) for record in failed] == [("vanilla", 0), ("vanilla", 1)]
    for record in failed:
        assert record["failure"] == {"epoch": 3, "reason": "Sum 'root': a parameter is not finite"}
        assert not {"final", "best", "history", "curvature"} & set(record)
    scores = [[r["final"] for r in found if r["label"] != "vanilla"] for found in (records, whole)]
    assert scores[0] == scores[1]
    monkeypatch.setattr(circurve.learning, "fit_fleet", None)  # what failed is known, and not trained again
    assert run(study, tmp_path / "out") == records
    with RecordFile(tmp_path / "out") as file:
        file.check_complete()


def test_a_fleet_of_which_no_run_is_left_is_recorded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = tiny_study(tmp_path, fractions=(1.0,), settings=SETTINGS[:1])
    break_in_epoch(monkeypatch, 2, lambda method: True)
    with pytest.warns(CircurveWarning, match="failed in epoch 2"):
        records = run(study, tmp_path / "out")
    assert [(r["dataset"], r.get("status")) for r in records] == [
        ("first", "failed"), ("first", "failed"), ("second", None), ("second", None)
    ]  # fmt: skip
    assert read_records(tmp_path / "out" / FILE_NAME) == records
    assert all(record["seconds"] >= 0 and record["fleet"]["runs"] == 2 for record in records)


@pytest.mark.parametrize("change", [{"failure": None}, {"dataset": None}])
def test_a_failed_record_without_its_reason_is_refused(tmp_path: Path, change: Record) -> None:
    record = fail(made_records(TABLES["table-b"].study(OPTIONS), lambda *_: {})[0]) | {"fleet": {}} | change
    tmp_path.joinpath(FILE_NAME).write_bytes(line_of({key: v for key, v in record.items() if v is not None}))
    with RecordFile(tmp_path) as file, pytest.raises(FileFormatError, match="is an incomplete result record"):
        file.check_complete()


OPTIONS = ReproduceOptions(datasets=("dna", "nltcs"), seeds=(0, 1, 2))


def fail(record: Record) -> Record:
    kept = {key: value for key, value in record.items() if key not in ("final", "best", "history", "curvature")}
    return {**kept, "status": "failed", "failure": {"epoch": 7, "reason": "Sum 'root': a parameter is not finite"}}


def by_seed(dataset: str, fraction: float, method: Any, seed: int) -> dict[str, float]:
    return {"test_ll": -10.0 - seed, "valid_ll": -10.0 - seed}


def some_failed(records: list[Record]) -> list[Record]:
    """Seed 2 of vanilla on dna failed."""
    return [fail(r) if (r["dataset"], r["method"]["name"], r["seed"]) == ("dna", "vanilla", 2) else r for r in records]


def test_means_leave_out_failed_runs() -> None:
    records = made_records(TABLES["table-b"].study(OPTIONS), by_seed)
    whole, left = choose(records, "dna", 1.0, "vanilla"), choose(some_failed(records), "dna", 1.0, "vanilla")
    assert whole is not None
    assert left is not None
    assert (whole.seeds, whole.spread().mean) == ((0, 1, 2), -11.0)
    assert (left.seeds, left.spread().mean) == ((0, 1), -10.5)
    every = [fail(record) for record in records]
    assert choose(every, "dna", 1.0, "vanilla") is None


@pytest.mark.parametrize("name", TABLES)
def test_every_table_says_how_many_runs_failed(name: str) -> None:
    study = TABLES[name].study(OPTIONS)
    records = made_records(study, by_seed)
    whole = as_markdown(TABLES[name].report(study, records))
    assert "failed" not in whole
    broken = some_failed(records)
    count = sum("status" in record for record in broken)
    text = as_markdown(TABLES[name].report(study, broken))
    assert f"- {count} of {len(records)} runs failed in training and are left out: dna" in text
    assert re.search(r"vanilla[^;]*, seed 2, in epoch 7: Sum 'root': a parameter is not finite", text)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_without_any_run_of_a_data_set_still_renders(name: str) -> None:
    study = TABLES[name].study(OPTIONS)
    records = [fail(r) if r["dataset"] == "dna" else r for r in made_records(study, by_seed)]
    report = TABLES[name].report(study, records)
    assert {row["dataset"] for row in report.values} == {"nltcs"}
    assert "runs failed in training" in as_markdown(report)


def test_the_lines_under_a_figure_count_failed_runs_too() -> None:
    records = made_records(TABLES["table-b"].study(OPTIONS), by_seed)
    assert not any("failed" in line for line in provenance(records))
    assert any("1 of " in line and "runs failed" in line for line in provenance(some_failed(records)))


def test_the_figure_of_top_nodes_compares_seeds_that_all_have() -> None:
    study = selection_study(OPTIONS)
    records = made_records(study, by_seed)
    whole, left = (selection_data(OPTIONS, found, print) for found in (records, some_failed(records)))
    for by in ("total", "local"):
        assert whole["panels"]["dna"][by][:2] == left["panels"]["dna"][by]
        assert whole["panels"]["nltcs"] == left["panels"]["nltcs"]
    assert whole["notes"] == left["notes"]
    FIGURES["fig-5"].draw(left)
