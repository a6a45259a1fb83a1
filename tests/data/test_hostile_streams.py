"""Files to be streamed whose metadata ask for more than they may take are refused before any block is read."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
from pyarrow import ipc, parquet  # noqa: E402

from circurve import bounds  # noqa: E402
from circurve.data import infer_schema, load_data, open_stream  # noqa: E402
from circurve.data.readers import ArrowReader, ParquetReader  # noqa: E402
from circurve.errors import DataError  # noqa: E402

FREE = 1 << 20
"""What files may take in these tests without a look at their ratio: bombs can then be small."""

ZEROS = pa.table({"a": np.zeros(200_000), "b": np.zeros(200_000)})
LONG = pa.table({"a": pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), ["x" * 1_000_000, "y" * 1_000_000])})


@pytest.fixture(autouse=True)
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "FREE_BYTES", FREE)
    monkeypatch.setattr("circurve.data.readers.BLOCK_ROWS", 1000)


def write_arrow(path: Path, table: pa.Table, rows: int | None = None) -> None:
    with ipc.new_file(str(path), table.schema, options=ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table, rows)


BOMBS: dict[str, Callable[[Path], None]] = {
    "one row group.parquet": lambda path: parquet.write_table(ZEROS, path),
    "many row groups.parquet": lambda path: parquet.write_table(ZEROS, path, row_group_size=20_000),
    "one record batch.arrow": lambda path: write_arrow(path, ZEROS),
    "many record batches.feather": lambda path: write_arrow(path, ZEROS, 20_000),
    "a dictionary.arrow": lambda path: write_arrow(path, LONG),
    "rows of nothing.arrow": lambda path: write_arrow(path, pa.table({"a": pa.nulls(1_000_000)})),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_before_a_block_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    BOMBS[name](tmp_path / name)
    for reader in (ParquetReader, ArrowReader):
        monkeypatch.setattr(reader, "_frame", lambda *_: pytest.fail("a block was read"))
    before = pa.total_allocated_bytes()
    with pytest.raises(DataError, match=r"if you trust the file, pass trust=True$") as caught:
        open_stream(tmp_path / name)
    assert pa.total_allocated_bytes() - before < FREE
    assert str(caught.value).startswith(f"{tmp_path / name}: a file of ")
    with pytest.raises(DataError, match=r"if you trust the file, pass trust=True to open_stream$"):
        infer_schema(tmp_path / name)


@pytest.mark.parametrize("name", BOMBS)
def test_the_same_file_is_taken_where_it_is_trusted(tmp_path: Path, name: str) -> None:
    BOMBS[name](tmp_path / name)
    stream = open_stream(tmp_path / name, trust=True)
    assert sum(len(piece) for piece in stream.pieces()) == len(stream) > 0


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_files_that_fit_block_by_block_are_taken(tmp_path: Path, suffix: str) -> None:
    """As a whole this file is refused; a stream has a few blocks of it in memory."""
    path, values = tmp_path / f"x.{suffix}", np.random.default_rng(0).integers(0, 2, (40_000, 16), dtype=np.uint8)
    table = pa.table({f"c{v}": values[:, v] for v in range(16)})
    if suffix == "parquet":
        parquet.write_table(table, path, row_group_size=1000)
    else:
        write_arrow(path, table, 1000)
    with pytest.raises(DataError, match="more than 10 times its size"):
        load_data(path)
    stream = open_stream(path)
    np.testing.assert_array_equal(np.concatenate([np.asarray(piece) for piece in stream.pieces()]), values)


def npy(shape: str, held: bytes) -> bytes:
    """An array with any shape in its header."""
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + held


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (npy("(1000000000, 8)", bytes(64)), "declares 64,000,000,000 bytes, but only 64 follow"),
        (npy("(2, 8)", bytes(64)), "declares 128 bytes, but only 64 follow"),
        (npy("(-1, 8)", bytes(64)), "cannot be read as a stream"),
        (npy("(8,)", bytes(64)), "expected rows x columns"),
        (b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31), "its header has 2,147,483,650 bytes"),
        (b"", "does not start like a numpy array"),
    ],
)
def test_an_array_file_that_lies_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(DataError, match=message):
        open_stream(tmp_path / "x.npy")


def test_an_array_file_is_mapped(tmp_path: Path) -> None:
    values = np.arange(600).reshape(200, 3) % 7
    np.save(tmp_path / "x.npy", values)
    stream = open_stream(str(tmp_path / "x.npy"))
    assert isinstance(stream.reader.array, np.memmap)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(np.asarray(stream), values)
    with pytest.raises(DataError, match=r"nowhere\.npy: no such file"):
        open_stream(tmp_path / "nowhere.npy")


def test_row_groups_that_hold_other_rows_than_they_declare_are_an_error(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"a": np.arange(1000)}), tmp_path / "x.parquet")
    content = bytearray((tmp_path / "x.parquet").read_bytes())
    start = len(content) - 8 - struct.unpack("<I", content[-8:-4])[0]
    thousand, other = b"\xd0\x0f", b"\xda\x0f"  # zigzag numbers of variable length: 1000 and 1005
    assert content.count(thousand, start) >= 2
    (tmp_path / "x.parquet").write_bytes(content[:start] + content[start:].replace(thousand, other))
    with pytest.raises(DataError, match="damaged"):
        list(open_stream(tmp_path / "x.parquet").pieces())


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow"])
def test_damaged_files_are_named(tmp_path: Path, name: str) -> None:
    table = pa.table({"a": np.arange(100), "w": pa.array(["x", "y"] * 50).dictionary_encode()})
    (parquet.write_table if name.endswith("parquet") else lambda t, p: write_arrow(p, t))(table, tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    for content in (whole[: len(whole) // 2], b"0,1\n", whole[:8], b""):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=f"{name}: cannot be read as a stream: "):
            open_stream(tmp_path / name)


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_two_columns_of_one_name_are_named(tmp_path: Path, ending: str) -> None:
    schema = pa.schema([("a", pa.int64()), ("d", pa.int64()), ("d", pa.int64())])
    frame = pa.Table.from_arrays([pa.array([0, 1])] * 3, schema=schema)
    path = tmp_path / f"x.{ending}"
    if ending == "parquet":
        parquet.write_table(frame, path)
    else:
        with pa.OSFile(str(path), "wb") as file, ipc.new_file(file, schema) as writer:
            writer.write_table(frame)
    with pytest.raises(DataError, match=rf"x\.{ending}: two columns have the name 'd'; rename one of them"):
        open_stream(path)


def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.feather"
    with pa.OSFile(str(path), "wb") as file, ipc.new_file(file, pa.schema([("name", pa.int64())])) as writer:
        writer.write_table(pa.table({"name": [0, 1]}))
    path.write_bytes(path.read_bytes().replace(b"name", b"na\xffe"))
    with pytest.raises(DataError, match=r"x\.feather: cannot be read as a stream: 'utf-8' codec"):
        open_stream(path)
