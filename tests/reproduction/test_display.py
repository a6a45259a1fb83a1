from __future__ import annotations

import io

import pytest
from rich.console import Console

from circurve.learning import progress
from circurve.learning.loop import EpochEnd
from circurve.learning.progress import LogLines, time_left
from circurve.reproduction.display import Display
from circurve.reproduction.plan import describe_environment, portable_command


def walk(display: Display) -> None:
    """Two fleets of two epochs."""
    with display:
        for name in ("first", "second"):
            display.start(name, 3, 2)
            for epoch in (1, 2):
                display.epoch(EpochEnd(epoch, 2, {}, lambda run: pytest.fail("not asked for")))
            display.measure(1, 3)
            display.finish()


@pytest.mark.parametrize("shown", [None, False])
def test_short_work_is_quiet_where_nobody_looks(capsys: pytest.CaptureFixture[str], shown: bool | None) -> None:
    walk(Display("study", [1.0, 2.0], 0, shown))
    assert capsys.readouterr() == ("", "")


def test_long_work_writes_lines_to_a_log(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000, 40))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))
    walk(Display("study", [1.0, 2.0], 0))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("circurve: study, fleet 1 of 2: first, 0 runs, epoch 2 of 2, about ")
    assert len(lines) == 3
    assert "fleet 2 of 2: second" in lines[-1]


def test_lines_become_rare_when_work_takes_days(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    lines = LogLines()
    for minute in range(3 * 24 * 60):
        now = 60.0 * minute
        lines.tell(f"minute {minute}", 0.5)
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("circurve: minute 1, about 60 s left")
    assert 50 < len(told) < 200


def test_it_shows_fleets_and_epochs() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    walk(Display("study", [1.0, 2.0], 5, shown=True, console=console))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    for part in ("study", "second", "fleet 2 of 2", "measuring curvature, run 1 of 3"):
        assert part in shown


def test_nothing_to_do_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Display("study", [], 14, shown=True):
        pass
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("elapsed", "share", "text"),
    [
        (10.0, 0.0, ""),
        (10.0, 0.5, ", about 10 s left"),
        (100.0, 0.25, ", about 5 min left"),
        (3600.0, 0.25, ", about 3.0 h left"),
        (10.0, 1.0, ", about 0 s left"),
    ],
)
def test_time_left_is_in_proportion(elapsed: float, share: float, text: str) -> None:
    assert time_left(elapsed, share) == text


def test_a_command_is_kept_without_the_machines_paths() -> None:
    words = ["circurve", "reproduce", "table-b", "--data-dir", "/home/someone/debd", "--out", "here/out"]
    assert portable_command(words) == "circurve reproduce table-b --data-dir debd --out here/out"


def test_the_environment_names_versions_and_hardware() -> None:
    found = describe_environment("a command", "cpu")
    assert found["command"] == "a command"
    assert "thread" in found["hardware"]
    assert all(found[name] for name in ("version", "torch", "python"))
