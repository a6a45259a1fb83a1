from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_study import SETTINGS, TINY, run, timeless, tiny_study

import circurve as cc
import circurve.learning
from circurve.curvature import concentration, reversals
from circurve.errors import OptionError
from circurve.learning.local_curvature import ESTIMATORS
from circurve.reproduction import RecordFile, Setting, run_study
from circurve.reproduction.display import Display
from circurve.reproduction.plan import digest, load_study_data, plan_study, training_rows
from circurve.reproduction.records import FILE_NAME, line_of, read_records
from circurve.reproduction.runner import CHECKPOINTS


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """The folder of an undisturbed run, and its records."""
    folder = tmp_path_factory.mktemp("tiny")
    return folder, run(tiny_study(folder), folder / "out")


def test_every_setting_seed_fraction_and_data_set_has_one_record(whole: tuple[Path, list[dict[str, Any]]]) -> None:
    folder, records = whole
    cases = {(r["dataset"], r["fraction"], r["label"], r["seed"]) for r in records}
    assert len(records) == len(cases) == 2 * 2 * 3 * 2
    assert len({r["id"] for r in records}) == len(records)
    assert read_records(folder / "out" / FILE_NAME) == records


def test_a_record_holds_what_others_rely_on(whole: tuple[Path, list[dict[str, Any]]]) -> None:
    record = next(r for r in whole[1] if r["label"] == "gated" and r["fraction"] == 1.0)
    assert record["study"] == "tiny"
    assert (record["protocol"], record["choose_epoch"]) == ("paper-own", "last")
    assert record["method"]["name"] == "gated"
    assert (record["method"]["mu"], record["method"]["gate"]) == (0.1, "max_norm")
    settings = {"units": 3, "epochs": 4, "batch_size": 20, "step": "0.1", "rows": 60, "variables": 5}
    assert settings.items() <= record["settings"].items()
    for scores in (record["final"], record["best"]):
        assert set(scores) == {"epoch", "train_ll", "valid_ll", "test_ll", "dof", "sharpness"}
    assert all(len(record["history"][name]) == 4 for name in ("train_ll", "valid_ll", "test_ll", "sharpness"))
    environment = record["environment"]
    assert environment["command"] == "tiny"
    assert environment["version"] == cc.__version__
    assert len(environment["data_hash"]) == 64
    assert environment["debd"] is False
    assert environment["hardware"]
    curvature = record["curvature"]
    assert curvature["sum_nodes"] == 4 * 3 + 1
    assert curvature["trace"] == record["final"]["sharpness"]
    assert sum(curvature["depth"]) == pytest.approx(1, abs=1e-5)
    for by in ("total", "local"):
        assert set(curvature[by]["fractions"]) == {"0.9", "0.99", "0.9999"}
        assert curvature[by]["curve"][-1] == [1.0, 1.0]
    assert set(curvature["estimates"]) == set(ESTIMATORS)
    for estimate in curvature["estimates"].values():
        assert 1 <= estimate["median_local"] <= estimate["largest_local"]
        assert 0 < estimate["gates_above_half"] <= 1
    assert curvature["estimates"]["mean_trace"]["fractions"] == curvature["local"]["fractions"]
    assert curvature["floor"] == {"edges": 0, "share": 0}
    assert record["gates"]["max"] == 1
    assert next(r for r in whole[1] if r["label"] == "vanilla")["gates"] is None


def test_the_numbers_are_those_of_the_same_training_by_hand(whole: tuple[Path, list[dict[str, Any]]]) -> None:
    folder, records = whole
    data = cc.load_data(folder / "second.npz")
    record = next(
        r for r in records if (r["dataset"], r["fraction"], r["label"], r["seed"]) == ("second", 1.0, "global", 1)
    )
    circuit = cc.hclt(data.train, 3, cc.Bernoulli())
    options: dict[str, Any] = {"valid": data.valid, "test": data.test, "epochs": 4, "batch_size": 20, "device": "cpu"}
    alone = cc.fit(circuit, data.train, method=cc.Global(0.1), seed=1, select="last", **options)
    for name in ("train_ll", "valid_ll", "test_ll", "dof"):
        assert record["final"][name] == pytest.approx(getattr(alone, name), abs=2e-5)
    best = max(alone.history, key=lambda epoch: epoch.valid_ll or -np.inf)
    assert record["best"]["epoch"] == best.epoch
    assert record["best"]["test_ll"] == pytest.approx(best.test_ll, abs=2e-5)
    assert record["history"]["valid_ll"] == pytest.approx([epoch.valid_ll for epoch in alone.history], abs=2e-5)
    curv = cc.curvature(alone.model, data.train)
    assert record["curvature"]["trace"] == pytest.approx(curv.trace, rel=1e-3)
    assert record["curvature"]["reversals"] == pytest.approx(reversals(curv).share, abs=0.02)
    share = concentration(curv, "local").fraction_for(0.9)
    assert record["curvature"]["local"]["fractions"]["0.9"] == pytest.approx(share, abs=0.08)


def test_shared_leaves_are_other_runs_of_the_circuit_with_shared_leaves(tmp_path: Path) -> None:
    study = tiny_study(tmp_path, fractions=(1.0,))
    shared = replace(study, protocol=replace(study.protocol, leaves="shared"))
    own, other = (run(one, tmp_path / one.protocol.leaves)[0] for one in (study, shared))
    assert own["id"] != other["id"]
    assert ("leaves" in own["settings"], other["settings"]["leaves"]) == (False, "shared")
    data = cc.load_data(tmp_path / "first.npz")
    circuit = cc.hclt(data.train, 3, cc.Bernoulli(), leaves="shared")
    assert other["settings"]["parameters"] == circuit.describe().parameters < own["settings"]["parameters"]
    options: dict[str, Any] = {"valid": data.valid, "test": data.test, "epochs": 4, "batch_size": 20, "device": "cpu"}
    alone = cc.fit(circuit, data.train, seed=0, select="last", **options)
    assert other["final"]["test_ll"] == pytest.approx(alone.test_ll, abs=2e-5)


def test_shares_of_the_rows_are_drawn_by_seed_and_share_a_fleet_only_when_whole(tmp_path: Path) -> None:
    fleets = plan_study(tiny_study(tmp_path, datasets=tiny_study(tmp_path).datasets[:1]))
    assert [(fleet.fraction, fleet.rows_seed, len(fleet.runs)) for fleet in fleets] == [
        (0.5, 0, 3),
        (0.5, 1, 3),
        (1, 0, 6),
    ]
    data = fleets[0].data
    halves = [training_rows(data, 0.5, seed) for seed in (0, 1)]
    assert [len(half) for half in halves] == [30, 30]
    assert not np.array_equal(*halves)


def test_a_fleet_has_at_most_as_many_runs_as_wanted(tmp_path: Path) -> None:
    study = tiny_study(tmp_path, fractions=(1.0,), max_runs=4)
    assert [len(fleet.runs) for fleet in plan_study(study)] == [4, 2, 4, 2]
    assert {run.id for fleet in plan_study(study) for run in fleet.runs} == {
        run.id for fleet in plan_study(replace(study, max_runs=None)) for run in fleet.runs
    }


def test_resuming_a_finished_study_trains_nothing(
    whole: tuple[Path, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, records = whole
    monkeypatch.setattr(circurve.learning, "fit_fleet", None)
    assert run(tiny_study(folder), folder / "out") == records


def test_a_file_cut_anywhere_is_completed_to_the_same_records(
    whole: tuple[Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    folder, records = whole
    content = (folder / "out" / FILE_NAME).read_bytes()
    generator = random.Random(0)
    for number in range(6):
        out = tmp_path / str(number)
        out.mkdir()
        (out / FILE_NAME).write_bytes(content[: generator.randrange(len(content))])
        run(tiny_study(folder), out)
        assert [timeless(r) for r in read_records(out / FILE_NAME)] == [timeless(r) for r in records]


def test_an_incomplete_fleet_is_trained_whole_and_only_its_missing_runs_are_recorded(
    whole: tuple[Path, list[dict[str, Any]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, records = whole
    (tmp_path / FILE_NAME).write_bytes(b"".join(line_of(record) for record in records[:-1]))
    sizes: list[int] = []
    fit = circurve.learning.fit_fleet

    def counting(circuit: Any, train: Any, runs: Any, **options: Any) -> Any:
        sizes.append(len(runs))
        return fit(circuit, train, runs, **options)

    monkeypatch.setattr(circurve.learning, "fit_fleet", counting)
    run(tiny_study(folder), tmp_path)
    assert sizes == [6]
    assert [timeless(r) for r in read_records(tmp_path / FILE_NAME)] == [timeless(r) for r in records]


def test_runs_that_another_study_recorded_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    study = tiny_study(tmp_path, fractions=(1.0,))
    run(replace(study, settings=SETTINGS[:2]), out)
    sizes: list[int] = []
    fit = circurve.learning.fit_fleet

    def counting(circuit: Any, train: Any, runs: Any, **options: Any) -> Any:
        sizes.append(len(runs))
        return fit(circuit, train, runs, **options)

    monkeypatch.setattr(circurve.learning, "fit_fleet", counting)
    mine = replace(TINY, name="mine", choose_epoch="best")
    other = replace(study, name="other", protocol=mine, settings=(Setting("plain", cc.Vanilla()), *SETTINGS))
    records = run(other, out)
    assert {(r["protocol"], r["choose_epoch"]) for r in records} == {("mine", "best")}
    assert sizes == [2, 2]
    assert {r["study"] for r in records} == {"other"}
    assert [r["label"] for r in records[:4]] == ["plain", "vanilla", "plain", "vanilla"]
    assert len(read_records(out / FILE_NAME)) == 12


def test_the_same_data_under_another_name_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = tiny_study(tmp_path, fractions=(1.0,))
    run(study, tmp_path / "out")
    (tmp_path / "first.npz").rename(tmp_path / "renamed.npz")
    monkeypatch.setattr(circurve.learning, "fit_fleet", None)
    with RecordFile(tmp_path / "out") as file:
        records = run_study(replace(study, datasets=(str(tmp_path / "renamed.npz"),)), file)
    assert {record["dataset"] for record in records} == {"renamed"}


@pytest.mark.parametrize(
    "change", [{"units": 4}, {"epochs": 5, "small_epochs": 5}, {"batch_size": 21}, {"step": 0.2}], ids=str
)
def test_other_settings_of_training_are_other_runs(tmp_path: Path, change: dict[str, Any]) -> None:
    study = tiny_study(tmp_path)
    other = replace(study, protocol=replace(TINY, **change))
    ids = [{run.id for fleet in plan_study(s) for run in fleet.runs} for s in (study, other)]
    assert not ids[0] & ids[1]


def test_other_data_are_other_runs_and_other_seeds_are_new_ones(tmp_path: Path) -> None:
    study = tiny_study(tmp_path)
    before = {run.id for fleet in plan_study(study) for run in fleet.runs}
    more = replace(study, protocol=replace(TINY, seeds=(0, 1, 2)))
    after = {run.id for fleet in plan_study(more) for run in fleet.runs}
    assert before < after
    data = cc.load_data(tmp_path / "first.npz")
    assert data.test is not None
    test = np.array(data.test)
    test[0] = 1 - test[0]
    np.savez(tmp_path / "first.npz", train=data.train, valid=data.valid, test=test)
    changed = {run.id for fleet in plan_study(study) for run in fleet.runs}
    assert len(before & changed) == len(before) // 2


def test_a_fleet_that_was_cut_off_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: tuple[Path, list[dict[str, Any]]]
) -> None:
    study, trained = tiny_study(tmp_path), list[int]()
    monkeypatch.setattr("circurve.reproduction.runner.CHECKPOINT_EVERY", "1 epochs, unfinished")
    real = Display.epoch

    def cut_off(display: Display, event: Any) -> None:
        real(display, event)
        trained.append(event.epoch)
        if len(trained) == 3:
            raise RuntimeError("cut off")

    monkeypatch.setattr(Display, "epoch", cut_off)
    with pytest.raises(RuntimeError, match="cut off"):
        run(study, tmp_path / "out")
    assert len(list((tmp_path / "out" / CHECKPOINTS).iterdir())) == 1
    records = run(study, tmp_path / "out")
    assert trained[:4] == [1, 2, 3, 3]  # a callback that fails comes before the checkpoint of its epoch
    assert [timeless(record) for record in records] == [timeless(record) for record in whole[1]]
    assert not (tmp_path / "out" / CHECKPOINTS).exists()


def test_an_interrupted_fleet_is_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = tiny_study(tmp_path)
    calls: list[int] = []
    fit = circurve.learning.fit_fleet

    def interrupted(circuit: Any, train: Any, runs: Any, callbacks: Any, **options: Any) -> Any:
        calls.append(1)

        def press(event: Any) -> None:
            if len(calls) == 2 and event.epoch == 2:
                raise KeyboardInterrupt

        return fit(circuit, train, runs, callbacks=[*callbacks, press], **options)

    monkeypatch.setattr(circurve.learning, "fit_fleet", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(study, tmp_path / "out")
    assert len(read_records(tmp_path / "out" / FILE_NAME)) == 3


def test_two_data_sets_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    twin = tiny_study(tmp_path / "other").datasets[0]
    study = tiny_study(tmp_path, datasets=(tiny_study(tmp_path).datasets[0], twin))
    with RecordFile(tmp_path / "out") as file, pytest.raises(OptionError, match="two of them have the name 'first'"):
        run_study(study, file)


def test_a_table_without_parts_is_split_the_same_way_every_time(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).integers(0, 2, (50, 3))
    np.save(tmp_path / "table.npy", rows)
    first, second = (load_study_data(str(tmp_path / "table.npy"), None) for _ in range(2))
    assert (len(first.train), len(first.valid), len(first.test)) == (40, 5, 5)
    assert digest(first) == digest(second)


def test_a_set_without_validation_rows_keeps_its_test_rows() -> None:
    triangle = cc.load_dataset("triangle")
    data = load_study_data("triangle", None)
    assert triangle.valid is None
    assert np.array_equal(data.test, np.asarray(triangle.test))
    assert len(data.train) + len(data.valid) == len(triangle.train)


def test_the_hash_is_of_values_and_not_of_integer_types(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).integers(0, 2, (50, 3))
    digests = []
    for kind in (np.int64, np.uint8):
        np.savez(tmp_path / "data.npz", train=rows[:30].astype(kind), valid=rows[30:40], test=rows[40:])
        digests.append(digest(load_study_data(str(tmp_path / "data.npz"), None)))
    assert digests[0] == digests[1]
