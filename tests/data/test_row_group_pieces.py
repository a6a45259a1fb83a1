"""A row group that does not fit a memory budget is read in pieces: the same rows, little memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import circurve as cc
from circurve.data import frame_bounds
from circurve.data.frame_bounds import parquet_parts
from circurve.errors import DataError, MemoryLimitError

pa = pytest.importorskip("pyarrow")
from pyarrow import feather, parquet  # noqa: E402

ROWS, GROUP, BUDGET = 180_000, 80_000, 8_000_000


@pytest.fixture(scope="module")
def values() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 4, (ROWS, 5))


@pytest.fixture(scope="module")
def path(values: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two row groups of 80,000 rows and one of 20,000."""
    found = tmp_path_factory.mktemp("groups") / "rows.parquet"
    table = pa.table({f"c{v}": values[:, v] for v in range(5)})
    parquet.write_table(table, found, row_group_size=GROUP, data_page_size=4096)
    return found


def test_pieces_hold_the_rows_of_the_file(path: Path, values: np.ndarray) -> None:
    whole, cut = cc.open_stream(path), cc.open_stream(path, memory_budget=BUDGET)
    assert len(whole.reader.sizes) == 3
    assert len(cut.reader.sizes) > 10
    assert sum(cut.reader.sizes) == ROWS
    np.testing.assert_array_equal(np.concatenate([np.asarray(piece) for piece in cut.pieces()]), values)


def test_any_piece_can_be_read_in_any_order(path: Path, values: np.ndarray) -> None:
    reader = cc.open_stream(path, memory_budget=BUDGET).reader
    starts = np.cumsum([0, *reader.sizes])
    for block in np.random.default_rng(1).permutation(len(reader.sizes))[:6]:
        np.testing.assert_array_equal(np.asarray(reader.read(int(block))), values[starts[block] : starts[block + 1]])


def test_an_epoch_goes_through_each_row_group_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = cc.open_stream(path, memory_budget=BUDGET)
    opened: list[int] = []
    iterate = parquet.ParquetFile.iter_batches

    def counted(self, *arguments, row_groups, **options):
        opened.extend(row_groups)
        return iterate(self, *arguments, row_groups=row_groups, **options)

    circuit = cc.mixture(cc.infer_schema(stream), components=2)
    monkeypatch.setattr(parquet.ParquetFile, "iter_batches", counted)
    result = cc.fit(circuit, stream, epochs=1, valid=False, batch_size=9000, progress=False, device="cpu")
    first = len(opened)
    assert np.isfinite(result.train_ll)
    opened.clear()
    cc.fit(circuit, stream, epochs=3, valid=False, batch_size=9000, progress=False, device="cpu")
    # two more epochs; there are three groups, and each of them may be opened twice in an epoch
    assert (len(opened) - first) / 2 <= 6


def test_a_training_from_pieces_sees_all_rows(path: Path, values: np.ndarray) -> None:
    stream = cc.open_stream(path, memory_budget=BUDGET)
    circuit = cc.fully_factorized(cc.infer_schema(stream))
    options = {"epochs": 1, "batch_size": None, "valid": False, "progress": False, "device": "cpu"}
    found = cc.fit(circuit, stream, **options).model
    wanted = cc.fit(circuit, {f"c{v}": values[:, v] for v in range(5)}, **options).model
    np.testing.assert_allclose(found.log_prob(values[:50]), wanted.log_prob(values[:50]), rtol=1e-5)


def test_a_budget_that_holds_no_row_is_refused(path: Path) -> None:
    with pytest.raises(MemoryLimitError, match=r"a row of .*memory_budget=500 is less: choose fewer columns"):
        cc.open_stream(path, memory_budget=500)


def test_a_record_batch_beyond_the_budget_is_refused_with_a_way_out(values: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "rows.arrow"
    feather.write_feather(pa.table({"a": values[:, 0]}), path, compression="uncompressed")
    with pytest.raises(MemoryLimitError, match=r"a block of .*chunksize=65536\), or a larger memory_budget"):
        cc.open_stream(path, memory_budget=100_000)
    assert len(cc.open_stream(path, memory_budget=3_000_000)) == ROWS


def test_a_huge_row_group_is_read_in_pieces_or_refused_with_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "zeros.parquet"
    zeros = pa.array(np.zeros(2_000_000, dtype=np.int64))
    parquet.write_table(pa.table({f"c{v}": zeros for v in range(8)}), path, row_group_size=2_000_000)
    with parquet.ParquetFile(path) as file:
        assert len(parquet_parts(file)) == 1
    cut = cc.open_stream(path)
    assert max(cut.reader.sizes) * 8 * 20 < 256 << 20
    assert sum(len(piece) for piece in cut.pieces()) == 2_000_000
    assert cc.infer_schema(path).families == (cc.Bernoulli(),) * 8
    monkeypatch.setattr(frame_bounds, "MAX_CUT_VALUES", 15_000_000)
    way_out = r"write_table\(table, path, row_group_size=65536\); if you trust the file, pass trust=True"
    with pytest.raises(
        DataError, match=rf"more than 10 times its size: write it with smaller row groups: .*{way_out}$"
    ):
        cc.open_stream(path)
    with pytest.raises(DataError, match=rf"{way_out} to open_stream$"):
        cc.infer_schema(path)
    stream = cc.open_stream(path, trust=True, memory_budget=20_000_000)
    assert len(stream) == 2_000_000
    assert max(stream.reader.sizes) < 20_000


def test_a_well_packed_file_that_is_too_large_as_a_table_names_the_stream_that_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "packed.parquet"
    parquet.write_table(pa.table({f"c{v}": np.arange(1_500_000) // 750_000 for v in range(10)}), path)
    advice = rf"open_stream\('{path}'\) reads it in pieces; if you trust the file, pass trust=True$"
    with pytest.raises(DataError, match=rf"more than 10 times its size; {advice}"):
        cc.load_data(path)
    stream = cc.open_stream(path)
    assert stream.shape == (1_500_000, 10)
    assert sum(float(np.asarray(piece)[:, 3].sum()) for piece in stream.pieces()) == 750_000
