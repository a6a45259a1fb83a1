"""Data frames in Parquet, Arrow and Feather files, and tables from standard input."""

import gzip
import io
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from pyarrow import feather, parquet

import circurve as cc
from circurve.data import read_table
from circurve.errors import DataError
from circurve.schema import Coding

pl = pytest.importorskip("polars")

PEOPLE, CODES = "age,city\n30.5,Rome\n,\n41,Oslo\n", [[30.5, 1], [np.nan, np.nan], [41, 0]]


def frame():
    return pl.DataFrame({"a": ["x", None, "y"], "n": [1, 2, None], "ok": [True, False, True]})


def test_standard_input_is_read(monkeypatch):
    packed, parquet_file = gzip.compress(PEOPLE.encode()), io.BytesIO()
    frame().write_parquet(parquet_file)
    for raw in (PEOPLE.encode(), packed):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(raw)))
        np.testing.assert_array_equal(read_table("-"), CODES)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(parquet_file.getvalue())))
    data = cc.load_data("-")
    assert (data.name, data.columns) == ("standard input", ("a", "n", "ok"))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"")))
    with pytest.raises(DataError, match="standard input: there is nothing to read"):
        read_table("-")


WRITERS = {
    "x.parquet": lambda path: parquet.write_table(frame().to_arrow(), path),
    "x.feather": lambda path: feather.write_feather(frame().to_arrow(), path),
    "x.arrow": lambda path: frame().write_ipc(path),
    "y.arrow": lambda path: frame().write_ipc_stream(path),
    "z.parquet": lambda path: frame().to_pandas().to_parquet(path),
}


@pytest.mark.parametrize("name", WRITERS)
def test_frames_in_files_are_read(tmp_path, name):
    WRITERS[name](tmp_path / name)
    table = read_table(tmp_path / name)
    np.testing.assert_array_equal(table, [[0, 1, 1], [np.nan, 2, 0], [1, np.nan, 1]])
    assert table.codings == (Coding("category", ("x", "y")), Coding(), Coding("boolean"))
    assert table.source.startswith("pyarrow ")


def test_polars_reads_where_pyarrow_is_not_installed(tmp_path, monkeypatch):
    frame().write_parquet(tmp_path / "x.parquet")
    monkeypatch.setattr("circurve.data.frame_files.find_spec", lambda name: None if name == "pyarrow" else name)
    assert read_table(tmp_path / "x.parquet").source.startswith("polars ")
    monkeypatch.setattr("circurve.data.frame_files.find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"x\.parquet: Parquet and Arrow files need pyarrow or polars"):
        read_table(tmp_path / "x.parquet")


@pytest.mark.parametrize("name", ["x.parquet", "x.feather", "x.arrow"])
def test_damaged_files_are_named(tmp_path, name):
    WRITERS[name](tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    for raw in (whole[: len(whole) // 2], b"0,1\n", whole[:8]):
        (tmp_path / name).write_bytes(raw)
        with pytest.raises(DataError, match=f"{name}: not a Parquet or Arrow file, or damaged: "):
            read_table(tmp_path / name)
