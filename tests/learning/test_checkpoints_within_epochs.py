"""A training that is killed in the middle of an epoch goes on from there, and ends with the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import circurve as cc
from circurve.learning.checkpoints import Checkpoints
from circurve.learning.steps import PlainSteps

RNG = np.random.default_rng(0)
X = (RNG.random((97, 5)) < RNG.random(5)).astype(np.int64)
VALID = (RNG.random((30, 5)) < 0.5).astype(np.int64)
CIRCUIT = cc.hclt(X, 3)
EACH_STEP = "0s"

TRAININGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "best epoch": {"valid": VALID},
    "gates with a memory": {"method": cc.Gated(0.1, gate_memory=0.5), "track": True},
    "gates of an epoch": {"method": cc.Gated(0.1, gates_from="epoch", estimator="mean_ratio")},
    "weighted rows": {"weights": np.arange(97) % 3},
    "float64": {"precision": "float64"},
    "readable backend": {"backend": "reference"},
}


class Killed(BaseException):
    """Stands for the end of the process."""


def train(folder: Path | None = None, data: Any = X, every: str = EACH_STEP, **options: Any) -> Any:
    more = {} if folder is None else {"checkpoint": folder, "checkpoint_every": every}
    settings = {"epochs": 3, "batch_size": 10, "device": "cpu", "progress": False, "valid": False}
    return cc.fit(CIRCUIT, data, **{**settings, **options}, **more)


def bits(result: Any) -> list[bytes]:
    return [tensor.cpu().numpy().tobytes() for tensor in (*result.model.params.weights, *result.model.params.inputs)]


def same(one: Any, other: Any) -> None:
    assert bits(one) == bits(other)
    assert one.train_ll == other.train_ll
    fields = ("epoch", "train_ll", "valid_ll", "step_size", "mu", "sharpness", "gates")
    for mine, its in zip(one.history, other.history, strict=True):
        assert [getattr(mine, field) for field in fields] == [getattr(its, field) for field in fields]


class Counted:
    """Counts steps, and ends the training after some of them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.steps, self.last = 0, None
        plain = PlainSteps._e_step

        def e_step(steps: PlainSteps, rows: torch.Tensor | None) -> Any:
            if self.steps == self.last:
                raise Killed
            self.steps += 1
            return plain(steps, rows)

        patch.setattr(PlainSteps, "_e_step", e_step)

    def kill_after(self, steps: int | None) -> None:
        self.steps, self.last = 0, steps


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


@pytest.mark.parametrize("name", TRAININGS)
@pytest.mark.parametrize("steps", [1, 9, 10, 14, 27])
def test_no_step_is_made_again_and_no_bit_differs(name: str, steps: int, counted: Counted, tmp_path: Path) -> None:
    whole = train(**TRAININGS[name])
    counted.kill_after(steps)
    with pytest.raises(Killed):
        train(tmp_path, **TRAININGS[name])
    counted.kill_after(None)
    same(train(tmp_path, **TRAININGS[name]), whole)
    assert counted.steps == 30 - steps


@pytest.mark.filterwarnings("ignore:run 0")
def test_a_fleet_goes_on_also_in_an_epoch_that_is_repeated_without_a_broken_run(
    counted: Counted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*given: Any) -> dict[int, str]:
        """The first of three runs breaks in the second epoch."""
        return {0: "made up"} if len(given[3]) == 3 and counted.steps >= 20 else {}

    monkeypatch.setattr("circurve.learning.loop.broken_steps", breaks)
    runs = [cc.Run(seed=0), cc.Run(seed=1), cc.Run(cc.Gated(0.1, gate_memory=0.9), seed=2)]
    options: dict[str, Any] = {"epochs": 3, "batch_size": 10, "device": "cpu", "progress": False, "valid": False}
    whole = cc.fit_fleet(CIRCUIT, X, runs, **options)
    assert counted.steps == 40
    for number in (4, 13, 24, 35):
        options["checkpoint"], options["checkpoint_every"] = tmp_path / str(number), EACH_STEP
        counted.kill_after(number)
        with pytest.raises(Killed):
            cc.fit_fleet(CIRCUIT, X, runs, **options)
        counted.last = None
        again = cc.fit_fleet(CIRCUIT, X, runs, **options)
        assert counted.steps == 40
        assert [result.failed for result in again] == [True, False, False]
        for one, other in zip(again, whole, strict=True):
            same(one, other)


def test_streams_go_on_where_their_rows_come_in_the_same_order(counted: Counted, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", X)
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
    for number, data in enumerate((rows, cc.open_stream(rows, block_rows=16))):
        whole = train(data=data)
        counted.kill_after(15)
        with pytest.raises(Killed):
            train(tmp_path / str(number), data=data)
        counted.kill_after(None)
        same(train(tmp_path / str(number), data=data), whole)
        assert counted.steps == 15


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_stream_on_a_gpu_goes_on_too(counted: Counted, tmp_path: Path) -> None:
    data = cc.open_stream(X, block_rows=16)
    whole = train(data=data, device="cuda")
    counted.kill_after(15)
    with pytest.raises(Killed):
        train(tmp_path, data=data, device="cuda")
    counted.kill_after(None)
    same(train(tmp_path, data=data, device="cuda"), whole)
    assert counted.steps == 15


def test_batches_of_an_iterable_are_not_relied_upon(counted: Counted, tmp_path: Path) -> None:
    data = cc.open_stream([X[:50], X[50:]])
    counted.kill_after(15)
    with pytest.raises(Killed):
        train(tmp_path, data=data)
    assert [path.name for path in sorted(tmp_path.glob("epoch-*"))] == ["epoch-000001.safetensors"]


def test_the_last_two_are_kept_and_a_number_of_epochs_means_whole_ones(counted: Counted, tmp_path: Path) -> None:
    for folder, every in (("time", EACH_STEP), ("epochs", "1 epoch")):
        counted.kill_after(15)
        with pytest.raises(Killed):
            train(tmp_path / folder, every=every)
    names = [sorted(path.name for path in (tmp_path / folder).glob("epoch-*")) for folder in ("time", "epochs")]
    assert names[0] == ["epoch-000001-000000004.safetensors", "epoch-000001-000000005.safetensors"]
    assert names[1] == ["epoch-000001.safetensors"]


def test_a_damaged_one_is_left_for_the_one_before(counted: Counted, tmp_path: Path, capsys: Any) -> None:
    whole = train()
    counted.kill_after(15)
    with pytest.raises(Killed):
        train(tmp_path)
    newest = max(tmp_path.glob("epoch-*"))
    newest.write_bytes(newest.read_bytes()[:-3])
    counted.kill_after(None)
    with pytest.warns(cc.CircurveWarning, match=r"using the earlier checkpoint of epoch 1 and 4 steps"):
        same(train(tmp_path), whole)
    assert counted.steps == 16
    counted.kill_after(None)
    train(tmp_path, progress=True)
    assert "continuing after epoch 3 of checkpoint" in capsys.readouterr().err


def test_an_interrupt_keeps_the_newest_one(counted: Counted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = train()
    counted.kill_after(None)
    plain = PlainSteps._e_step

    def interrupted(steps: PlainSteps, rows: torch.Tensor | None) -> Any:
        if counted.steps == 15:
            raise KeyboardInterrupt
        return plain(steps, rows)

    with monkeypatch.context() as patch:
        patch.setattr(PlainSteps, "_e_step", interrupted)
        assert train(tmp_path).stopped == "interrupted"
    counted.kill_after(None)
    same(train(tmp_path), whole)
    assert counted.steps == 15


def test_recorded_steps_begin_the_epoch_again(
    tmp_path: Path, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they do if a training is continued on another device."""
    whole = train()
    counted.kill_after(15)
    with pytest.raises(Killed):
        train(tmp_path)
    counted.kill_after(None)
    plain = PlainSteps.run
    monkeypatch.setattr(PlainSteps, "run", lambda steps, *given: plain(steps, *given[:3]))
    same(train(tmp_path), whole)
    assert counted.steps == 20


def test_a_full_disk_names_the_checkpoint_that_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = Checkpoints.save

    def full(checkpoints: Checkpoints, state: Any) -> bool:
        if (state.epoch, state.steps) == (1, 3):
            with monkeypatch.context() as patch:
                patch.setattr("circurve.learning.checkpoints.replace_file", refuse)
                return saved(checkpoints, state)
        return saved(checkpoints, state)

    def refuse(*_: object) -> None:
        raise cc.FileAccessError("no space")

    monkeypatch.setattr(Checkpoints, "save", full)
    with pytest.warns(cc.CircurveWarning) as told:
        train(tmp_path)
    expected = "no checkpoint after epoch 1 and 3 steps: no space; the checkpoint of epoch 1 and 2 steps is kept"
    assert any(expected in str(warning.message) for warning in told)
