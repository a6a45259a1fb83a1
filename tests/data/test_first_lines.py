"""First lines of text files: rows, or names of columns."""

from __future__ import annotations

import warnings
from contextlib import suppress
from pathlib import Path

import pytest

from circurve.data.text import read_text
from circurve.errors import CircurveWarning, DataError


@pytest.mark.parametrize("text", ["0,1,2\n1,0,1\n", ",0,1,2\n0,1,0,1\n1,1,1,0\n", "0;1;2;3\r\n.5;1;0;1\r\n"])
def test_a_first_line_of_indices_is_pointed_out(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(text, newline="")
    with pytest.warns(CircurveWarning, match=r"line 1, which is ,?0.1.2.* is read as a row.* pass header=True$"):
        rows = len(read_text(path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(read_text(path, header=True)) == rows - 1
        assert len(read_text(path, header=False)) == rows


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("text", ["0,1\n1,0\n", "0,1,1\n1,0,1\n", "0 1 3\n", "0\n1\n2\n", "0", "", "1,2,3\n"])
def test_other_first_lines_are_read_without_a_word(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(text)
    with suppress(DataError):
        read_text(path)


def test_a_first_line_of_indices_is_pointed_out_in_a_large_file(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(",".join(map(str, range(12))) + "\n" + "0.5,1,0,1,0,1,0,1,1,0,1,0\n" * 5_000)
    with pytest.warns(CircurveWarning, match=r"line 1, which is 0,1,2,\.\.\., is read as a row") as told:
        read_text(path)
    assert len(told) == 1
