"""`load_data`: a data set by its name, or a file by its path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from circurve.data import load_data
from circurve.errors import DataError

Write = Callable[[str, str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def make(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return make


class TestLoadData:
    def test_a_name_is_looked_up(self, tmp_path: Path) -> None:
        assert load_data("digits").name == "digits"
        for split in ("train", "valid", "test"):
            (tmp_path / f"tiny.{split}.data").write_text("0,1\n")
        assert load_data("tiny", data_dir=tmp_path).train.tolist() == [[0, 1]]

    def test_a_file_with_one_table_gives_training_rows_only(self, write: Write) -> None:
        data = load_data(str(write("mine.csv", "a,b\n1,0\n")))
        assert (data.name, data.columns) == ("mine", ("a", "b"))
        assert data.train.tolist() == [[1, 0]]
        assert data.valid is None
        assert data.test is None
        assert repr(data) == "<Dataset mine: 2 variables, rows: 1 train>"

    def test_a_file_with_splits_keeps_them(self, tmp_path: Path) -> None:
        path = tmp_path / "x.npz"
        np.savez(path, train=np.eye(2), valid=np.eye(2))
        assert load_data(path).valid is not None

    def test_the_header_option_is_passed_on(self, write: Write) -> None:
        assert load_data(write("x.csv", "0,1\n1,1\n"), header=True).columns == ("0", "1")

    def test_anything_with_a_suffix_or_a_folder_is_a_file(self, tmp_path: Path) -> None:
        for path in ("gone.csv", "gone.parquet", f"{tmp_path}/gone.csv"):
            with pytest.raises(DataError, match=r"no such file|unknown kind of file"):
                load_data(path)

    def test_known_names_win_over_files_of_the_same_name(self, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(write("digits", "x").parent)
        assert load_data("digits").name == "digits"

    def test_files_without_a_suffix_and_folders_are_told_apart_from_names(
        self, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(write("mine", "x").parent)
        with pytest.raises(DataError, match="mine: unknown kind of file ''"):
            load_data("mine")
        folder = tmp_path / "tiny"
        folder.mkdir()
        with pytest.raises(DataError, match="tiny: the folder contains no data set"):
            load_data("tiny")
        for split in ("train", "valid", "test"):
            (folder / f"tiny.{split}.data").write_text("0,1\n")
        assert load_data("tiny", data_dir=".").name == "tiny"
        assert load_data("tiny").test is not None

    @pytest.mark.parametrize("name", ["nothing", ""])
    def test_unknown_names_are_refused(self, name: str) -> None:
        with pytest.raises(DataError, match=f"unknown data set '{name}'"):
            load_data(name)
