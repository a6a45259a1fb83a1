"""The facts of a training on a stream name other data, and cost no pass over them."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest
import torch
from broken_off import BreakOffError, break_off_at
from learning_helpers import quick

import circurve as cc
from circurve.data import align_source
from circurve.data import digest as digests
from circurve.data.digest import reader_digest
from circurve.data.readers import ArrayReader, FrameReader
from circurve.learning.fingerprint import table_facts

pa = pytest.importorskip("pyarrow")
from pyarrow import feather, parquet  # noqa: E402

VALUES = np.random.default_rng(0).integers(0, 4, (600, 4))
KINDS = ("npy", "parquet", "feather")


def written(path, values=VALUES, rows=100):
    """A file of the kind that its suffix says, with blocks of so many rows."""
    frame = pa.table({f"c{v}": values[:, v] for v in range(values.shape[1])})
    if path.suffix == ".npy":
        np.save(path, values)
    elif path.suffix == ".parquet":
        parquet.write_table(frame, path, row_group_size=rows)
    else:
        feather.write_feather(frame, path, chunksize=rows, compression="uncompressed")
    return path


def changed(row, column=2, value=5):
    values = VALUES.copy()
    values[row, column] = value
    return values


def digest_of(path):
    return reader_digest(cc.open_stream(path).reader)


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_has_the_same_digest_and_one_other_value_another(tmp_path, kind):
    before = digest_of(written(tmp_path / f"x.{kind}"))
    copy = shutil.copy(tmp_path / f"x.{kind}", tmp_path / f"y.{kind}")
    os.utime(copy, (0, 0))
    assert digest_of(copy) == before
    assert digest_of(written(tmp_path / f"z.{kind}", changed(311))) != before
    assert digest_of(written(tmp_path / f"z.{kind}", VALUES[:-1])) != before
    assert digest_of(written(tmp_path / f"z.{kind}", VALUES[:, ::-1])) != before


def test_an_array_in_memory_and_its_file_are_the_same_data(tmp_path):
    assert digest_of(written(tmp_path / "x.npy")) == reader_digest(cc.open_stream(VALUES).reader)
    assert digest_of(tmp_path / "x.npy") != reader_digest(cc.open_stream(VALUES.astype(np.int32)).reader)


@pytest.mark.parametrize("kind", KINDS)
def test_large_data_are_not_read_and_other_rows_are_seen(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(digests, "PLACES", 5)
    monkeypatch.setattr(digests, "LOOK", 64)
    for reader, method in ((ArrayReader, "gather"), (ArrayReader, "read"), (FrameReader, "read")):
        monkeypatch.setattr(reader, method, lambda *_: pytest.fail("a block was read"))
    before = digest_of(written(tmp_path / f"x.{kind}"))
    assert digest_of(written(tmp_path / f"x.{kind}", np.roll(VALUES, 1, axis=0))) != before


def test_a_new_largest_value_between_two_places_is_seen_in_a_parquet_file_only(tmp_path, monkeypatch):
    """What the docstring says about the limits of the digest."""
    monkeypatch.setattr(digests, "PLACES", 2)
    monkeypatch.setattr(digests, "LOOK", 16)
    for kind, seen in (("npy", False), ("feather", False), ("parquet", True)):
        before = digest_of(written(tmp_path / f"x.{kind}"))
        assert (digest_of(written(tmp_path / f"x.{kind}", changed(311))) != before) is seen, kind


def test_files_of_a_folder_count_in_their_order(tmp_path):
    for number, part in enumerate((VALUES[:200], VALUES[200:])):
        (tmp_path / "a").mkdir(exist_ok=True)
        written(tmp_path / "a" / f"{number}.parquet", part)
    before = digest_of(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert digest_of(tmp_path / "b") == before
    written(tmp_path / "b" / "0.parquet", VALUES[200:400])
    assert digest_of(tmp_path / "b") != before


def test_batches_count_by_their_rows():
    one, other = ([VALUES[:300], VALUES[300:]], [VALUES[300:], VALUES[:300]])
    assert reader_digest(cc.open_stream(one).reader) == reader_digest(cc.open_stream(other).reader)
    assert reader_digest(cc.open_stream([VALUES]).reader) != reader_digest(cc.open_stream(one).reader)


def test_all_that_decides_about_the_rows_is_in_the_facts(tmp_path):
    path, schema = written(tmp_path / "x.parquet"), cc.infer_schema(VALUES)
    named = cc.infer_schema(path)

    def facts(stream):
        return table_facts({"train": stream})

    stream = align_source(path, named)
    others = [
        stream.rows(slice(0, 300)),
        stream.rows(torch.arange(599)),
        align_source(cc.open_stream(path, buffer=100), named),
        align_source(cc.open_stream(path, missing=3), named),
        align_source(cc.open_stream(written(tmp_path / "y.parquet", rows=50)), named),
        align_source(cc.open_stream(VALUES), schema),
    ]
    assert facts(stream) == facts(align_source(path, named))
    assert len({facts(each)["train rows"] for each in [stream, *others]}) == 1 + len(others)


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_of_a_stream_is_refused_for_other_data(tmp_path, kind):
    path = written(tmp_path / f"x.{kind}")
    circuit, options = cc.hclt(path, 2), {"epochs": 4, "valid": False, "checkpoint": tmp_path / "checkpoint"}
    with pytest.raises(BreakOffError):
        quick(circuit, path, callbacks=[break_off_at(2)], **options)
    shutil.move(path, tmp_path / f"moved.{kind}")
    other = written(tmp_path / f"other.{kind}", changed(311, value=int(VALUES[311, 2]) ^ 1))
    with pytest.raises(cc.OptionError, match=r"another training .*train rows: not the same"):
        quick(circuit, other, **options)
    continued = quick(circuit, tmp_path / f"moved.{kind}", **options)
    assert continued.train_ll == quick(circuit, tmp_path / f"moved.{kind}", epochs=4, valid=False).train_ll
