"""SIGKILL at random moments, resume, and end up with the records of an undisturbed study."""

from __future__ import annotations

import random
import signal
import time
from dataclasses import replace
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
from tiny_study import TINY, run, timeless, tiny_study

from circurve.reproduction import Study
from circurve.reproduction.records import FILE_NAME, read_records
from forked import CONTEXT

KILLS = 10
PATIENCE = 600


def _child(study: Study, out: Path, started: Event) -> None:
    started.set()
    run(study, out)


@pytest.mark.linux
def test_ten_kills_leave_the_records_of_an_undisturbed_study(tmp_path: Path) -> None:
    study = tiny_study(tmp_path, protocol=replace(TINY, seeds=(0, 1, 2)))
    whole = tmp_path / "whole"

    def start(out: Path) -> BaseProcess:
        started = CONTEXT.Event()
        child = CONTEXT.Process(target=_child, args=(study, out, started))
        child.start()
        assert started.wait(PATIENCE)
        return child

    child = start(whole)
    before = time.monotonic()
    child.join(PATIENCE)
    assert child.exitcode == 0
    duration = time.monotonic() - before

    expected = [timeless(record) for record in read_records(whole / FILE_NAME)]
    assert len(expected) == len({record["id"] for record in expected}) == 2 * 2 * 3 * 3

    def check_finished(out: Path) -> None:
        assert [timeless(record) for record in read_records(out / FILE_NAME)] == expected

    generator = random.Random(0)
    kills, folders = 0, 1
    out = tmp_path / "killed 1"
    while kills < KILLS:
        known = len(read_records(out / FILE_NAME))
        child = start(out)
        child.join(generator.uniform(0, duration / 2))
        child.kill()
        child.join(PATIENCE)
        assert len(read_records(out / FILE_NAME)) >= known
        if child.exitcode == -signal.SIGKILL:
            kills += 1
        else:  # done before its moment came
            check_finished(out)
            folders += 1
            out = tmp_path / f"killed {folders}"
    child = start(out)
    child.join(PATIENCE)
    assert child.exitcode == 0
    check_finished(out)
