"""Streams give the rows that a table in memory gives, whatever they are read from and in whatever order."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import circurve as cc
from circurve import CircurveWarning, DataError, OptionError, Stream, infer_schema, open_stream
from circurve.data import align, align_source, as_source, is_streamed
from circurve.data.section import section
from circurve.data.source import block_order

pa = pytest.importorskip("pyarrow")
from pyarrow import feather, parquet  # noqa: E402

RNG = np.random.default_rng(0)
FRAME = pa.table(
    {
        "n": RNG.integers(0, 3, 700),
        "real": RNG.normal(size=700),
        "city": pa.array([["Rome", "Oslo", None, "Bern"][i] for i in RNG.integers(0, 4, 700)]),
        "flag": pa.array([bool(b) for b in RNG.integers(0, 2, 700)]),
    }
)
NUMBERS = RNG.integers(0, 4, (700, 5)).astype(np.uint8)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr("circurve.data.readers.BLOCK_ROWS", 50)


def sources(folder: Path):
    """A table of numbers as every kind of stream."""
    np.save(folder / "x.npy", NUMBERS)
    mapped = np.load(folder / "x.npy", mmap_mode="r")
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.from_numpy(NUMBERS)), batch_size=64)
    return {
        "mapped": mapped,
        "blocks": open_stream(mapped, block_rows=90, buffer=2000),
        "loader": loader,
        "function": lambda: (NUMBERS[start : start + 33] for start in range(0, 700, 33)),
        "list": open_stream([NUMBERS[:300], NUMBERS[300:]]),
    }


def files(folder: Path):
    """A frame as every kind of file."""
    parquet.write_table(FRAME, folder / "a.parquet", row_group_size=90)
    feather.write_feather(FRAME, folder / "a.feather", chunksize=110)
    (folder / "parts").mkdir()
    for number in range(3):
        parquet.write_table(FRAME[number * 250 : (number + 1) * 250], folder / "parts" / f"{number}.parquet")
    return {name: folder / name for name in ("a.parquet", "a.feather", "parts")}


@pytest.mark.parametrize("kind", ["mapped", "blocks", "loader", "function", "list"])
def test_any_rows_of_numbers_are_those_in_memory(tmp_path, kind):
    source = sources(tmp_path)[kind]
    assert is_streamed(source)
    schema = infer_schema(source)
    assert schema == infer_schema(NUMBERS)
    stream, table = align_source(source, schema), align(NUMBERS, schema)
    for index in (torch.randint(700, (60,)), torch.randint(700, (3, 20)), torch.arange(100, 400)):
        found, places = stream.take(index)
        np.testing.assert_array_equal(np.asarray(found)[places.numpy()], np.asarray(table)[index.numpy()])
    part, span = stream.span(80, 260)
    np.testing.assert_array_equal(np.asarray(part)[span], NUMBERS[80:260])
    for rows in (
        slice(None),
        slice(None, None, 7),
        slice(33, 400, 5),
        slice(600, 20, -9),
        slice(5, 5),
        slice(690, 999),
    ):
        for columns in (slice(1, 3), [4, 0], np.array([2]), 3, slice(None)):
            for each in (stream, source if isinstance(source, Stream) else open_stream(source)):
                np.testing.assert_array_equal(each[rows, columns], NUMBERS[rows, columns])
    np.testing.assert_array_equal(np.concatenate([np.asarray(piece) for piece in stream.pieces(37)]), NUMBERS)


@pytest.mark.parametrize("name", ["a.parquet", "a.feather", "parts"])
def test_files_have_the_schema_and_the_rows_of_the_frame_in_memory(tmp_path, name):
    path = files(tmp_path)[name]
    schema = infer_schema(path)
    assert schema == infer_schema(FRAME)
    stream, table = align_source(open_stream(path, buffer=8000), schema), align(FRAME, schema)
    assert stream.known_values == table.known_values
    for _ in range(5):
        index = torch.randint(700, (2, 15))
        found, places = stream.take(index)
        np.testing.assert_array_equal(np.asarray(found)[places.numpy()], np.asarray(table)[index.numpy()])


@pytest.mark.parametrize("name", ["a.parquet", "a.feather"])
def test_columns_are_chosen_and_types_are_told(tmp_path, name):
    path = files(tmp_path)[name]
    stream = open_stream(path, columns=["city", "n"])
    assert stream.shape == (700, 2)
    schema = infer_schema(stream, types={"n": "poisson"})
    assert schema == infer_schema(FRAME.select(["city", "n"]), types={"n": "poisson"})
    dropped = infer_schema(path, types={"real": "drop"})
    assert dropped.ignored == ("real",)
    np.testing.assert_array_equal(
        np.concatenate([np.asarray(piece) for piece in align_source(path, dropped).pieces()]),
        np.asarray(align(FRAME, dropped)),
    )


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=8), window=st.integers(1, 30), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_the_order_of_blocks_has_every_row_once_and_mixes_within_windows_only(sizes, window, seed):
    order = block_order(sizes, window, torch.Generator().manual_seed(seed))
    assert sorted(order.tolist()) == list(range(sum(sizes)))
    ends = np.cumsum(sizes)
    blocks = np.searchsorted(ends, order.numpy(), side="right").tolist()
    open_rows, here = 0, set()
    for at, block in enumerate(blocks):  # a window closes when all rows of its blocks have come: it has enough of them
        here.add(block)
        if sum(sizes[one] for one in here) == at + 1 - open_rows:
            rest = len(blocks) - at - 1
            if at + 1 - open_rows >= window or not rest:
                assert not here & set(blocks[at + 1 :])
                open_rows, here = at + 1, set()
    assert not here


def test_a_choice_of_rows_keeps_to_its_blocks(tmp_path):
    np.save(tmp_path / "x.npy", NUMBERS)
    stream = open_stream(np.load(tmp_path / "x.npy", mmap_mode="r"), block_rows=90, buffer=1000)
    kept = np.sort(np.random.default_rng(1).permutation(700)[:300])
    part = align_source(stream, infer_schema(NUMBERS)).rows(kept)
    assert part.shape == (300, 5)
    order = part.order(torch.Generator().manual_seed(0))
    assert sorted(order.tolist()) == list(range(300))
    found, places = part.take(order[:80])
    np.testing.assert_array_equal(np.asarray(found)[places.numpy()], NUMBERS[kept[order[:80].numpy()]])
    blocks = kept[order.numpy()] // 90
    assert np.count_nonzero(np.diff(blocks)) < 250  # rows of few blocks at a time


def test_choices_of_rows_share_the_blocks_in_memory(tmp_path, monkeypatch):
    stream = align_source(files(tmp_path)["a.parquet"], infer_schema(FRAME))
    table = np.asarray(align(FRAME, infer_schema(FRAME)))
    read = []
    original = type(stream.reader).read
    monkeypatch.setattr(type(stream.reader), "read", lambda reader, n: read.append(n) or original(reader, n))
    even, odd = stream.rows(slice(0, None, 2)), stream.rows(slice(1, None, 2)).to("cpu")
    for _ in range(2):
        for part, start in ((even, 0), (odd, 1)):
            found, places = part.take(torch.arange(350))
            np.testing.assert_array_equal(np.asarray(found)[places.numpy()], table[start::2])
            np.testing.assert_array_equal(np.asarray(part.span(10, 90)[0]), table[start::2][10:90])
    assert sorted(read) == list(range(len(stream.reader.sizes)))  # each block once


def test_rows_that_are_not_checked_come_in_pieces_too(tmp_path):
    stream = open_stream(files(tmp_path)["a.parquet"], columns=["n", "real"])
    index = np.sort(np.random.default_rng(1).permutation(700)[:200])
    for rows in (index, index[::-1].copy(), np.isin(np.arange(700), index)):
        pieces = list(stream.rows(rows).pieces(40))
        assert max(map(len, pieces)) <= 40
        found = np.concatenate([np.asarray(piece) for piece in pieces])
        np.testing.assert_allclose(found, FRAME.select(["n", "real"]).to_pandas().to_numpy()[index])


def test_missing_values_are_marked_in_every_piece(tmp_path):
    rows = NUMBERS.astype(float)
    rows[650, 2] = np.nan
    np.save(tmp_path / "x.npy", rows)
    for source in (np.load(tmp_path / "x.npy", mmap_mode="r"), open_stream(rows, block_rows=90)):
        stream = align_source(source, infer_schema(rows))
        assert all(piece.observed is not None for piece in stream.pieces(100))
        assert stream.known_values == 3499
    marked = open_stream(NUMBERS.astype(int) - 1, missing=-1)
    assert align_source(marked, infer_schema(marked)).known_values == int((NUMBERS > 0).sum())


def test_a_misfit_is_named_by_its_row(tmp_path):
    rows = NUMBERS.copy()
    rows[612, 3] = 9
    schema = infer_schema(NUMBERS)
    with pytest.raises(DataError, match="column 4, row 613"):
        align_source(open_stream(rows), schema, unseen="error")
    with pytest.warns(CircurveWarning, match="9 was not seen"):
        stream = align_source(open_stream(rows), schema)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert bool(stream.span(600, 640)[0].impossible[12, 3])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (iter([NUMBERS]), "an iterator can be read only once"),
        ("table.csv", "only .parquet, .arrow, .feather, .npy files and folders"),
        ("nowhere.parquet", "no such file"),
        (lambda: iter(()), "has no rows"),
        ([(NUMBERS, NUMBERS)], "several tensors"),
    ],
)
def test_what_cannot_be_streamed_is_refused(source, message):
    with pytest.raises(DataError, match=message):
        as_source(open_stream(source))


def test_batches_that_change_between_passes_are_an_error():
    passes = []

    def batches():
        passes.append(1)
        return iter([NUMBERS[:10], NUMBERS[10 : 20 - len(passes)]])

    with pytest.raises(DataError, match=r"batch 2 has shape .* in the first pass it had another shape"):
        align_source(batches, infer_schema(NUMBERS))


def test_columns_are_for_files():
    with pytest.raises(OptionError, match="columns= is for Parquet and Arrow files"):
        open_stream(NUMBERS, columns=["a"])
    with pytest.raises(OptionError, match="missing= is given twice"):
        as_source(open_stream(NUMBERS, missing=1), missing=2)


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor, pd.DataFrame])
@pytest.mark.parametrize("cuts", [(300,), (350,), (1, 699)])
def test_a_list_of_tables_is_a_list_of_batches(kind, cuts):
    batches = [kind(part) for part in np.split(NUMBERS, cuts)]
    assert is_streamed(batches)
    circuit, table = cc.hclt(batches, units=2), kind(NUMBERS)
    same = cc.hclt(table, units=2)
    assert circuit.families == same.families
    options = {"epochs": 2, "valid": False, "batch_size": None, "seed": 0}
    model, wanted = cc.fit(circuit, batches, **options).model, cc.fit(circuit, table, **options).model
    np.testing.assert_allclose(model.log_prob(batches), np.asarray(wanted.log_prob(NUMBERS)), rtol=1e-4)
    with pytest.raises(DataError, match=f"data is a list of {len(batches)} tables, .* one table is needed: join them"):
        cc.Examples(batches)


def test_lists_of_rows_are_tables():
    for rows in (NUMBERS.tolist(), list(NUMBERS), [{"a": 1}, {"a": 2}], []):
        assert not is_streamed(rows)


def test_text_is_no_array_of_numbers(tmp_path):
    stream = open_stream(files(tmp_path)["parts"])
    with pytest.raises(DataError, match=r"parts is not all numbers: use `for piece in stream\.pieces\(\)`"):
        np.asarray(stream)
    bound = align_source(stream, infer_schema(FRAME))
    np.testing.assert_array_equal(np.asarray(bound), np.asarray(align(FRAME, infer_schema(FRAME))))


@pytest.mark.parametrize("kind", ["mapped", "blocks", "list", "a.parquet", "a.feather"])
def test_a_section_has_its_rows_and_reads_no_other_block(tmp_path, monkeypatch, kind):
    source = {**sources(tmp_path), **files(tmp_path)}[kind]
    whole = open_stream(source) if not isinstance(source, Stream) else source
    table = np.concatenate([np.asarray(piece) for piece in whole.pieces()])
    for start, stop in ((0, 700), (0, 1), (90, 180), (95, 301), (699, 700)):
        part = section(whole, start, stop)
        assert part.shape == (stop - start, whole.shape[1])
        found = np.concatenate([np.asarray(piece) for piece in part.pieces()])
        np.testing.assert_array_equal(found[:, :2], table[start:stop, :2])
    if whole.reader.access == "blocks":
        read = []
        original = type(whole.reader).read
        monkeypatch.setattr(type(whole.reader), "read", lambda reader, n: read.append(n) or original(reader, n))
        list(section(whole, 0, 10).pieces())
        assert read == [0]


def test_a_section_of_a_checked_stream_or_of_chosen_rows_is_a_choice_of_rows(tmp_path):
    path = files(tmp_path)["a.parquet"]
    schema = infer_schema(FRAME)
    table = np.asarray(align(FRAME, schema))
    bound = align_source(path, schema)
    np.testing.assert_array_equal(np.asarray(section(bound, 80, 200)), table[80:200])
    chosen = align_source(open_stream(path).rows(np.arange(0, 700, 3)), schema)  # checked after the choice
    np.testing.assert_array_equal(np.asarray(section(chosen, 10, 20)), table[::3][10:20])


def test_rows_near_the_end_are_read_without_those_before_them(tmp_path, monkeypatch):
    monkeypatch.setattr("circurve.data.readers.BLOCK_ROWS", 10)
    rows = np.arange(400).reshape(100, 4) % 2
    path = tmp_path / "x.parquet"
    parquet.write_table(pa.table({name: rows[:, v] for v, name in enumerate("abcd")}), path, row_group_size=10)
    stream = cc.open_stream(path)
    stream[:1, :]  # the first use checks all rows
    read = []
    original = type(stream.reader).read
    monkeypatch.setattr(type(stream.reader), "read", lambda self, block: read.append(block) or original(self, block))
    for wanted in (slice(83, 97), slice(0, 5), slice(45, 100, 7), slice(99, 100)):
        read.clear()
        np.testing.assert_array_equal(stream[wanted, :], rows[wanted])
        assert read == list(range(wanted.start // 10, (wanted.stop - 1) // 10 + 1))
