"""Data files of every kind, whole and broken."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from circurve.data import Dataset, Table, read_table
from circurve.data.text import digit_grid
from circurve.errors import DataError
from circurve.schema import Coding

Write = Callable[[str, str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def make(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return make


def table(path: Path, header: bool | None = None) -> Table:
    found = read_table(path, header)
    assert isinstance(found, Table)
    return found


def refusal(path: Path | str, header: bool | None = None) -> str:
    with pytest.raises(DataError) as caught:
        read_table(path, header)
    message = str(caught.value)
    assert "\n" not in message
    return message


class TestDigitFiles:
    @pytest.mark.parametrize("text", ["0,1,2\n3,4,9\n", "0,1,2\n3,4,9", "0 1 2\r\n3 4 9\r\n\r\n", "0;1;2\n3;4;9\n\n"])
    def test_single_digits_are_read_by_their_places(self, text: str) -> None:
        grid = digit_grid(text.encode())
        assert grid is not None
        assert grid.dtype == np.uint8
        assert grid.tolist() == [[0, 1, 2], [3, 4, 9]]

    def test_single_columns_and_single_values_are_read(self) -> None:
        assert digit_grid(b"0\n1\n1").tolist() == [[0], [1], [1]]  # type: ignore[union-attr]
        assert digit_grid(b"7").tolist() == [[7]]  # type: ignore[union-attr]

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "\n",
            "10,1\n",
            "0,1\n0\n",
            "0,1\n0,1,1\n",
            "0,1;1\n",
            "a,b\n",
            "1.5\n",
            "0,1\n,,1\n",
            "-1,1\n",
            "0,1\n0,/\n",
        ],
    )
    def test_any_other_text_is_left_to_the_general_reader(self, text: str) -> None:
        assert digit_grid(text.encode()) is None

    def test_thirty_megabytes_take_two_seconds_at_most(self, tmp_path: Path) -> None:
        values = np.random.default_rng(0).integers(0, 2, (150_000, 100), dtype=np.uint8)
        raw = np.full((150_000, 200), ord(","), dtype=np.uint8)
        raw[:, ::2] = values + ord("0")
        raw[:, -1] = ord("\n")
        path = tmp_path / "large.data"
        path.write_bytes(raw.tobytes())
        start = time.process_time()
        read = np.asarray(table(path))
        assert time.process_time() - start < 2  # about 0.05 on an idle machine
        np.testing.assert_array_equal(read, values)


class TestText:
    @pytest.mark.parametrize("mark", [",", ";", "\t", " ", ", ", "   "])
    @pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
    def test_separators_and_line_endings_are_recognised(self, write: Write, mark: str, ending: str) -> None:
        rows = [["a", "b", "c"], ["1.5", "-2", "3e2"], ["0", "10", "7"]]
        matrix = table(write("x.csv", ending.join(mark.join(row) for row in rows)))
        assert matrix.columns == ("a", "b", "c")
        np.testing.assert_array_equal(np.asarray(matrix), [[1.5, -2, 300], [0, 10, 7]])

    def test_without_a_header_the_first_row_is_data(self, write: Write) -> None:
        matrix = table(write("x.csv", "1.5,2\n3,4\n"))
        assert matrix.columns is None
        np.testing.assert_array_equal(np.asarray(matrix), [[1.5, 2], [3, 4]])

    def test_the_marks_of_missing_values(self, write: Write) -> None:
        text = "a,b,c,d,e,f,g,h\n1,,NA,NaN,?,null, n/a ,None\n2,2,2,2,2,2,2,2\n"
        values = np.asarray(table(write("x.csv", text)))
        assert np.isnan(values[0, 1:]).all()
        np.testing.assert_array_equal(values[1], [2] * 8)

    @pytest.mark.parametrize(
        ("text", "dtype"),
        [("10,0", "uint8"), ("-1,0", "int16"), ("40000,0", "int32"), ("3000000000,0", "int64"), ("1.5,0", "float64")],
    )
    def test_whole_numbers_take_the_smallest_type(self, write: Write, text: str, dtype: str) -> None:
        values = np.asarray(table(write("x.csv", text)))
        assert values.dtype == dtype
        assert values.tolist() == [[float(field) for field in text.split(",")]]

    def test_whole_numbers_with_gaps_are_floats(self, write: Write) -> None:
        assert np.asarray(table(write("x.csv", "1,\n0,1\n"))).dtype == np.float64

    def test_digits_below_a_header_are_read(self, write: Write) -> None:
        matrix = table(write("x.csv", b'\xef\xbb\xbf"my first", second\n0,1\n1,1\n'))
        assert matrix.columns == ("my first", "second")
        assert np.asarray(matrix).dtype == np.uint8
        assert np.asarray(matrix).tolist() == [[0, 1], [1, 1]]

    def test_quoted_names_may_hold_separators_and_line_ends(self, write: Write) -> None:
        matrix = table(write("x.csv", '"a, b","c\nd"\n1,2\n3,4\n'))
        assert matrix.columns == ("a, b", "c\nd")
        assert np.asarray(matrix).tolist() == [[1, 2], [3, 4]]

    def test_a_single_column_with_a_name_of_two_words(self, write: Write) -> None:
        matrix = table(write("x.csv", "two words\n1\n22\n"))
        assert matrix.columns == ("two words",)
        assert np.asarray(matrix).tolist() == [[1], [22]]

    @pytest.mark.parametrize(
        ("text", "rows"),
        [
            ("a\tb\n1\t2\n3\t\n", [[1, 2], [3, None]]),
            ("a\tb\n\t1\n2\t\n", [[None, 1], [2, None]]),
            ("a\tb\tc\n1\t2\t3\n\t5\t\n", [[1, 2, 3], [None, 5, None]]),
            ("a\tb\r\n1\t\r\n\t\r\n", [[1, None], [None, None]]),
            ("\t1.5\n2.5\t\n", [[None, 1.5], [2.5, None]]),
            ("\t\n" * 30 + "1\t2\n", [[None, None]] * 30 + [[1, 2]]),
        ],
    )
    def test_empty_fields_at_the_edges_of_tabbed_lines(
        self, write: Write, text: str, rows: list[list[float | None]]
    ) -> None:
        matrix = table(write("x.tsv", text))
        np.testing.assert_array_equal(np.asarray(matrix), np.array(rows, dtype=float))
        assert matrix.columns == (("a", "b", "c")[: len(rows[0])] if text.startswith("a") else None)

    @pytest.mark.parametrize("mark", [",", ";", " "])
    def test_tabs_at_the_ends_of_other_lines_mean_nothing(self, write: Write, mark: str) -> None:
        rows = [["a", "b"], ["1", "2.5"], ["3", "4"]]
        matrix = table(write("x.csv", "".join(mark.join(row) + "\t\n" for row in rows)))
        assert matrix.columns == ("a", "b")
        assert np.asarray(matrix).tolist() == [[1, 2.5], [3, 4]]

    @pytest.mark.parametrize("header", ["a\n", ""])
    def test_quotes_around_nothing_are_a_missing_value_of_a_single_column(self, write: Write, header: str) -> None:
        matrix = table(write("x.csv", header + '1.5\n""\n\n  \n2.5\n""\n\n'))
        assert matrix.columns == (("a",) if header else None)
        np.testing.assert_array_equal(np.asarray(matrix), [[1.5], [np.nan], [2.5], [np.nan]])

    def test_a_column_that_pandas_wrote_comes_back(self, tmp_path: Path) -> None:
        column = pd.DataFrame({"a": [np.nan, 1.5, np.nan, np.nan, 2.5, np.nan]})
        for header in (True, False):
            column.to_csv(tmp_path / "x.csv", index=False, header=header)
            np.testing.assert_array_equal(np.asarray(table(tmp_path / "x.csv")), column.values)

    def test_quotes_around_nothing_are_a_blank_line_among_several_columns(self, write: Write) -> None:
        assert np.asarray(table(write("x.csv", 'a,b\n1,22\n""\n3,4\n'))).tolist() == [[1, 22], [3, 4]]

    def test_blank_lines_are_passed_over(self, write: Write) -> None:
        assert np.asarray(table(write("x.csv", "\n\n1,22\n\n3,4\n\n"))).tolist() == [[1, 22], [3, 4]]

    def test_the_caller_can_say_whether_there_is_a_header(self, write: Write) -> None:
        path = write("x.csv", "0,1\n1,1\n")
        assert np.asarray(table(path)).tolist() == [[0, 1], [1, 1]]
        named = table(path, header=True)
        assert named.columns == ("0", "1")
        assert np.asarray(named).tolist() == [[1, 1]]
        mixed = table(write("y.csv", "name,2024\n1,2\n"), header=True)
        assert mixed.columns == ("name", "2024")

    def test_data_files_hold_numbers_of_any_kind_without_a_header(self, write: Write) -> None:
        assert table(write("x.data", "10,2\n3,?\n")).columns is None
        message = refusal(write("y.data", "a,b\n1,2\n"))
        assert message.endswith(
            ":1: column 1 is numeric, but has the text 'a'; correct it or leave the field empty "
            "(if the first row contains the names of the columns, pass header=True)"
        )

    @given(st.lists(st.lists(st.floats(-1e12, 1e12), min_size=3, max_size=3), min_size=1, max_size=5))
    @settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_numbers_survive_the_way_through_a_file(self, write: Write, rows: list[list[float]]) -> None:
        path = write("x.csv", "\n".join(",".join(map(repr, row)) for row in rows))
        np.testing.assert_array_equal(np.asarray(table(path)), rows)


class TestBrokenText:
    def test_ragged_rows_name_the_line(self, write: Write) -> None:
        path = write("x.csv", "a,b,c\n1,2,3\n\n4,5\n")
        assert refusal(path) == f"{path}:4: expected 3 fields, found 2"
        path = write("y.data", "0,1\n0,1,1\n")
        assert refusal(path) == f"{path}:2: expected 2 fields, found 3"
        path = write("z.txt", "0 1 1\n0 1\n")
        assert refusal(path) == f"{path}:2: expected 3 fields, found 2"

    def test_text_names_line_and_column(self, write: Write) -> None:
        path = write("x.csv", "n,city\n1,2\n1, Rome\n")
        assert refusal(path) == (
            f"{path}:3: column 2 ('city') is numeric, but has the text 'Rome'; correct it or leave the field empty, "
            "or read the column as categories: pass types={'city': 'categorical'}"
        )
        found = read_table(path, categorical=["city"])
        assert found.codings == (Coding(), Coding("category", ("2", "Rome")))
        path = write("y.csv", "1,2\n1,2021_03\n")
        assert (
            refusal(path)
            == f"{path}:2: column 2 is numeric, but has the text '2021_03'; correct it or leave the field empty"
        )

    def test_a_first_row_of_names_and_numbers_asks_for_a_decision(self, write: Write) -> None:
        path = write("x.csv", "1,abc\n2,3\n")
        hint = "(if the first row contains the names of the columns, pass header=True)"
        assert (
            refusal(path)
            == f"{path}:1: column 2 is numeric, but has the text 'abc'; correct it or leave the field empty {hint}"
        )

    def test_infinities_name_line_and_column(self, write: Write) -> None:
        path = write("x.csv", "a,b\n1,2\n\n3,-inf\n")
        assert refusal(path) == f"{path}:4: column 2 ('b') is not finite (-inf)"

    @pytest.mark.parametrize("text", ["", "\n\n", "  \n", "\ufeff"])
    def test_empty_files(self, write: Write, text: str) -> None:
        path = write("x.csv", text)
        assert refusal(path) == f"{path}: the file is empty"

    def test_a_header_alone(self, write: Write) -> None:
        path = write("x.csv", "a,b\n")
        assert refusal(path) == f"{path}: there is a header row, but no data rows"

    def test_quotes_left_open(self, write: Write) -> None:
        path = write("x.csv", 'a,b\n1,"2\n3,4\n')
        assert refusal(path) == f"{path}:3: unexpected end of data"

    def test_bytes_that_are_no_text(self, write: Write) -> None:
        path = write("x.csv", b"\xff\xfe1,2")
        assert refusal(path) == f"{path}: the file is not UTF-8 text"


class TestArrays:
    def test_npy_gives_a_table(self, tmp_path: Path) -> None:
        path = tmp_path / "x.npy"
        values = np.asfortranarray(np.array([[0, 1], [1, 1], [0, 0]], dtype=">i2"))
        np.save(path, values)
        read = np.asarray(table(path))
        assert read.dtype == np.int16
        np.testing.assert_array_equal(read, values)

    @pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
    def test_npz_with_splits_gives_a_dataset(self, tmp_path: Path, save: Callable[..., None]) -> None:
        path = tmp_path / "mine.npz"
        save(path, train=np.eye(2), test=np.zeros((3, 2)))
        data = read_table(path)
        assert isinstance(data, Dataset)
        assert data.name == "mine"
        assert data.valid is None
        assert data.test is not None
        assert (data.train.shape, data.test.shape) == ((2, 2), (3, 2))

    def test_npz_with_one_array_gives_a_table(self, tmp_path: Path) -> None:
        path = tmp_path / "x.npz"
        np.savez(path, anything=np.eye(2))
        np.testing.assert_array_equal(np.asarray(table(path)), np.eye(2))

    def test_npz_with_other_arrays_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "x.npz"
        np.savez(path, train=np.eye(2), val=np.eye(2))
        expected = f"{path}: expected the arrays train, valid, test, or a single array, found train, val"
        assert refusal(path) == expected
        np.savez(path)
        assert refusal(path).endswith("found nothing")

    def test_wrong_values_name_file_and_array(self, tmp_path: Path) -> None:
        path = tmp_path / "x.npy"
        np.save(path, np.zeros(3))
        assert refusal(path).startswith(f"{path}: data has 1 dimension")
        path = tmp_path / "x.npz"
        np.savez(path, train=np.eye(2), valid=np.array([[np.inf, 0]]))
        assert refusal(path) == f"{path}: array 'valid': column 1, row 1: inf is not finite"
        np.savez(path, train=np.eye(2), valid=np.eye(3))
        assert refusal(path) == f"{path}: x: train has 2 columns, valid has 3"

    def test_pickled_objects_are_never_loaded(self, tmp_path: Path) -> None:
        for path, save in ((tmp_path / "x.npy", np.save), (tmp_path / "x.npz", np.savez)):
            save(path, np.array([[1, None]], dtype=object))  # type: ignore[operator]
            message = refusal(path)
            assert message.startswith(f"{path}: not a {path.suffix} file of numbers, or damaged: ")
            assert "Python objects, which are never loaded" in message

    @pytest.mark.parametrize("suffix", [".npy", ".npz"])
    def test_truncated_and_damaged_files(self, tmp_path: Path, suffix: str) -> None:
        path = tmp_path / f"x{suffix}"
        values = np.random.default_rng(0).random((20, 5))
        np.save(path, values) if suffix == ".npy" else np.savez_compressed(path, train=values, valid=values)
        whole = path.read_bytes()
        for length in range(1, len(whole) - 1, 37):
            path.write_bytes(whole[:length])
            assert refusal(path).startswith(f"{path}: not a {suffix} file of numbers, or damaged: ")
        path.write_bytes(b"")
        assert refusal(path) == f"{path}: the file is empty"
        path.write_bytes(b"0,1,0\n" * 50)
        assert refusal(path).startswith(f"{path}: not a {suffix} file of numbers, or damaged: ")

    @pytest.mark.parametrize("suffix", [".npy", ".npz"])
    def test_flipped_bytes_give_a_table_or_a_clear_error(self, tmp_path: Path, suffix: str) -> None:
        path = tmp_path / f"x{suffix}"
        values = np.ones((3, 2), dtype=np.int8)
        np.save(path, values) if suffix == ".npy" else np.savez(path, train=values)
        whole = path.read_bytes()
        for place in range(min(len(whole), 400)):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x15]) + whole[place + 1 :])
            with contextlib.suppress(DataError):
                read_table(path)


class TestUnreadable:
    @pytest.mark.parametrize("suffix", [".csv", ".data", ".npy", ".npz"])
    def test_missing_files_and_missing_folders(self, tmp_path: Path, suffix: str) -> None:
        for path in (tmp_path / f"gone{suffix}", tmp_path / "no" / f"gone{suffix}"):
            assert refusal(path) == f"{path}: no such file"

    @pytest.mark.parametrize("suffix", [".csv", ".npy", ".npz", ""])
    def test_directories(self, tmp_path: Path, suffix: str) -> None:
        path = tmp_path / f"folder{suffix}"
        path.mkdir()
        assert refusal(path) == f"{path}: is a directory, not a file"

    @pytest.mark.parametrize("name", ["x.csv", "x.npy"])
    def test_what_the_system_refuses_is_told_in_its_words(self, write: Write, name: str) -> None:
        path = write("file", "x") / name
        assert refusal(path) == f"{path}: cannot be read (Not a directory)"

    def test_unknown_suffixes_list_the_known(self, write: Write) -> None:
        path = write("x.xls", "1")
        known = ".csv, .tsv, .txt, .data, .parquet, .arrow, .feather, .npy, .npz, or .gz of a text file"
        assert refusal(path) == f"{path}: unknown kind of file '.xls'; use {known}"

    def test_suffixes_may_be_in_capitals(self, write: Write) -> None:
        assert np.asarray(table(write("X.CSV", "1,22\n"))).tolist() == [[1, 22]]


@pytest.mark.parametrize("text", ["x,y\n", "x,y", "x,y\n\n", "x,y\r\n"])
def test_pyarrow_never_sees_a_header_without_rows(tmp_path, monkeypatch, text):
    """It would refuse it while its threads start, and a process that ends then is sometimes aborted."""
    from pyarrow import csv

    def refuse(*_, **__):
        raise AssertionError("pyarrow was asked")

    monkeypatch.setattr(csv, "read_csv", refuse)
    path = tmp_path / "header.csv"
    path.write_text(text)
    with pytest.raises(DataError, match="there is a header row, but no data rows"):
        read_table(path)
