"""Fleets and studies on a local Ray cluster of two cores: the same results, also after a worker was killed."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import circurve as cc
from circurve.errors import DataError, MissingPackageError, OptionError, TrainingError
from circurve.learning import FleetResult, ray_engine
from circurve.learning.ray_engine import _cuts, run_on_ray
from circurve.whole_files import LOCK_NAME, lock_file

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'circurve[ray]'")


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    paths = [str(Path(cc.__file__).parents[1]), str(Path(__file__).parents[1])]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
        object_store_memory=100 << 20,
        runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(paths), "RAY_DEDUP_LOGS": "0"}},
    )
    yield
    ray.shutdown()
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    return (rng.random((120, 6)) < rng.random((120, 1))).astype(np.int64)


def train(rows: np.ndarray, runs: list[cc.Run], engine: Any, **options: Any) -> FleetResult:
    given = {"epochs": 3, "batch_size": 40, "device": "cpu", "progress": False, "valid": 0.2, **options}
    return cc.fit_fleet(cc.hclt(rows, units=3), rows, runs, engine=engine, **given)


def assert_same(one: FleetResult, other: FleetResult) -> None:
    assert len(one) == len(other)
    for mine, its in zip(one, other, strict=True):
        assert (mine.run.seed, mine.train_ll, mine.valid_ll, mine.epoch) == (
            its.run.seed,
            its.train_ll,
            its.valid_ll,
            its.epoch,
        )
        for kind in ("weights", "inputs"):
            pairs = zip(getattr(mine.model.params, kind), getattr(its.model.params, kind), strict=True)
            assert all(torch.equal(a, b) for a, b in pairs)
        np.testing.assert_array_equal(mine.rows["valid"], its.rows["valid"])


@pytest.mark.usefixtures("cluster")
def test_a_fleet_in_parts_is_the_fleet_of_this_process(rows: np.ndarray) -> None:
    """To rounding, which depends on the number of runs side by side; a part alone gives the same bits."""
    runs = [cc.Run(cc.Vanilla(), seed=0), cc.Run(cc.Gated(0.05), seed=1), cc.Run(cc.Gated("auto"), seed=2)]
    found = train(rows, runs, "ray")
    alone = [*train(rows, runs[:1], "local"), *train(rows, runs[1:], "local")]
    assert_same(found, FleetResult(tuple(alone)))
    for mine, its in zip(found, train(rows, runs, "local"), strict=True):
        assert mine.valid_ll == pytest.approx(its.valid_ll, abs=1e-5)
        assert mine.run.method == its.run.method


@pytest.mark.usefixtures("cluster")
def test_a_part_whose_worker_is_killed_is_trained_again(rows: np.ndarray, tmp_path: Path) -> None:
    marker = str(tmp_path / "killed")

    def deadly(nodes: Any) -> Any:
        """A gate that kills the first process that uses it."""
        if not os.path.exists(marker):
            open(marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return nodes.local / nodes.local.amax(-1, keepdim=True)

    runs = [cc.Run(cc.Gated(0.05, gate=deadly), seed=0), cc.Run(cc.Vanilla(), seed=1)]
    found = train(rows, runs, "ray")
    assert os.path.exists(marker)
    alone = [*train(rows, runs[:1], "local"), *train(rows, runs[1:], "local")]
    assert_same(found, FleetResult(tuple(alone)))


@pytest.mark.usefixtures("cluster")
def test_a_cluster_of_another_size_continues_what_was_trained(
    rows: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [cc.Run(seed=seed) for seed in range(3)]
    monkeypatch.chdir(tmp_path)
    first = train(rows, runs, "ray", checkpoint="runs")
    before = {path: path.stat().st_mtime_ns for path in Path("runs").rglob("epoch-*")}
    assert {path.parent.name for path in before} == {"part-0-1", "part-1-3"}
    monkeypatch.setattr(ray_engine, "slots", lambda device: 3)
    again = train(rows, runs, "ray", checkpoint="runs")
    assert_same(again, first)
    assert {path: path.stat().st_mtime_ns for path in Path("runs").rglob("epoch-*")} == before
    for path in before:
        if path.parent.name == "part-1-3":  # as if it had been killed before its first checkpoint
            path.unlink()
    assert_same(train(rows, runs, "ray", checkpoint="runs"), first)


def test_the_folder_of_a_fleet_on_ray_is_for_one_training(
    rows: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, folder = [cc.Run(seed=seed) for seed in range(2)], tmp_path / "runs"
    monkeypatch.setattr(ray_engine, "slots", lambda device: 2)
    monkeypatch.setattr(
        ray_engine,
        "run_until_interrupted",
        lambda train, parts, device: {n: train(part) for n, part in enumerate(parts)},
    )
    train(rows, runs, "ray", checkpoint=folder)
    for options, message in (
        ({"epochs": 4}, "epochs: was 3, is 4"),
        ({"valid": rows[:10]}, "valid rows: not the same"),
    ):
        with pytest.raises(OptionError, match=f"belongs to another training .*{message}"):
            train(rows, runs, "ray", checkpoint=folder, **options)
    with pytest.raises(OptionError, match="number of runs: was 2, is 1"):
        train(rows, runs[:1], "ray", checkpoint=folder)
    with pytest.raises(OptionError, match="function: was fit_fleet with engine='ray', is fit_fleet"):
        train(rows, runs, "local", checkpoint=folder)
    train(rows, runs, "local", checkpoint=tmp_path / "other")
    with pytest.raises(OptionError, match="function: was fit_fleet, is fit_fleet with engine='ray'"):
        train(rows, runs, "ray", checkpoint=tmp_path / "other")
    with open(folder / LOCK_NAME, "rb+") as file:
        assert lock_file(file.fileno())
        with pytest.raises(OptionError, match="another training is using this folder"):
            train(rows, runs, "ray", checkpoint=folder)


@pytest.mark.usefixtures("cluster")
def test_errors_of_a_task_come_out_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(part: int) -> int:
        if part == 1:
            raise DataError("column 'x' is empty")
        return part

    with pytest.raises(DataError, match="column 'x' is empty"):
        list(run_on_ray(refuse, [0, 1, 2]))
    monkeypatch.setattr(ray_engine, "MAX_RETRIES", 0)

    def die(_: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(TrainingError, match=r"the worker of part 1 was lost 1 times \(WorkerCrashedError\)"):
        list(run_on_ray(die, [0]))


@pytest.mark.usefixtures("cluster")
def test_a_study_on_ray_has_the_same_records(tmp_path: Path) -> None:
    from circurve.reproduction.records import RecordFile
    from circurve.reproduction.runner import run_study
    from reproduction.tiny_study import timeless, tiny_study

    study = tiny_study(tmp_path, fractions=(1.0,))
    found = {}
    for engine in ("local", "ray"):
        with RecordFile(tmp_path / engine) as file:
            found[engine] = [timeless(r) for r in run_study(study, file, command="tiny", shown=False, engine=engine)]  # type: ignore[arg-type]
    assert found["ray"] == found["local"]
    assert found["ray"]


def interrupt_when(*moments: Callable[[], bool]) -> None:
    """Ctrl-C for this process at each of these moments, in turn."""

    def watch() -> None:
        for moment in moments:
            while not moment():
                time.sleep(0.05)
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=watch, daemon=True).start()


@pytest.mark.usefixtures("cluster")
def test_an_interrupted_fleet_keeps_the_parts_that_are_finished_and_the_steps_of_the_others(
    rows: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, finished = tmp_path / "calls", list[int]()
    result = ray_engine._result
    monkeypatch.setattr(ray_engine, "_result", lambda *words: finished.append(words[2]) or result(*words))

    def slow(nodes: Any) -> Any:
        with open(calls, "ab") as file:
            file.write(b".")
        time.sleep(0.1)
        return nodes.local / nodes.local.amax(-1, keepdim=True)

    runs = [cc.Run(cc.Vanilla(), seed=0), cc.Run(cc.Gated(0.05, gate=slow), seed=1)]
    interrupt_when(lambda: bool(finished) and calls.exists() and calls.stat().st_size > 5)
    found = train(rows, runs, "ray", epochs=100)
    assert [run.stopped for run in found] == ["epochs", "interrupted"]
    assert_same(FleetResult(found.results[:1]), train(rows, runs[:1], "local", epochs=100))
    assert 1 <= len(found[1].history) < 100
    assert found[1].history[0].train_ll == train(rows, runs[1:], "local", epochs=1)[0].history[0].train_ll


@pytest.mark.usefixtures("cluster")
def test_a_second_interrupt_ends_tasks_that_do_not_return(tmp_path: Path) -> None:
    def work(part: int) -> int:
        (tmp_path / f"begun {part}").touch()
        while part:
            try:
                time.sleep(0.1)  # Ray interrupts between two calls
            except KeyboardInterrupt:
                (tmp_path / f"interrupted {part}").touch()
                if part == 2:
                    return 20
        return part

    begun = [tmp_path / name for name in ("begun 0", "begun 1", "begun 2")]
    stubborn = tmp_path / "interrupted 1"
    interrupt_when(lambda: all(path.exists() for path in begun), stubborn.exists)
    assert ray_engine.run_until_interrupted(work, range(4)) == {0: 0, 2: 20}  # part 3 was never begun


def test_parts_that_returned_nothing_have_their_initial_parameters(
    rows: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [cc.Run(seed=seed) for seed in range(2)]
    monkeypatch.setattr(ray_engine, "slots", lambda device: 2)
    monkeypatch.setattr(ray_engine, "run_until_interrupted", lambda train, parts, device: {0: train(parts[0])})
    found = train(rows, runs, "ray")
    assert [(result.stopped, result.epoch) for result in found] == [("epochs", 3), ("interrupted", 0)]
    assert_same(FleetResult(found.results[1:]), train(rows, runs[1:], "local", epochs=0))
    monkeypatch.setattr(ray_engine, "run_until_interrupted", lambda train, parts, device: {})
    with pytest.raises(KeyboardInterrupt):
        train(rows, runs, "ray")


def test_ray_takes_no_signal_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**_: Any) -> None:
        signal.signal(signal.SIGTERM, lambda *_: None)

    def ours(*_: Any) -> None: ...

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, init=init))
    before = signal.signal(signal.SIGTERM, ours)
    try:
        ray_engine._connected()
        assert signal.getsignal(signal.SIGTERM) is ours
    finally:
        signal.signal(signal.SIGTERM, before)


def test_what_ray_cannot_do_is_refused(rows: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [cc.Run()]
    with pytest.raises(OptionError, match=r"engine must be one of local, ray, not 'dask'"):
        train(rows, runs, "dask")
    with pytest.raises(OptionError, match="cannot be combined with callbacks"):
        train(rows, runs, "ray", callbacks=[lambda event: None])
    monkeypatch.setattr(ray_engine, "find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"needs ray: pip install 'circurve\[ray\]'"):
        train(rows, runs, "ray")


@pytest.mark.parametrize(("count", "parts"), [(1, 4), (5, 2), (7, 3), (4, 4), (9, 1)])
def test_parts_are_as_equal_as_can_be(count: int, parts: int) -> None:
    cuts = _cuts(count, parts)
    assert [run for first, last in cuts for run in range(first, last)] == list(range(count))
    sizes = [last - first for first, last in cuts]
    assert len(cuts) == min(count, parts)
    assert max(sizes) - min(sizes) <= 1
