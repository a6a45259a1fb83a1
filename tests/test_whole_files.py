"""Temporary files of killed processes go; those that somebody may still be writing stay."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from circurve import whole_files
from circurve.early import is_command
from circurve.whole_files import MAX_AGE, clean_leftovers, replace_file, temporary_name

posix = pytest.mark.skipif(os.name != "posix", reason="process numbers are looked up on POSIX systems only")


def name_of(process: int, host: str | None = None) -> str:
    own = temporary_name()
    _, found, _, token = own.removesuffix(".tmp").split("-")
    return f".circurve-{host or found}-{process}-{token}.tmp"


def dead_process() -> int:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


def make_old(path) -> None:
    long_ago = time.time() - MAX_AGE - 60
    os.utime(path, (long_ago, long_ago))


@posix
def test_files_of_dead_processes_go_and_the_others_stay(tmp_path):
    dead = dead_process()
    stay = [temporary_name(), name_of(os.getppid()), name_of(dead, "abcdef"), "mine.tmp", ".circurve-notes.tmp"]
    for name in [*stay, name_of(dead)]:
        (tmp_path / name).write_bytes(b"x")
    assert clean_leftovers(tmp_path) == 1
    assert sorted(os.listdir(tmp_path)) == sorted(stay)


def test_old_ones_go_whoever_wrote_them(tmp_path):
    names = [temporary_name(), name_of(1, "abcdef"), f".circurve-{'0' * 16}.tmp"]  # the last as version 0.1 wrote them
    for name in names:
        (tmp_path / name).write_bytes(b"x")
        make_old(tmp_path / name)
    assert clean_leftovers(tmp_path) == 3
    assert os.listdir(tmp_path) == []


@posix
def test_the_next_file_in_the_folder_cleans_it(tmp_path):
    (tmp_path / name_of(dead_process())).write_bytes(b"x")
    replace_file(tmp_path / "file", b"content")
    assert os.listdir(tmp_path) == ["file"]


def test_a_folder_that_cannot_be_read_is_left_alone(tmp_path, monkeypatch):
    assert clean_leftovers(tmp_path / "none") == 0
    (tmp_path / name_of(1)).write_bytes(b"x")
    make_old(tmp_path / os.listdir(tmp_path)[0])
    monkeypatch.setattr(whole_files.os, "unlink", _refuse)
    assert clean_leftovers(tmp_path) == 0


def _refuse(path: str) -> None:
    raise PermissionError


@pytest.mark.parametrize(
    ("arguments", "interpreter", "wanted"),
    [
        (["-m"], ["python", "-m", "circurve", "fit"], True),
        (["-m", "fit"], ["python", "-X", "dev", "-m", "circurve", "fit"], True),
        (["/usr/bin/circurve", "fit"], ["python", "/usr/bin/circurve", "fit"], True),
        (["circurve.exe"], ["circurve.exe"], True),
        (["-m"], ["python", "-m", "pytest", "circurve"], False),
        (["train.py"], ["python", "train.py"], False),
        ([""], ["python"], False),
        ([], ["python"], False),
        (["-c"], ["python", "-c", "import circurve"], False),
    ],
)
def test_the_command_is_told_from_programs_that_import_circurve(arguments, interpreter, wanted):
    assert is_command(arguments, interpreter) == wanted
