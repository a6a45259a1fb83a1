"""What files can do to a terminal, to a spreadsheet and to memory through the program: nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from circurve import bounds
from circurve.cli import app
from circurve.cli.files import csv_text
from circurve.cli.safe_text import visible
from hostile_files import one_coin, select_chain

NAMES = ["=HYPERLINK(0)", "\x1b[31mred", "plain", "@sum", "[bold]rich[/bold]"]


def call(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def table(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    words = np.array(["+cmd|' /C calc'!A0", "-1", "ok"])
    lines = [",".join([*map(str, rng.integers(0, 2, 4)), str(words[rng.integers(0, 3)])]) for _ in range(60)]
    path = folder / "t.csv"
    path.write_text("\n".join([",".join(NAMES), *lines]) + "\n")
    return path


def test_column_names_reach_no_terminal_as_they_are(folder: Path) -> None:
    table(folder)
    for words in (
        ["data", "info", "t.csv"],
        ["fit", "t.csv", "--units", "2", "--epochs", "1", "--out", "m"],
        ["info", "m"],
    ):
        done = call(*words)
        assert done.exit_code == 0, done.output
        assert "\x1b" not in done.output
    assert "\\x1b[31mred" in call("info", "m").stdout
    assert "[bold]rich[/bold]" in call("info", "m").stdout
    wrong = call("query", "m", "\x1b[2Jno | plain=1")
    assert wrong.exit_code == 2
    assert "\x1b" not in wrong.stderr


def test_no_cell_of_a_csv_is_a_formula(folder: Path) -> None:
    table(folder)
    assert call("fit", "t.csv", "--units", "2", "--epochs", "1", "--out", "m").exit_code == 0
    drawn = call("sample", "m", "-n", "30")
    heads, *rows = drawn.stdout.splitlines()
    assert heads.split(",") == ["'=HYPERLINK(0)", "\x1b[31mred", "plain", "'@sum", "[bold]rich[/bold]"]
    assert all(not row.split(",")[-1].startswith(("=", "+", "@")) for row in rows)
    assert {row.split(",")[-1] for row in rows} >= {"ok", "-1"}
    assert "got an apostrophe in front" in drawn.stderr
    answer = call("query", "m", "[bold]rich[/bold]", "--csv")
    assert any(line.startswith("'+cmd") for line in answer.stdout.splitlines())


def test_numbers_and_usual_text_stay_as_they_are() -> None:
    rows = [["a-b", -1, -2.5, "-2.5", "+3", None, "2020-01-01"]]
    assert csv_text(list("abcdefg"), rows) == "a,b,c,d,e,f,g\na-b,-1,-2.5,-2.5,+3,,2020-01-01\n"


def test_control_characters_are_written_out() -> None:
    assert visible("a\x1b]0;t\x07\u202eb\r\tc\nd") == "a\\x1b]0;t\\x07\\u202eb\\r\\tc\nd"


def test_a_file_that_needs_too_much_says_what_to_type(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "FREE_BYTES", 1 << 20)
    Path("m").write_bytes(select_chain(1_000, 100))
    refused = call("info", "m")
    assert refused.exit_code == 2
    assert refused.stderr.endswith("more than 10 times its size; if you trust the file, pass --trust\n")
    assert call("info", "m", "--trust").exit_code == 0
    rows = np.zeros((200_000, 3), np.uint8)
    np.savez_compressed("x.npz", train=rows)
    assert call("data", "info", "x.npz").stderr.endswith("if you trust the file, pass --trust\n")
    assert call("data", "info", "x.npz", "--trust").exit_code == 0


@pytest.mark.parametrize("training", ["[" * 100_000, "1" + "0" * 5_000, '{"seed":' + "1" * 4_000 + "}"])
def test_a_hostile_text_about_training_is_shown_or_left_out(folder: Path, training: str) -> None:
    Path("m").write_bytes(one_coin())
    from circurve.model import load
    from circurve.persistence import read_metadata

    load("m").save("m", {"training": training})
    assert read_metadata("m") == {"training": training}
    done = call("info", "m", "--json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)["training"]
    assert found is None or len(str(found["seed"])) == 4_000
    assert os.path.getsize("m") > 1_000
