"""From a file to the engine: names, gaps, weights and labels arrive, and messages name the columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import circurve as cc
from circurve.data import (
    Dataset,
    Table,
    as_table,
    check,
    load_data,
    load_dataset,
    read_table,
    split_rows,
    take_fraction,
)
from circurve.engine import Batch, chunks
from circurve.errors import CircurveWarning, DataError

TEXT = "age,smoker,city\n3,1,2\n,0,1\n1,,0\n2,1,?\n0,0,2\n"
ROWS = np.array([[3, 1, 2], [np.nan, 0, 1], [1, np.nan, 0], [2, 1, np.nan], [0, 0, 2]])
NAMES = ("age", "smoker", "city")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    path.write_text(TEXT)
    return path


def test_names_and_gaps_survive_from_a_file_to_a_batch(file: Path) -> None:
    read = read_table(file)
    assert isinstance(read, Table)
    assert read.columns == NAMES
    np.testing.assert_array_equal(read, ROWS)

    data = Dataset("people", *split_rows(read, valid=0.2, test=0.2, seed=1))
    assert data.valid is not None
    assert data.test is not None
    parts = (data.train, data.valid, data.test)
    assert [part.columns for part in parts] == [NAMES] * 3
    together = np.concatenate(parts)
    np.testing.assert_array_equal(np.unique(together, axis=0), np.unique(ROWS, axis=0))

    checked = check(read, cc.infer_families(*parts))
    assert checked.schema is not None
    assert tuple(column.name for column in checked.schema.columns) == NAMES
    batch = Batch.rows(checked, 1, 4, torch.float64)
    assert batch.observed is not None
    np.testing.assert_array_equal(batch.observed[0].T, ~np.isnan(ROWS[1:4]))
    np.testing.assert_array_equal(batch.x[0].T, np.nan_to_num(ROWS[1:4]))


def test_weights_and_labels_arrive_in_the_batches(file: Path) -> None:
    table = as_table(load_data(file).train, weights=[1, 2, 3, 4, 5], labels=[0, 1, 1, 0, 1])
    checked = check(table, cc.infer_families(table), outputs=2)
    first, second = chunks(checked, 3, torch.float32)
    assert (first.size, second.size) == (3, 2)
    assert second.weights is not None
    assert second.labels is not None
    assert second.weights.tolist() == [[4, 5]]
    assert second.weights.dtype == torch.float32
    assert second.labels.tolist() == [[0, 1]]
    picked = Batch.pick(checked, torch.tensor([[4, 0], [1, 1]]), torch.float32)
    assert picked.x.shape == (2, 3, 2)
    assert picked.weights is not None
    assert picked.weights.tolist() == [[5, 1], [2, 2]]


def test_all_rows_have_a_key_and_parts_have_none(file: Path) -> None:
    read = load_data(file).train
    table = check(read, cc.infer_families(read))
    whole, again = (Batch.rows(table, 0, 5, torch.float32) for _ in range(2))
    assert whole.key is again.key is not None
    assert whole.key is not Batch.rows(table[:], 0, 5, torch.float32).key
    assert Batch.rows(table, 0, 4, torch.float32).key is None
    assert Batch.pick(table, torch.arange(5)[None], torch.float32).key is None
    assert [part.key for part in whole.parts(5)] == [None]


def test_batches_are_cut_from_checked_tables_only(file: Path) -> None:
    with pytest.raises(ValueError, match=r"a table that circurve\.data\.check has checked"):
        Batch.rows(load_data(file).train, 0, 5, torch.float32)


def test_messages_of_training_name_the_columns_of_the_file(file: Path) -> None:
    data = load_data(file)
    circuit = cc.fully_factorized([cc.Categorical(4), cc.Bernoulli(), cc.Categorical(2)])
    with pytest.raises(DataError, match=r"train data: column 3 \('city'\), line 2: value 2 does not fit"):
        cc.fit(circuit, data.train, epochs=1, device="cpu")


def test_names_of_parts_are_compared_in_training(file: Path) -> None:
    data = load_data(file)
    other = pd.DataFrame(ROWS, columns=["age", "city", "smokr"])
    with pytest.raises(DataError, match="valid data: no column 'smokr' in the training data; do you mean 'smoker'"):
        cc.fit(cc.hclt(data.train, 2, cc.Categorical(4)), data.train, valid=other, epochs=1, device="cpu")


def test_warnings_name_the_columns_of_a_data_set() -> None:
    values = np.random.default_rng(0).normal(loc=(0, 1e7), size=(40, 2))
    data = Dataset("far", values, columns=("near", "far"))
    circuit = cc.mixture((cc.Gaussian(), 2), 2)
    with pytest.warns(CircurveWarning, match=r"train data: column 2 \('far'\) has a spread of"):
        cc.fit(circuit, data.train, epochs=1, device="cpu")


def test_a_table_trains_and_scores_like_the_array_it_stands_for() -> None:
    data = load_dataset("digits")
    array = np.array(data.train)[:200]
    table = data.train[:200]
    assert table.columns == data.columns
    one, other = (cc.fit(cc.hclt(x, 3), x, epochs=3, batch_size=None, device="cpu").model for x in (table, array))
    np.testing.assert_array_equal(one.log_prob(table), other.log_prob(array))
    assert cc.curvature(one, table).trace == cc.curvature(other, array).trace


def test_scores_leave_weights_and_labels_aside() -> None:
    rows = np.array([[0, 1], [1, 1], [1, 0]])
    circuit = cc.hclt(rows, 2)
    model = cc.fit(circuit, rows, epochs=1, device="cpu").model
    table = cc.Examples(rows, weights=[1, 0, 5], labels=[0, 3, 7])
    np.testing.assert_array_equal(model.log_prob(table), model.log_prob(rows))
    node = circuit.sums[0]
    np.testing.assert_array_equal(cc.local_hessian(model, table, node), cc.local_hessian(model, rows, node))


class TestDatasets:
    def test_parts_of_any_kind_become_tables_with_names(self) -> None:
        data = Dataset("x", [[0, 1]], torch.zeros(2, 2), pd.DataFrame(np.ones((1, 2))), columns=("a", "b"))
        assert data.valid is not None
        assert data.test is not None
        assert [part.columns for part in (data.train, data.valid, data.test)] == [("a", "b")] * 3

    def test_names_come_from_the_training_rows(self) -> None:
        data = Dataset("x", pd.DataFrame({"a": [1], "b": [0]}), np.zeros((1, 2)))
        assert data.columns == ("a", "b")
        assert data.valid is not None
        assert data.valid.columns == ("a", "b")

    def test_other_names_are_refused(self) -> None:
        frame = pd.DataFrame({"a": [1], "b": [0]})
        expected = "^x: valid: the names of the columns differ: column 1 is 'b', expected 'a'"
        with pytest.raises(DataError, match=expected):
            Dataset("x", frame, frame[["b", "a"]])
        with pytest.raises(DataError, match=r"^x: train: the names of the columns differ: column 2 is 'b'"):
            Dataset("x", frame, columns=("a", "c"))
        with pytest.raises(DataError, match=r"^x: valid: the names of the columns differ: train has no names"):
            Dataset("x", frame.to_numpy(), frame)

    def test_a_part_that_is_no_table_is_named(self) -> None:
        with pytest.raises(DataError, match=r"^x: test: data has 1 dimension"):
            Dataset("x", np.zeros((1, 2)), test=np.zeros(2))


class TestParts:
    def test_a_table_is_split_into_tables_and_an_array_into_arrays(self, file: Path) -> None:
        table = as_table(load_data(file).train, weights=[1, 2, 3, 4, 5])
        tables, arrays = (split_rows(rows, 0.2, 0.2, seed=3) for rows in (table, ROWS))
        for part, rows in zip(tables, arrays, strict=True):
            assert isinstance(part, Table)
            assert type(rows) is np.ndarray
            assert part.columns == NAMES
            np.testing.assert_array_equal(part, rows)
        assert sorted(w for part in tables if part is not None for w in part.weights.tolist()) == [1, 2, 3, 4, 5]

    def test_a_share_of_a_table_is_a_table(self, file: Path) -> None:
        table = load_data(file).train
        part = take_fraction(table, 0.4, seed=2)
        assert isinstance(part, Table)
        assert part.columns == NAMES
        np.testing.assert_array_equal(part, take_fraction(ROWS, 0.4, seed=2))
