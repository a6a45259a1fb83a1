"""One training at a time in a folder of checkpoints."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest
from broken_off import assert_equal_to_the_bit
from learning_helpers import binary_rows, quick, small_circuit

from circurve import FileAccessError, OptionError, fit_ensemble
from circurve.whole_files import LOCK_NAME, lock_file

ROWS = binary_rows(60)
CIRCUIT = small_circuit(ROWS)
OPTIONS = {"epochs": 4, "batch_size": 20, "progress": False}

HOLD = """
import os, sys
from circurve.whole_files import lock_file
number = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
print(lock_file(number), flush=True)
sys.stdin.read()
"""


def test_a_second_training_in_the_folder_is_refused_and_the_first_is_undisturbed(tmp_path):
    refused = []

    def start_another(event):
        if event.epoch == 2:
            with pytest.raises(OptionError) as caught:
                quick(CIRCUIT, ROWS, **OPTIONS, checkpoint=tmp_path)
            refused.append(str(caught.value))

    first = quick(CIRCUIT, ROWS, **OPTIONS, checkpoint=tmp_path, callbacks=[start_another])
    wait = "wait until it ends, or name another folder"
    assert refused == [f"checkpoint {tmp_path}: another training is using this folder: {wait}"]
    assert_equal_to_the_bit(first, quick(CIRCUIT, ROWS, **OPTIONS))
    assert_equal_to_the_bit(quick(CIRCUIT, ROWS, **OPTIONS, checkpoint=tmp_path), first)


def test_a_part_of_an_ensemble_is_refused_while_another_process_trains_it(tmp_path):
    def start_another(event):
        if event.epoch == 1:
            with pytest.raises(OptionError, match="another training is using this folder"):
                ensemble()

    def ensemble(**more):
        return fit_ensemble(ROWS, valid=ROWS[:20], members=2, units=2, checkpoint=tmp_path, **OPTIONS, **more)

    assert ensemble(callbacks=[start_another]).model is not None


def test_an_error_in_a_training_frees_the_folder(tmp_path):
    def fail(event):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        quick(CIRCUIT, ROWS, **OPTIONS, checkpoint=tmp_path, callbacks=[fail])
    assert_equal_to_the_bit(quick(CIRCUIT, ROWS, **OPTIONS, checkpoint=tmp_path), quick(CIRCUIT, ROWS, **OPTIONS))


def test_the_lock_of_another_process_holds_until_that_is_killed(tmp_path):
    quick(CIRCUIT, ROWS, **OPTIONS, checkpoint=tmp_path)
    command = [sys.executable, "-c", HOLD, str(tmp_path / LOCK_NAME)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        with pytest.raises(OptionError, match="another training is using this folder"):
            quick(CIRCUIT, ROWS, **OPTIONS, checkpoint=tmp_path)
        other.kill()
        other.wait()
    quick(CIRCUIT, ROWS, **OPTIONS, checkpoint=tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fcntl")
def test_a_file_system_without_locks_is_no_reason_to_refuse(tmp_path, monkeypatch):
    import fcntl

    def unsupported(number, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with open(tmp_path / "file", "w") as file:
        assert lock_file(file.fileno())


def test_a_folder_where_no_lock_can_be_written(tmp_path):
    (tmp_path / LOCK_NAME).mkdir()
    with pytest.raises(FileAccessError, match=r"cannot write .*\.lock"):
        quick(CIRCUIT, ROWS, **OPTIONS, checkpoint=tmp_path)
