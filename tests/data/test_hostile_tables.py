"""Data files that expand far beyond their size are refused before they do, and taken where they are trusted."""

from __future__ import annotations

import gzip
import io
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather, ipc, parquet

from circurve import bounds
from circurve.bounds import inflate, readable_bytes
from circurve.data import Dataset, Table, frame_bounds, load_data
from circurve.data import text as text_reader
from circurve.data.files import read_table
from circurve.errors import DataError
from hostile_files import many_arrays

FREE = 1 << 20
"""What files may take in these tests without a look at their ratio: bombs can then be small."""


@pytest.fixture(autouse=True)
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "FREE_BYTES", FREE)


def npz(**arrays: np.ndarray) -> bytes:
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    return content.getvalue()


def npy(array: np.ndarray) -> bytes:
    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()


def arrow(table: pa.Table, compression: str | None = "zstd", stream: bool = False) -> bytes:
    sink = pa.BufferOutputStream()
    options = ipc.IpcWriteOptions(compression=compression)
    new = ipc.new_stream if stream else ipc.new_file
    with new(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def parquet_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink)
    return bytes(sink.getvalue().to_pybytes())


ZEROS = np.zeros((1_000_000, 2), np.uint8)
COLUMNS = pa.table({"a": np.zeros(1_000_000), "b": pa.array(["x"] * 1_000_000)})

BOMBS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "packed zeros": ("x.npz", lambda: npz(train=ZEROS)),
    "several packed arrays": ("x.npz", lambda: npz(train=ZEROS[:120_000], valid=ZEROS[:120_000], test=ZEROS[:120_000])),
    "packed digits": ("x.csv.gz", lambda: gzip.compress(b"1,0,1\n" * 500_000)),
    "packed blank lines": ("x.data.gz", lambda: gzip.compress(b"1,0\n" + b"\n" * 3_000_000)),
    "packed text": ("x.tsv.gz", lambda: gzip.compress(b"a\tb\n" + b"x\ty\n" * 250_000)),
    "a file in several members": ("x.csv.gz", lambda: gzip.compress(b"1,0,1\n" * 60_000) * 6),
    "repeated pages": ("x.parquet", lambda: parquet_bytes(COLUMNS)),
    "compressed buffers": ("x.arrow", lambda: arrow(COLUMNS)),
    "compressed buffers of lz4": ("x.feather", lambda: arrow(COLUMNS, "lz4")),
    "compressed buffers in a stream": ("x.arrow", lambda: arrow(COLUMNS, stream=True)),
    "rows without buffers": ("x.arrow", lambda: arrow(pa.table({"a": pa.nulls(1_000_000)}), None)),
    "a thousand columns of nothing": ("x.csv", lambda: b"," * 100_000 + b"\n" + b"," * 100_000 + b"\n"),
    "texts that are all different": ("x.csv", lambda: b"a,b\n" + b"".join(b"t%d,u\n" % k for k in range(20_000))),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_before_it_expands(tmp_path: Path, name: str) -> None:
    file, make = BOMBS[name]
    path, content = tmp_path / file, make()
    path.write_bytes(content)
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    try:
        with pytest.raises(DataError, match=r"if you trust the file, pass trust=True$") as caught:
            read_table(path)
        most = tracemalloc.get_traced_memory()[1] + pa.total_allocated_bytes() - before
    finally:
        tracemalloc.stop()
    assert str(caught.value).startswith(f"{path}: ")
    assert most < bounds.allowed_bytes(len(content)) + len(content) + 2 * bounds.CHUNK


@pytest.mark.parametrize("name", [name for name in BOMBS if "nothing" not in name and "blank" not in name])
def test_the_same_file_is_taken_where_it_is_trusted(tmp_path: Path, name: str) -> None:
    file, make = BOMBS[name]
    (tmp_path / file).write_bytes(make())
    data = load_data(tmp_path / file, trust=True)
    assert isinstance(data, Dataset)
    assert len(data.train) >= 20_000


def declared(shape: str, held: bytes) -> bytes:
    """An array with another shape in its header than the one it has."""
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + held


HEADERS = {
    "more rows than there are": (declared("(1000000000, 8)", bytes(64)), "declares 64,000,000,000 bytes"),
    "more than a number holds": (declared("(10**40, 8)", bytes(64)), "damaged"),
    "a negative number of rows": (declared("(-1, 8)", bytes(64)), "declares a negative size"),
    "a header without an end": (b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31), "its header has 2,147,483,650 bytes"),
    "no header": (b"PK", "damaged"),
}


@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_a_header_that_lies_is_refused(tmp_path: Path, name: str, suffix: str) -> None:
    content, message = HEADERS[name]
    if suffix == ".npz":
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("x.npy", content)
        content = packed.getvalue()
    (tmp_path / f"x{suffix}").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_table(tmp_path / f"x{suffix}")


def test_an_entry_longer_than_its_archive_says_is_not_read_to_its_end(tmp_path: Path) -> None:
    content = bytearray(npz(train=np.zeros((300_000, 8), np.uint8)))
    size = struct.pack("<I", 300_000 * 8 + 128)
    lie = struct.pack("<I", 4_128)
    while size in content:
        content[content.index(size) : content.index(size) + 4] = lie
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(DataError, match="declares 2,400,000 bytes, but only 4,000 follow"):
        read_table(tmp_path / "x.npz")


def test_what_fits_its_bound_is_read_as_before(tmp_path: Path) -> None:
    rows = np.arange(60).reshape(20, 3) % 5
    files = {
        "x.npz": npz(train=rows),
        "y.npy": npy(rows),
        "y.csv.gz": gzip.compress(b"".join(b"%d,%d,%d\n" % tuple(row) for row in rows)),
        "y.parquet": parquet_bytes(pa.table({name: rows[:, v] for v, name in enumerate("abc")})),
        "y.arrow": arrow(pa.table({name: rows[:, v] for v, name in enumerate("abc")})),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        found = read_table(tmp_path / name)
        table = found.train if isinstance(found, Dataset) else found
        np.testing.assert_array_equal(np.asarray(table), rows)


def test_text_in_a_parquet_file_is_read_once_for_each_different_value(tmp_path: Path) -> None:
    words = ["b", None, "a", "b", "c"] * 4
    table = pa.table({"w": words, "d": pa.array(words).dictionary_encode(), "n": range(20)})
    for name, content in {"x.parquet": parquet_bytes(table), "x.arrow": arrow(table)}.items():
        (tmp_path / name).write_bytes(content)
        found = read_table(tmp_path / name)
        assert isinstance(found, Table)
        assert found.codings is not None
        assert found.codings[0].categories == found.codings[1].categories == ("a", "b", "c")
        expected = np.array([1, np.nan, 0, 1, 2] * 4)
        np.testing.assert_array_equal(np.asarray(found)[:, :2], np.stack([expected, expected], axis=1))


def test_dictionaries_that_differ_from_batch_to_batch_are_joined(tmp_path: Path) -> None:
    parts = [pa.table({"w": pa.array(words).dictionary_encode()}) for words in (["b", "a"], ["c", "b"], ["a", "d"])]
    feather.write_feather(pa.concat_tables(parts), tmp_path / "x.feather")
    found = read_table(tmp_path / "x.feather")
    assert isinstance(found, Table)
    assert np.asarray(found)[:, 0].tolist() == [1, 0, 2, 1, 0, 3]


def test_a_footer_that_points_outside_is_refused(tmp_path: Path) -> None:
    content = arrow(COLUMNS.slice(0, 10))
    for end in (
        content[:-10] + struct.pack("<i", 2**30) + b"ARROW1",
        content[:-10] + struct.pack("<i", -5) + b"ARROW1",
    ):
        (tmp_path / "x.arrow").write_bytes(end)
        with pytest.raises(DataError, match="damaged: it has no footer"):
            read_table(tmp_path / "x.arrow")


def test_a_packed_file_comes_back_whole_and_damage_is_named(tmp_path: Path) -> None:
    content = np.random.default_rng(0).bytes(3 << 20)
    packed = gzip.compress(content[: 1 << 20]) + gzip.compress(content[1 << 20 :]) + b"\0" * 16
    assert inflate(packed, False, DataError) == content
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(b"1,2\n")[:-4])
    with pytest.raises(DataError, match="damaged: it is cut off: the end of its content is missing"):
        read_table(tmp_path / "x.csv.gz")


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (364, "364 bytes"),
        (1_600_000, "1.6 MB"),
        (999_960, "1.0 MB"),
        (2_100_000_000, "2.1 GB"),
        (4 << 40, "4,398.0 GB"),
    ],
)
def test_sizes_are_written_as_people_say_them(count: int, expected: str) -> None:
    assert readable_bytes(count) == expected


def test_bytes_that_are_not_text_far_down_in_a_file_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b"a,b\n" + b"x,y\n" * 20_000 + b"\xff,z\n")
    with pytest.raises(DataError, match="the file is not UTF-8 text"):
        read_table(path, trust=True)


def test_an_archive_of_very_many_arrays_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(many_arrays(13_000))
    with pytest.raises(DataError, match=r"its 13,000 arrays take 1.3 seconds to read; .* pass trust=True"):
        read_table(tmp_path / "x.npz")


def test_very_many_columns_of_text_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_bounds, "SECONDS_PER_TEXT_COLUMN", 0.1)
    monkeypatch.setattr(bounds, "FREE_BYTES", 256 << 20)
    texts = pa.table({f"c{k}": ["a", "b"] for k in range(11)})
    parquet.write_table(texts, tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"its 11 columns of text take 1.1 seconds to read; .* pass trust=True"):
        read_table(tmp_path / "x.parquet")
    assert read_table(tmp_path / "x.parquet", trust=True).shape == (2, 11)
    parquet.write_table(texts.select(range(10)), tmp_path / "x.parquet")
    assert read_table(tmp_path / "x.parquet").shape == (2, 10)


@pytest.mark.parametrize(("suffix", "part"), [("parquet", "row groups"), ("arrow", "record batches")])
def test_very_many_columns_and_parts_of_a_file_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, part: str
) -> None:
    prefix = "PARQUET_" if suffix == "parquet" else ""
    monkeypatch.setattr(frame_bounds, f"{prefix}SECONDS_PER_COLUMN", 0.04)
    monkeypatch.setattr(frame_bounds, f"{prefix}SECONDS_PER_CHUNK", 0.02)
    path = tmp_path / f"x.{suffix}"

    def write(columns: int, parts: int) -> None:
        table = pa.table({f"c{k}": np.arange(parts) for k in range(columns)})
        if suffix == "parquet":
            parquet.write_table(table, path, row_group_size=1)
        else:
            with ipc.new_file(path, table.schema) as writer:
                writer.write_table(table, max_chunksize=1)

    write(16, 1)
    assert read_table(path).shape == (1, 16)
    write(17, 1)
    with pytest.raises(DataError, match=r"its 17 columns take 1.0 seconds to read; .* pass trust=True"):
        read_table(path)
    write(2, 30)
    with pytest.raises(DataError, match=rf"its 2 columns in 30 {part} take 1.3 seconds to read; .* pass trust=True"):
        read_table(path)
    assert read_table(path, trust=True).shape == (30, 2)


def test_what_a_parquet_reader_holds_for_each_column_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "FREE_BYTES", 300_000)
    parquet.write_table(pa.table({f"c{k}": [1] for k in range(40)}), tmp_path / "x.parquet", compression="none")
    with pytest.raises(DataError, match="more than 10 times its size"):
        read_table(tmp_path / "x.parquet")


SLOW_TEXTS = {
    "rows": ("ROW", b"1,0x1f\n" * 20, "its 20 rows take 2.0 seconds"),
    "fields": ("FIELD", b"1,0x1f\n" * 20, "its 20 rows take 4.0 seconds"),
    "columns": ("COLUMN", b'1, "x"\n' * 20, "its 2 columns take"),
    "columns of text": ("TEXT_COLUMN", b'1, "x"\n' * 20, "its 2 columns take"),
    "texts": ("TEXT", b"".join(b"1,a%d\n" % k for k in range(20)), "its 20 different texts take 2.0 seconds"),
}


@pytest.mark.parametrize("name", SLOW_TEXTS)
def test_texts_that_take_too_long_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    constant, content, message = SLOW_TEXTS[name]
    for path, raw in ((tmp_path / "x.csv", content), (tmp_path / "x.csv.gz", gzip.compress(content))):
        path.write_bytes(raw)
        expected = read_table(path, header=False).shape
        with monkeypatch.context() as patch:
            patch.setattr(text_reader, f"SECONDS_PER_{constant}", 2.0 if "COLUMN" in constant else 0.1)
            with pytest.raises(DataError, match=f"{message}.* to read; .* pass trust=True"):
                read_table(path, header=False)
            assert read_table(path, header=False, trust=True).shape == expected


def test_a_parquet_footer_that_takes_too_much_is_refused_before_it_is_read(tmp_path, monkeypatch):
    parquet.write_table(pa.table({f"c{v}": [0, 1] * 50 for v in range(40)}), tmp_path / "x.parquet", row_group_size=2)
    monkeypatch.setattr(bounds, "FREE_BYTES", 1)
    monkeypatch.setattr(frame_bounds, "FOOTER_COPIES", 100)
    monkeypatch.setattr(parquet, "ParquetFile", None)
    with pytest.raises(DataError, match=r"x\.parquet: a file of .* that needs .*; if you trust the file"):
        read_table(tmp_path / "x.parquet")
