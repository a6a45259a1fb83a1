"""The leaderboard: its records, resume, table, page; on data sets of a few rows."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest
import torch

from circurve.errors import MemoryLimitError, OptionError, TrainingError
from circurve.learning.recipe import QUICK_RECORD, RECORD, JointRecipe, RecordRecipe
from circurve.reproduction import ReproduceOptions, leaderboard, reproduce
from circurve.reproduction.comparisons import best_published, published
from circurve.reproduction.leaderboard import FILE, KINDS, SEED_STRIDE, best_kind, recipe_for
from circurve.reproduction.leaderboard_report import (
    draw_leaderboard,
    findings,
    leaderboard_lines,
    leaderboard_page,
    leaderboard_report,
)
from circurve.reproduction.records import read_records

TINY = RecordRecipe(
    units=(2, 3),
    pseudocounts=(0.1,),
    epochs=2,
    members=2,
    member_units=(2,),
    member_pseudocounts=(0.05,),
    joint=JointRecipe(epochs=1),
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of two data sets, one of which has the name of a published one, and a tiny recipe."""
    source = np.random.default_rng(0)
    for name in ("nltcs", "unheard_of"):
        hidden = source.integers(0, 2, (120, 1))
        rows = np.where(source.random((120, 5)) < 0.2, 1 - hidden, hidden)
        (tmp_path / "data" / name).mkdir(parents=True)
        for part, some in (("train", rows[:70]), ("valid", rows[70:95]), ("test", rows[95:])):
            np.savetxt(tmp_path / "data" / name / f"{name}.{part}.data", some, fmt="%d", delimiter=",")
    monkeypatch.setattr(leaderboard, "RECORD", TINY)
    return tmp_path


def options(folder: Path, **changes) -> ReproduceOptions:
    plain = {"protocol": "record", "data_dir": folder / "data", "out": folder / "out", "device": "cpu"}
    return ReproduceOptions(**{**plain, "seeds": (0, 1), **changes})


def test_all_sets_of_a_folder_are_run_and_recorded(folder):
    outputs = reproduce(["leaderboard"], options(folder), command="circurve reproduce leaderboard")
    records = read_records(folder / "out" / FILE)
    assert [(record["dataset"], record["seed"]) for record in records] == [
        (name, seed) for name in ("nltcs", "unheard_of") for seed in (0, 1)
    ]
    for record in records:
        scores = record["scores"]
        assert all(math.isfinite(scores[kind]["test_ll"]) for kind in ("chow_liu", *KINDS))
        assert record["record"] == max(KINDS, key=lambda kind: scores[kind]["valid_ll"])
        assert scores["single"]["units"] == max(scores["single"]["path"], key=lambda p: p["valid_ll"])["units"]
        # the single circuits are candidates, and the weights are the best ones on the validation rows
        assert scores["ensemble"]["valid_ll"] >= scores["single"]["valid_ll"] - 1e-4
    assert {path.name for path in outputs.files} == {
        f"leaderboard.{ending}" for ending in ("md", "csv", "tex", "json", "png", "svg")
    }
    with open(folder / "out" / "leaderboard.csv") as file:
        values = {(row["dataset"], row["kind"]): row for row in csv.DictReader(file)}
    joint = [record["scores"]["joint"]["test_ll"] for record in records[:2]]
    assert float(values["nltcs", "joint"]["mean"]) == pytest.approx(mean(joint))
    assert float(values["nltcs", "joint"]["std"]) == pytest.approx(stdev(joint))
    assert values["unheard_of", "record"]["published"] == values["nltcs", "record"]["published"] == ""
    assert json.loads((folder / "out" / "leaderboard.json").read_text())["findings"]


def test_one_data_set_that_fails_does_not_stop_the_others(folder):
    copied = (folder / "data" / "nltcs" / "nltcs.train.data").read_text()
    (folder / "data" / "nltcs" / "nltcs.valid.data").write_text(copied)  # refused as a validation set
    with pytest.raises(TrainingError, match=r"(?s)^nltcs, seed 0: valid: these are the rows.*all others are recorded"):
        reproduce(["leaderboard"], options(folder))
    records = read_records(folder / "out" / FILE)
    assert [(record["dataset"], record["seed"]) for record in records] == [("unheard_of", 0), ("unheard_of", 1)]


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), MemoryLimitError("needs 9 GB")])
def test_joint_training_that_memory_does_not_hold_is_left_out(folder, monkeypatch, error):
    def refuse(*_):
        raise error

    monkeypatch.setattr(leaderboard, "train_jointly", refuse)
    reproduce(["leaderboard"], options(folder, datasets=("nltcs",), seeds=(0,)), progress=(said := []).append)
    (record,) = read_records(folder / "out" / FILE)
    assert record["scores"]["joint"] is None
    assert record["record"] in ("single", "ensemble")
    assert f"  joint training needs more memory and is left out: {error}" in said
    report = leaderboard_report([record])
    assert report.tables[0].rows[0][4].text() == "-"
    assert not any("Joint training" in sentence for sentence in findings(leaderboard_lines([record])))


def test_a_data_set_that_memory_does_not_hold_does_not_stop_the_others(folder, monkeypatch):
    train = leaderboard.train_units

    def refuse(grid, rows, pseudocounts, seed):
        if not refused:
            refused.append(seed)
            raise torch.OutOfMemoryError("CUDA out of memory")
        return train(grid, rows, pseudocounts, seed)

    refused = []
    monkeypatch.setattr(leaderboard, "train_units", refuse)
    with pytest.raises(TrainingError, match="nltcs, seed 0: CUDA out of memory"):
        reproduce(["leaderboard"], options(folder, seeds=(0,)))
    assert [record["dataset"] for record in read_records(folder / "out" / FILE)] == ["unheard_of"]


def test_a_data_set_whose_rows_are_all_alike_is_trained(folder):
    for part in ("train", "valid", "test"):
        (folder / "data" / "nltcs" / f"nltcs.{part}.data").write_text("1,0,1\n" * 20)
    reproduce(["leaderboard"], options(folder, datasets=("nltcs",), seeds=(0,)))
    (record,) = read_records(folder / "out" / FILE)
    assert all(math.isfinite(record["scores"][kind]["test_ll"]) for kind in KINDS)


def test_it_resumes_after_an_interruption_and_trains_only_what_is_missing(folder, monkeypatch):
    trained, train = [], leaderboard.train_units

    def interrupted(grid, rows, pseudocounts, seed):
        trained.append(seed)
        if len(trained) == 3:
            raise KeyboardInterrupt
        return train(grid, rows, pseudocounts, seed)

    monkeypatch.setattr(leaderboard, "train_units", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reproduce(["leaderboard"], options(folder))
    before = read_records(folder / "out" / FILE)
    assert [record["dataset"] for record in before] == ["nltcs", "nltcs"]
    with pytest.raises(OptionError, match=r"holds 2 runs of leaderboard: add --resume"):
        reproduce(["leaderboard"], options(folder))
    reproduce(["leaderboard"], options(folder), resume=True)
    assert trained == [0, SEED_STRIDE, 0, 0, SEED_STRIDE]
    assert read_records(folder / "out" / FILE)[:2] == before
    reproduce(["leaderboard"], options(folder), resume=True)
    assert len(trained) == 5


def test_another_recipe_or_seed_is_another_run(folder, monkeypatch):
    only = {"datasets": ("unheard_of",), "seeds": (0,)}
    reproduce(["leaderboard"], options(folder, **only))
    monkeypatch.setattr(leaderboard, "RECORD", replace(TINY, members=3))
    reproduce(["leaderboard"], options(folder, **only), resume=True)
    reproduce(["leaderboard"], options(folder, **{**only, "seeds": (3,)}), resume=True)
    assert [(r["recipe"]["members"], r["seed"]) for r in read_records(folder / "out" / FILE)] == [
        (2, 0),
        (3, 0),
        (3, 3),
    ]


def test_the_page_opens_with_findings_and_shows_the_times_of_other_hardware(folder):
    reproduce(["leaderboard"], options(folder))
    reproduce(["leaderboard"], options(folder, out=folder / "out" / "cpu", seeds=(0,)))
    page = leaderboard_page(folder / "out", "out")
    opening = page[: page.index("## Leaderboard")]
    assert "best published number" not in opening  # these files are not those of DEBD
    assert "nltcs: the files are not those of DEBD: not compared with published numbers." in page
    assert "Joint training of the whole mixture makes it better on" in opening
    assert "![Leaderboard: test log-likelihood by data set](out/leaderboard.svg)" in page
    assert page[page.index("## Seconds") :].count("| nltcs |") == 2
    with pytest.raises(OptionError, match=r"has no leaderboard\.jsonl: make one with circurve reproduce leaderboard"):
        leaderboard_page(folder / "data", "data")


def _record(dataset: str, seed: int, record: str, **test_lls: float) -> dict:
    scores = {
        kind: {"test_ll": test, "valid_ll": test, "units": 8, "members": 3, "parameters": 9, "seconds": 2.0}
        for kind, test in test_lls.items()
    }
    environment = {"command": None, "hardware": "h", "version": "0", "commit": None, "torch": "2", "python": "3"}
    joint = {"epochs": 1, "step": "cosine:0.05:0.005", "batch_size": 200}
    recipe = {
        "units": [8],
        "pseudocounts": [0.1],
        "member_pseudocounts": [0.1],
        "patience": 9,
        "member_units": [8],
        "joint": joint,
    }
    recipe |= {"members": 3, "member_multiples": [1.0], "boosted": 0, "pool_singles": True, "patience": 9}
    return {
        **{"dataset": dataset, "seed": seed, "record": record, "scores": scores, "seconds": 6.0, "recipe": recipe},
        "environment": {**environment, "data_hash": "abc", "debd": True},
    }


def test_findings_are_computed_from_the_records():
    known = best_published("dna").test_ll
    records = [
        _record("dna", 0, "joint", chow_liu=-88, single=known - 1, ensemble=known + 1, joint=known + 2),
        _record("dna", 1, "ensemble", chow_liu=-88, single=known - 2, ensemble=known + 2, joint=known + 1),
        _record("nltcs", 0, "single", chow_liu=-7, single=-6.5, ensemble=-6.6, joint=-6.7),
    ]
    lines = leaderboard_lines(records)
    assert lines[0].values("record") == [known + 2, known + 2]
    assert lines[0].margin == pytest.approx(2)
    against, ensembles, joint, units = findings(lines)
    gap = best_published("nltcs").test_ll + 6.5
    assert against == (
        "On 1 of 2 data sets our record is at or above the best published number that we could check, by +2.00 (dna). "
        f"It is below by {gap:.2f} on nltcs."
    )
    assert "on 1 of 2 data sets: +1.45 nats on average, -0.10 (nltcs) to +3.00 (dna)" in ensembles
    assert "on 0 of 2 data sets: -0.05 nats on average, -0.10 (nltcs) to +0.00 (dna)" in joint
    assert joint.endswith("in 1 of 3 runs.")
    assert units == (
        "The best single circuit has 8 units on average over seeds. It is the largest that was tried, 8, in 3 of 3 "
        "runs: more may be better."
    )
    for record in records[1:]:
        record["recipe"]["units"] = [8, 16]
    assert findings(lines)[-1].endswith("It is the largest that was tried, 8, in 1 of 3 runs: more may be better.")
    records[0]["recipe"]["units"] = [8, 16]
    assert findings(lines)[-1] == "The best single circuit has 8 units on average over seeds."
    report = leaderboard_report(records)
    cells = report.tables[0].rows[0]
    assert [cell if isinstance(cell, str) else cell.text() for cell in cells[:2]] == ["dna", "-88.00"]
    assert cells[-1].text() == "+2.00"


def test_scores_on_other_files_are_not_compared():
    scores = {"chow_liu": -7, "single": -6.5, "ensemble": -6.6, "joint": -6.7}
    records = [_record("nltcs", seed, "single", **scores) for seed in (0, 1)]
    records[1]["environment"]["debd"] = False
    made = leaderboard_report(records)
    assert made.tables[0].rows[0][-2:] == ("-", "-")
    assert "nltcs: the files are not those of DEBD: not compared with published numbers." in made.notes
    assert not any("best published number" in sentence for sentence in findings(leaderboard_lines(records)))


def test_data_sets_without_published_numbers_have_none():
    records = [_record("unheard_of", 0, "single", chow_liu=-7, single=-6, ensemble=-6, joint=-6)]
    report = leaderboard_report(records)
    assert not any("published" in note.lower() for note in report.notes)
    assert report.tables[0].rows[0][-2:] == ("-", "-")
    assert len(findings(leaderboard_lines(records))) == 3


def test_the_figure_compares_with_the_single_circuit_where_columns_have_no_tree():
    scores = {"single": -6.0, "ensemble": -5.5, "joint": -5.0}
    real = _record("reals", 0, "joint", chow_liu=-7, **scores)
    real["scores"]["chow_liu"] = None
    binary = _record("binaries", 0, "joint", chow_liu=-7, **scores)
    for records, base, gaps in (
        ([real], "the single circuit", [0.0, 0.5, 1.0]),
        ([real, binary], "the Chow-Liu tree", [1.0, 1.5, 2.0]),
    ):
        axes = draw_leaderboard(leaderboard_lines(records)).axes[0]
        assert axes.get_xlabel() == f"test log-likelihood minus that of {base}, nats"
        assert [line.get_xdata().tolist() for line in axes.lines[1:]] == [[gap] for gap in gaps]
        assert [label.get_text() for label in axes.get_yticklabels()] == [records[-1]["dataset"]]


def test_the_record_is_the_best_by_validation_and_the_simplest_of_equals():
    scores = {"single": {"valid_ll": -2.0}, "ensemble": {"valid_ll": -1.0}, "joint": {"valid_ll": -1.0}}
    assert best_kind(scores) == "ensemble"
    assert best_kind({**scores, "ensemble": {"valid_ll": None}, "joint": {"valid_ll": -3.0}}) == "single"


def test_published_numbers_have_a_source_and_come_best_first():
    for name in ("nltcs", "dna", "bbc", "ad"):
        listed = published(name)
        assert [item.test_ll for item in listed] == sorted((item.test_ll for item in listed), reverse=True)
        assert all(item.source and item.checked_in and item.model for item in listed)
    assert best_published("dna").test_ll == pytest.approx(-79.05, abs=0.005)
    assert best_published("unheard_of") is None


def test_options_without_effect_are_refused(folder):
    for changes, message in (
        ({"mu": (0.1,)}, "--mu has no effect on leaderboard"),
        ({"max_runs": 3}, "--max-runs has no effect on leaderboard"),
        ({"protocol": "best"}, "leaderboard has its own protocol, record; leave out 'best'"),
    ):
        with pytest.raises(OptionError, match=message):
            reproduce(["leaderboard"], options(folder, **changes))
    with pytest.raises(OptionError, match="protocol record is only for leaderboard"):
        reproduce(["table-b"], options(folder))
    with pytest.raises(OptionError, match="in a separate call"):
        reproduce(["leaderboard", "table-b"], options(folder))


def test_a_first_look_and_given_units_change_the_recipe():
    assert recipe_for(ReproduceOptions(protocol="record", quick=True)) == QUICK_RECORD
    changed = recipe_for(ReproduceOptions(protocol="record", units=12, epochs=7))
    assert (changed.units, changed.epochs) == ((12,), 7)
    assert changed.units_of_members(48) == RECORD.member_units
    assert replace(changed, member_units=(8,), member_multiples=(0.5, 2.0)).units_of_members(48) == (8, 24, 96)


def test_records_of_another_recipe_are_named():
    scores = {"chow_liu": -7, "single": -6.5, "ensemble": -6.6, "joint": -6.7}
    records = [_record("nltcs", seed, "single", **scores) for seed in (0, 1, 2)]
    assert not any("another recipe" in note for note in leaderboard_report(records).notes)
    records[1]["recipe"] = {**records[1]["recipe"], "members": 5}
    notes = leaderboard_report(records).notes
    assert notes[0].startswith("Protocol record: ")
    assert "3 members" in notes[0]
    assert "Made with another recipe: nltcs, seed 1 (members 5)." in notes
