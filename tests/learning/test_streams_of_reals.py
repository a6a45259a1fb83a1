"""Streams of real numbers, of mixed columns and of awkward shapes train as the same rows in memory do."""

import numpy as np
import pytest
import torch

import circurve as cc

pa = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402

RNG = np.random.default_rng(4)
REALS = RNG.normal(size=(203, 4)) * [1, 10, 0.1, 1] + [0, 50, 0, -3]
REALS[::9, 2] = np.nan


def streams(folder, values):
    """The same numbers as every kind of stream."""
    np.save(folder / "x.npy", values)
    frame = pa.table({str(v): pa.array(column, from_pandas=True) for v, column in enumerate(values.T)})
    (folder / "parts").mkdir()
    for number in range(3):
        parquet.write_table(frame[number * 80 : (number + 1) * 80], folder / "parts" / f"{number}.parquet")
    return {
        "mapped": np.load(folder / "x.npy", mmap_mode="r"),
        "blocks": cc.open_stream(values, block_rows=64),
        "list": cc.open_stream([part for part in (values[:100], values[100:]) if len(part)]),
        "loader": torch.utils.data.DataLoader(values, batch_size=50),
        "folder": folder / "parts",
    }


@pytest.mark.parametrize("kind", ["mapped", "blocks", "list", "loader", "folder"])
@pytest.mark.parametrize("values", [REALS, REALS[:, :1], REALS[:4], REALS[:1]], ids=["all", "column", "square", "row"])
def test_reals_give_the_circuit_the_start_and_the_scores_of_memory(tmp_path, kind, values):
    source = streams(tmp_path, values)[kind]
    names = {str(v): column for v, column in enumerate(values.T)} if kind == "folder" else values
    assert cc.infer_schema(source) == cc.infer_schema(names)
    streamed, in_memory = cc.hclt(source, 3), cc.hclt(names, 3)
    assert [str(node) for node in streamed.nodes] == [str(node) for node in in_memory.nodes]
    options = {"valid": False, "epochs": 2, "batch_size": len(values), "seed": 0, "progress": False}
    found = cc.fit(streamed, source, **options).model
    expected = cc.fit(in_memory, names, **options).model
    np.testing.assert_allclose(found.log_prob(source), expected.log_prob(names), rtol=1e-4, atol=1e-4)


def test_a_column_that_is_constant_in_the_sampled_rows_has_the_spread_of_all_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("circurve.data.scan.SAMPLED_ROWS", 20)
    values = np.zeros((200, 2))
    values[:, 0], values[1::2, 1] = RNG.normal(size=200), 0.25
    schema = cc.infer_schema(values)
    for source in streams(tmp_path, values).values():
        found = cc.infer_schema(source)
        assert found.families[1] == schema.families[1]


def write_parts(folder, *columns):
    folder.mkdir()
    for number, column in enumerate(columns):
        parquet.write_table(pa.table({"a": column, "b": pa.array([0, 1, 1])}), folder / f"{number}.parquet")
    return folder


TEXT = pa.array(["x", "y", "x"])


@pytest.mark.parametrize(
    "columns",
    [
        (pa.array([1, 0, 1]), pa.array([0.5, 1.5, None])),
        (pa.array([1, 0, 1], pa.int8()), pa.array([3, 1, 2])),
        (pa.nulls(3), TEXT),
        (TEXT, pa.nulls(3), TEXT),
        (TEXT.dictionary_encode(), TEXT),
        (pa.nulls(3), TEXT.dictionary_encode(), TEXT.cast(pa.large_string())),
        (pa.array(["x", "z", "z"]).dictionary_encode(), TEXT.dictionary_encode()),
    ],
)
def test_files_of_one_folder_may_store_a_column_in_different_types(tmp_path, columns):
    folder = write_parts(tmp_path / "parts", *columns)
    together = {"a": [value for column in columns for value in column.to_pylist()], "b": [0, 1, 1] * len(columns)}
    schema = cc.infer_schema(folder)
    frame = pa.table(together)
    assert schema == cc.infer_schema(frame)
    circuit = cc.hclt(folder, units=2)
    model = cc.fit(circuit, folder, valid=False, epochs=1, progress=False).model
    memory = cc.fit(circuit, frame, valid=False, epochs=1, progress=False).model
    np.testing.assert_allclose(model.log_prob(folder), memory.log_prob(frame), rtol=1e-5)


def test_types_that_have_nothing_in_common_are_named_with_the_column_and_the_files(tmp_path):
    folder = write_parts(tmp_path / "parts", pa.array([1, 0, 1]), pa.array([1, 0, 1]), TEXT)
    with pytest.raises(cc.DataError, match=r"2\.parquet: column 'a' holds string, but in .*0\.parquet it holds int64"):
        cc.infer_schema(folder)
    assert cc.infer_schema(cc.open_stream(folder, columns=["b"])).names == ("b",)


def test_batches_without_rows_are_passed_over():
    values = RNG.integers(0, 2, (60, 3))
    parts = [values[:0], values[:20], values[20:20], values[20:], values[:0]]
    stream = cc.open_stream(parts)
    circuit = cc.hclt(stream, units=2)
    model = cc.fit(circuit, stream, valid=False, epochs=2, progress=False).model
    assert len(model.log_prob(lambda: iter(parts))) == 60
    with pytest.raises(cc.DataError, match="no rows"):
        cc.open_stream([values[:0], values[:0]])
