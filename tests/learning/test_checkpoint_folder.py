"""What lies in a folder of checkpoints, what becomes of damaged files, and which folders are refused."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from broken_off import BreakOffError, assert_equal_to_the_bit, break_off_at
from learning_helpers import binary_rows, quick, small_circuit

from circurve import CircurveWarning, FileFormatError, Global, OptionError, Vanilla
from circurve.learning.loop import Trainer
from circurve.learning.plan import Plan

TRAIN, VALID = binary_rows(90), binary_rows(150)[90:]
CIRCUIT = small_circuit(TRAIN)
OPTIONS = {"epochs": 7, "batch_size": 20, "progress": False}


def test_the_last_two_are_kept_and_nothing_is_pickled(tmp_path):
    quick(CIRCUIT, TRAIN, **OPTIONS, checkpoint=tmp_path / "new" / "folder", checkpoint_every="2 epochs")
    names = sorted(os.listdir(tmp_path / "new" / "folder"))
    assert names == [".lock", "epoch-000006.safetensors", "epoch-000007.safetensors", "training.json"]
    for name in names[1:3]:
        content = (tmp_path / "new" / "folder" / name).read_bytes()
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + length])
        assert json.loads(header["__metadata__"]["checkpoint"])["format"] == "circurve checkpoint"


def test_a_finished_training_trains_nothing_and_returns_its_result(tmp_path, monkeypatch):
    options = {**OPTIONS, "valid": VALID, "checkpoint": tmp_path}
    first = quick(CIRCUIT, TRAIN, **options)
    monkeypatch.setattr(Trainer, "_epoch", None)
    told = []
    again = quick(CIRCUIT, TRAIN, **options, callbacks=[told.append])
    assert_equal_to_the_bit(again, first)
    assert not told
    assert again.history[-1].seconds == first.history[-1].seconds


def test_an_interrupted_training_continues_after_its_last_whole_epoch(tmp_path):
    def interrupt(event):
        if event.epoch == 5:
            raise KeyboardInterrupt

    options = {**OPTIONS, "checkpoint": tmp_path, "checkpoint_every": "1h"}
    broken = quick(CIRCUIT, TRAIN, **options, callbacks=[interrupt])
    assert (broken.stopped, len(broken.history)) == ("interrupted", 5)
    epochs = []
    found = quick(CIRCUIT, TRAIN, **options, callbacks=[lambda event: epochs.append(event.epoch)])
    assert epochs == [5, 6, 7]  # epoch 5 was told, but its callbacks had not ended
    assert_equal_to_the_bit(found, quick(CIRCUIT, TRAIN, **OPTIONS))


def broken_at_five(folder: Path) -> dict:
    options = {**OPTIONS, "checkpoint": folder, "checkpoint_every": "1 epoch"}
    with pytest.raises(BreakOffError):
        quick(CIRCUIT, TRAIN, **options, callbacks=[break_off_at(5)])
    return options


DAMAGES = {
    "empty": lambda content: b"",
    "cut short": lambda content: content[: len(content) // 2],
    "a flipped bit in a tensor": lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
    "a flipped bit in the header": lambda content: content.replace(b"epoch", b"epocj", 1),
    "another file": lambda content: b"hello" * 100,
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_checkpoint_gives_way_to_the_one_before(name, tmp_path):
    options = broken_at_five(tmp_path)
    newest = tmp_path / "epoch-000004.safetensors"
    newest.write_bytes(DAMAGES[name](newest.read_bytes()))
    with pytest.warns(CircurveWarning, match=r"epoch-000004.* using the earlier checkpoint of epoch 3"):
        found = quick(CIRCUIT, TRAIN, **options)
    assert_equal_to_the_bit(found, quick(CIRCUIT, TRAIN, **OPTIONS))


def test_if_all_are_damaged_nothing_is_guessed(tmp_path):
    options = broken_at_five(tmp_path)
    for name in ("epoch-000003.safetensors", "epoch-000004.safetensors"):
        (tmp_path / name).write_bytes(b"x")
    with (
        pytest.warns(CircurveWarning, match="using the earlier checkpoint"),
        pytest.raises(FileFormatError, match="there is no other complete checkpoint: delete"),
    ):
        quick(CIRCUIT, TRAIN, **options)


def test_a_damaged_or_missing_description_is_an_error(tmp_path):
    options = broken_at_five(tmp_path)
    for content in (b"{", b"[1]", b'{"format": "circurve checkpoint"}'):
        (tmp_path / "training.json").write_bytes(content)
        with pytest.raises(FileFormatError, match=r"training.json is damaged"):
            quick(CIRCUIT, TRAIN, **options)
    (tmp_path / "training.json").unlink()
    with pytest.raises(FileFormatError, match=r"training.json is missing"):
        quick(CIRCUIT, TRAIN, **options)


CHANGED = TRAIN.copy()
CHANGED[3, 2] = 1 - CHANGED[3, 2]

OTHERS = {
    "epochs: was 7, is 8": {"epochs": 8},
    "train rows: not the same": {"train": CHANGED},
    "circuit: not the same": {"circuit": small_circuit(TRAIN, 4)},
    "seed: was 0, is 1": {"seed": 1},
    "method: was Vanilla, is Global": {"method": Global(0.1)},
    "pseudocount: was 0.0, is 0.1": {"method": Vanilla(0.1)},
    "valid rows: was not given, is given": {"valid": VALID},
    "precision: was 'float64', is 'float32'": {"precision": "float32"},
    "step_size: was None, is .*lambda": {"step_size": lambda progress: 0.1},
}


@pytest.mark.parametrize("difference", OTHERS)
def test_another_training_is_refused_and_the_difference_named(difference, tmp_path):
    options = broken_at_five(tmp_path)
    changes = dict(OTHERS[difference])
    circuit, train = changes.pop("circuit", CIRCUIT), changes.pop("train", TRAIN)
    with pytest.raises(OptionError, match=f"belongs to another training .*{difference}") as caught:
        quick(circuit, train, **{**options, **changes})
    assert str(caught.value).endswith("name another folder, or delete this one")


def test_functions_are_compared_by_their_code(tmp_path):
    def train(step):
        return quick(CIRCUIT, TRAIN, **{**OPTIONS, "epochs": 2}, step_size=step, checkpoint=tmp_path)

    train(lambda progress: 0.1 + 0 * progress)
    train(lambda progress: 0.1 + 0 * progress)
    with pytest.raises(OptionError, match="step_size"):
        train(lambda progress: 0.2 + 0 * progress)


def test_other_threads_are_a_warning(tmp_path):
    options = broken_at_five(tmp_path)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(before + 1)
        with pytest.warns(
            CircurveWarning, match=f"threads: was {before}, is {before + 1}; results may differ by rounding"
        ):
            quick(CIRCUIT, TRAIN, **options)
    finally:
        torch.set_num_threads(before)


def test_without_space_training_goes_on_and_the_last_checkpoint_stays(tmp_path, monkeypatch):
    """The disk is full from epoch 3 on; then the process dies in epoch 6."""
    options, calls, fsync = {**OPTIONS, "checkpoint": tmp_path, "checkpoint_every": "1 epoch"}, [], os.fsync

    def full(file):
        calls.append(file)
        if len(calls) > 3:  # the description and two checkpoints
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(file)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.warns(CircurveWarning) as caught, pytest.raises(BreakOffError):
            quick(CIRCUIT, TRAIN, **options, callbacks=[break_off_at(6)])
    texts = [str(warning.message) for warning in caught if "no checkpoint" in str(warning.message)]
    assert len(texts) == 1  # one line, not one in each epoch
    assert "no checkpoint after epoch 3: cannot write" in texts[0]
    assert "No space left on device; the checkpoint of epoch 2 is kept, and training continues" in texts[0]
    states = ["epoch-000001.safetensors", "epoch-000002.safetensors"]
    assert sorted(os.listdir(tmp_path)) == [".lock", *states, "training.json"]
    assert_equal_to_the_bit(quick(CIRCUIT, TRAIN, **options), quick(CIRCUIT, TRAIN, **OPTIONS))


def test_a_folder_that_is_deleted_in_the_middle_is_one_warning(tmp_path):
    folder = tmp_path / "runs"

    def delete(event):
        if event.epoch == 3:
            shutil.rmtree(folder)

    with pytest.warns(
        CircurveWarning, match=r"no checkpoint after epoch 3: .*; there is no earlier checkpoint"
    ) as caught:
        result = quick(CIRCUIT, TRAIN, **OPTIONS, checkpoint=folder, checkpoint_every="1 epoch", callbacks=[delete])
    assert sum("no checkpoint" in str(warning.message) for warning in caught) == 1
    assert_equal_to_the_bit(result, quick(CIRCUIT, TRAIN, **OPTIONS))


@pytest.mark.parametrize("error", [MemoryError, torch.OutOfMemoryError, RuntimeError])
def test_an_error_within_an_epoch_loses_no_whole_epoch(error, tmp_path, monkeypatch):
    steps, maximize = iter(range(10**6)), Plan.maximize

    def broken(self, *arguments):
        if next(steps) == 4 * 5 + 2:  # in epoch 5
            raise error("no memory")
        return maximize(self, *arguments)

    options = {**OPTIONS, "checkpoint": tmp_path, "checkpoint_every": "1h"}
    with monkeypatch.context() as patch:
        patch.setattr(Plan, "maximize", broken)
        with pytest.raises(error):
            quick(CIRCUIT, TRAIN, **options)
    assert (tmp_path / "epoch-000004.safetensors").exists()
    assert_equal_to_the_bit(quick(CIRCUIT, TRAIN, **options), quick(CIRCUIT, TRAIN, **OPTIONS))


@pytest.mark.parametrize("every", ["", "5", "0 epochs", "1.5 epochs", "min", 5, None, "-1min"])
def test_how_often_is_checked(every):
    with pytest.raises(OptionError, match="checkpoint_every must be a time or a number of epochs"):
        quick(CIRCUIT, TRAIN, checkpoint_every=every)


def test_the_folder_is_checked(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OptionError, match="cannot make the folder"):
        quick(CIRCUIT, TRAIN, checkpoint=tmp_path / "file")
    with pytest.raises(OptionError, match="checkpoint must be the path of a folder, not 3"):
        quick(CIRCUIT, TRAIN, checkpoint=3)
