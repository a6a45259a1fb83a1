"""Data of any kind in the order and coding of a schema, and back again."""

import datetime
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import circurve as cc
from circurve.data import align, as_table, decode, make_frame, warn_of_lost_digits
from circurve.data.convert import is_missing
from circurve.errors import CircurveWarning, DataError, OptionError
from circurve.schema import Column, Schema

pl = pytest.importorskip("polars")

SCHEMA = Schema(
    (
        Column("age", cc.Gaussian()),
        Column("smoker", cc.Bernoulli(), "boolean"),
        Column("city", cc.Categorical(2), "category", ("Oslo", "Rome")),
        Column("born", cc.Gaussian(), "date", origin="2000-01-01"),
        Column("stars", cc.Categorical(3), "category", (1, 3, 5)),
        Column("visits", cc.Poisson()),
    ),
    ignored=("id",),
)
COLUMNS = {
    "age": [30.5, None, 41.0],
    "smoker": [True, False, None],
    "city": ["Rome", None, "Oslo"],
    "born": [datetime.date(2000, 1, 3), datetime.date(1999, 12, 31), None],
    "stars": [5, 1, None],
    "visits": [0, None, 7],
}
CODES = [[30.5, 1, 1, 2, 2, 0], [np.nan, 0, np.nan, -1, 0, np.nan], [41, np.nan, 0, np.nan, np.nan, 7]]


def pandas_frame():
    frame = pd.DataFrame(COLUMNS)
    return frame.astype({"smoker": "boolean", "stars": "Int8"}).assign(born=pd.to_datetime(frame["born"]))


FRAMES = {
    "pandas": pandas_frame,
    "pandas objects": lambda: pd.DataFrame(COLUMNS, dtype=object),
    "pandas categories": lambda: pandas_frame().astype({"city": "category", "stars": "category"}),
    "pandas arrow": lambda: pandas_frame().convert_dtypes(dtype_backend="pyarrow"),
    "polars": lambda: pl.DataFrame(COLUMNS),
    "polars enum": lambda: pl.DataFrame(COLUMNS).with_columns(pl.col("city").cast(pl.Enum(["Rome", "Oslo", "Bonn"]))),
    "polars lazy": lambda: pl.DataFrame(COLUMNS).lazy(),
    "pyarrow": lambda: pa.table(COLUMNS),
    "pyarrow dictionary": lambda: pa.table({**COLUMNS, "city": pa.array(COLUMNS["city"]).dictionary_encode()}),
    "columns": lambda: COLUMNS,
    "rows": lambda: [{name: values[row] for name, values in COLUMNS.items()} for row in range(3)],
}


@pytest.mark.parametrize("kind", FRAMES)
def test_frames_of_every_kind_have_the_same_codes(kind):
    table = align(FRAMES[kind](), SCHEMA)
    np.testing.assert_array_equal(table, CODES)
    assert table.schema == SCHEMA
    assert table.impossible is None


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_columns_are_put_in_order_by_their_names(kind):
    turned = {name: COLUMNS[name] for name in reversed(COLUMNS)} | {"id": ["x", "y", "z"]}
    frame = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}[kind](turned)
    np.testing.assert_array_equal(align(frame, SCHEMA), CODES)


def test_one_row_may_be_given_by_single_values():
    row = {"age": 3, "smoker": False, "city": "Oslo", "born": "2000-02-01", "stars": 3.0, "visits": 2}
    np.testing.assert_array_equal(align(row, SCHEMA), [[3, 0, 0, 31, 1, 2]])
    many = {**row, "age": [1, 2]}
    np.testing.assert_array_equal(align(many, SCHEMA)[:, [0, 5]], [[1, 2], [2, 2]])


def test_arrays_go_by_position():
    codes = np.array([[1.5, 1, np.nan, 4, 3, 2]])
    np.testing.assert_array_equal(align(codes, SCHEMA), [[1.5, 1, np.nan, 4, 1, 2]])
    with pytest.raises(
        DataError, match=r"data has 5 columns, the circuit has 6 variables; to leave columns out, pass a data frame"
    ):
        align(codes[:, 1:], SCHEMA)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ctiy": ["Rome"]}, "no column 'ctiy' in the training data; do you mean 'city'?"),
        ({"age": ["old"]}, "column 1 ('age') holds text ('old'), not a number"),
        ({"smoker": ["no"]}, "column 2 ('smoker') holds text ('no'), not true or false"),
        ({"born": [7]}, "column 4 ('born') holds 7, not a date such as '2024-01-31'"),
        ({"born": ["May"]}, "column 4 ('born') holds the text 'May', not a date"),
        ({"age": [1, "x"]}, "columns differ in length: 'age' has 2 values, 'smoker' has 1"),
        ({"age": [np.inf]}, "column 1 ('age'), row 1: inf is not finite"),
    ],
)
def test_what_cannot_be_aligned_is_named(change, message):
    row = {"age": [3], "smoker": [False], "city": ["Oslo"], "born": ["2000-02-01"], "stars": [3], "visits": [2]}
    with pytest.raises(DataError) as caught:
        align({**row, **change}, SCHEMA)
    assert message in str(caught.value)


def test_a_column_that_is_not_there_is_an_error_or_missing():
    some = pd.DataFrame({"city": ["Rome", "Oslo"], "age": [1.0, 2.0]})
    with pytest.raises(DataError, match="the data has no column 'smoker' and 3 more"):
        align(some, SCHEMA)
    table = align(some, SCHEMA, missing_columns="missing")
    np.testing.assert_array_equal(table, [[1, np.nan, 1, *[np.nan] * 3], [2, np.nan, 0, *[np.nan] * 3]])
    with pytest.raises(OptionError, match="missing_columns must be 'error' or 'missing', not 'drop'"):
        align(some, SCHEMA, missing_columns="drop")


class TestUnseenValues:
    FRAME = pd.DataFrame(
        {"city": ["Bonn", "Rome", "Kyiv", "Bonn"], "visits": [1, -1, 2, 3], "stars": [1, 3, 5, 1]}, index=list("abcd")
    )

    def test_they_are_marked_and_counted_in_one_warning(self):
        with pytest.warns(CircurveWarning) as caught:
            table = align(self.FRAME, SCHEMA, missing_columns="missing")
        assert len(caught) == 1
        message = str(caught[0].message)
        assert message.startswith(
            "column 3 ('city'): 'Bonn' and 1 more value were not seen in training ('Oslo', 'Rome')"
        )
        assert (
            "also in column 6 ('visits'); 4 rows in all, first in row 1 (index 'a'): rows with such a value" in message
        )
        assert "pass unseen='missing'" in message
        marked = np.zeros((4, 6), dtype=bool)
        marked[[0, 2, 3], 2] = marked[1, 5] = True
        np.testing.assert_array_equal(table.impossible, marked)
        assert not (np.asarray(table.observed) & marked).any()

    def test_they_are_missing_on_request(self):
        with pytest.warns(CircurveWarning, match="4 rows in all, .*: treated as missing"):
            table = align(self.FRAME, SCHEMA, unseen="missing", missing_columns="missing")
        assert table.impossible is None
        np.testing.assert_array_equal(table[:, [2, 5]], [[np.nan, 1], [1, np.nan], [np.nan, 2], [np.nan, 3]])

    def test_they_are_an_error_on_request(self):
        with pytest.raises(
            DataError, match=r"column 3 \('city'\), row 1 \(index 'a'\): 'Bonn' was not seen in training"
        ):
            align(self.FRAME, SCHEMA, unseen="error", missing_columns="missing")

    def test_parts_of_a_table_keep_their_marks(self):
        with pytest.warns(CircurveWarning):
            table = align(self.FRAME, SCHEMA, missing_columns="missing")
        np.testing.assert_array_equal(table[1:3].impossible, table.impossible[1:3])
        np.testing.assert_array_equal((table[:2] + table[2:]).impossible, table.impossible)
        assert table[[2]].cell(0, 2) == "column 3 ('city'), row 1 (index 'c')"

    def test_a_reserved_share_is_a_probability(self):
        """With share s, the probabilities of all values of a column and of an unseen one sum to one."""
        frame = pd.DataFrame({"a": ["x", "y", "x", "z"] * 5, "b": [0, 1, 1, 0] * 5})
        schema = cc.infer_schema(frame, unseen_share=0.1)
        model = cc.fit(cc.hclt(frame, 2, schema=schema), frame, epochs=3, progress=False, device="cpu").model
        rows = pd.DataFrame([(a, b) for a in ("x", "y", "z", "new") for b in (0, 1)], columns=["a", "b"])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            p = np.exp(model.log_prob(rows))
        assert p.sum() == pytest.approx(1, abs=1e-6)
        assert p[6:].sum() == pytest.approx(0.1, abs=1e-6)
        plain = cc.Model(cc.Circuit(model.circuit.roots), model.params)
        np.testing.assert_allclose(p[:6], 0.9 * np.exp(plain.log_prob(np.asarray(align(rows[:6], schema)))), rtol=1e-6)
        assert model.log_prob(rows.assign(a=None))[0] == pytest.approx(np.log(p[::2].sum()), abs=1e-6)


cells = {
    "age": st.floats(-1e6, 1e6),
    "smoker": st.booleans(),
    "city": st.sampled_from(["Oslo", "Rome"]),
    "born": st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 1, 1)),
    "stars": st.sampled_from([1, 3, 5]),
    "visits": st.integers(0, 1000),
}
rows = st.lists(st.fixed_dictionaries({name: st.none() | cell for name, cell in cells.items()}), min_size=1, max_size=8)


@given(rows=rows, kind=st.sampled_from(["pandas", "polars", "pyarrow"]))
@settings(max_examples=60, deadline=None)
def test_decoding_gives_the_original_values(rows, kind):
    columns = {name: [row[name] for row in rows] for name in SCHEMA.names}
    table = align(columns, SCHEMA)
    like = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}[kind]({"x": [1]})
    frame = make_frame(decode(table, SCHEMA), like=like)
    assert type(frame) is type(like)
    again = align(frame, SCHEMA)
    np.testing.assert_array_equal(again, table)
    for name, values in decode(table, SCHEMA).items():
        back = [None if is_missing(value) else value for value in values.tolist()]
        assert back == columns[name]


def test_decoding_rounds_codes_and_whole_days():
    found = decode(np.array([[1.25, 0.9, 0.6, 1.4, 1.7, 3.2]]), SCHEMA)
    assert [values.tolist()[0] for values in found.values()] == [1.25, True, "Rome", datetime.date(2000, 1, 2), 5, 3]
    with pytest.raises(DataError, match=r"values have shape \(1, 2\), expected rows x 6 columns"):
        decode(np.zeros((1, 2)), SCHEMA)


def test_times_of_day_are_kept():
    moments = pd.DataFrame({"t": pd.to_datetime(["2024-01-01 06:00", "2024-01-03 18:30"])})
    schema = cc.infer_schema(moments, types={"t": "gaussian"})
    assert schema.columns[0].origin == "2024-01-01T00:00:00"
    table = align(moments, schema)
    np.testing.assert_allclose(table[:, 0], [0.25, 2 + 18.5 / 24])
    assert (make_frame(decode(table, schema), like=moments)["t"] == moments["t"]).all()


MIXED = {"a": np.array([1, 2]), "b": np.array(["x", None], dtype=object)}


class TestMakeFrame:
    def test_an_index_and_categories_are_those_of_the_frame_that_was_given(self):
        like = pd.DataFrame({"b": pd.Categorical(["x", "y"])}, index=["one", "two"])
        frame = make_frame(MIXED, like)
        assert list(frame.index) == ["one", "two"]
        assert frame["b"].dtype == "category"
        assert list(make_frame(MIXED, like[:1]).index) == [0, 1]

    def test_numbers_in_arrays_out(self):
        for like in (np.zeros((1, 1)), torch.zeros(1, 1)):
            assert make_frame({"a": np.array([1, 2])}, like).tolist() == [[1], [2]]
        assert isinstance(make_frame(MIXED, np.zeros((1, 1))), pd.DataFrame)

    def test_pandas_comes_first_and_a_dict_last(self, monkeypatch):
        assert isinstance(make_frame(MIXED), pd.DataFrame)
        absent = set()
        monkeypatch.setattr("circurve.data.frames.find_spec", lambda name: None if name in absent else name)
        for name, kind in (("pandas", pl.DataFrame), ("polars", pa.Table), ("pyarrow", dict)):
            absent.add(name)
            assert isinstance(make_frame(MIXED), kind)


def test_a_model_scores_by_name_and_remembers_its_schema(tmp_path):
    frame = pd.DataFrame({"a": ["x", "y", "x", "y"] * 10, "n": [0.5, 1.5, 0.25, 1.75] * 10, "ok": [True, False] * 20})
    model = cc.fit(cc.hclt(frame, 2), frame, epochs=2, progress=False, device="cpu").model
    assert model.schema.names == ("a", "n", "ok")
    scores = model.log_prob(frame)
    np.testing.assert_array_equal(model.log_prob(frame[["ok", "a", "n"]]), scores)
    np.testing.assert_array_equal(model.log_prob(pl.from_pandas(frame)), scores)
    model.save(tmp_path / "m.safetensors")
    loaded = cc.load(tmp_path / "m.safetensors")
    assert loaded.schema == loaded.circuit.schema == model.schema
    np.testing.assert_array_equal(loaded.log_prob(frame[["ok", "a", "n"]]), scores)


def test_names_of_the_training_table_are_kept_for_a_circuit_without_a_schema(tmp_path):
    frame = pd.DataFrame({"a": [0, 1, 1, 0], "b": [1, 1, 0, 0]})
    model = cc.fit(cc.hclt(frame.to_numpy(), 2), frame, epochs=1, progress=False, device="cpu").model
    assert model.schema.names == ("a", "b")
    model.save(tmp_path / "m.safetensors")
    turned = frame[["b", "a"]]
    np.testing.assert_array_equal(cc.load(tmp_path / "m.safetensors").log_prob(turned), model.log_prob(frame))
    plain = cc.fit(cc.hclt(frame.to_numpy(), 2), frame.to_numpy(), epochs=1, progress=False, device="cpu").model
    assert plain.schema == Schema.of([cc.Bernoulli()] * 2)


def test_a_checked_table_passes_unchanged():
    table = align(COLUMNS, SCHEMA)
    assert align(table, SCHEMA) is table
    assert align(as_table(table), SCHEMA) is table


@pytest.mark.parametrize("scale", [1e-40, 1e-300, 1e-320])
def test_a_column_whose_values_cannot_be_told_apart_is_pointed_out(scale):
    values = np.array([[0.0], [1.0], [3.0]]) * scale
    with pytest.warns(CircurveWarning, match=r"the values of column 1 are within .* multiply the column"):
        warn_of_lost_digits(as_table(values), (cc.Gaussian(),), torch.float32)


def test_constant_and_ordinary_columns_are_not_pointed_out(recwarn):
    values = np.array([[0.0, 2.5, 1e-12], [1e-3, 2.5, 2e-12], [3e-3, 2.5, 4e-12]])
    warn_of_lost_digits(as_table(values), (cc.Gaussian(),) * 3, torch.float64)
    assert not recwarn


def test_numbers_as_names_are_numbers_of_columns():
    """A pandas frame without names calls its columns 0, 1, 2; put in another order, they are still the same columns."""
    rows = pd.DataFrame(np.random.default_rng(0).normal([0.0, 10.0, 20.0], size=(50, 3)))
    model = cc.fit(cc.hclt(rows, 2), rows, epochs=2, progress=False, valid=False).model
    np.testing.assert_array_equal(model.log_prob(rows[[2, 0, 1]]), model.log_prob(rows))
    holes = rows.copy()
    holes[1] = np.nan
    np.testing.assert_array_equal(model.log_prob(rows[[2, 0]], missing_columns="missing"), model.log_prob(holes))
    with pytest.raises(DataError, match="the data has no column '1'"):
        model.log_prob(rows[[2, 0]])


@pytest.mark.parametrize("streamed", [False, True])
def test_numbers_as_names_are_numbers_of_variables_when_a_circuit_is_trained(streamed):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame((rng.random((300, 3)) < [0.9, 0.5, 0.1]).astype(int))
    circuit = cc.hclt(frame, units=2)
    assert circuit.schema is None

    def trained(data):
        return cc.fit(circuit, [data] if streamed else data, epochs=2, valid=False, seed=0)

    wanted, turned = trained(frame), trained(frame[[2, 0, 1]])
    assert turned.train_ll == pytest.approx(wanted.train_ll)
    np.testing.assert_allclose(np.asarray(turned.model.mean()), np.asarray(wanted.model.mean()))
    np.testing.assert_allclose(turned.model.log_prob(frame[[1, 2, 0]]), wanted.model.log_prob(frame), rtol=1e-5)
    other = frame.rename(columns={0: 7})  # numbers of other columns name no variables
    assert trained(other[[2, 7, 1]]).train_ll != pytest.approx(wanted.train_ll, abs=1e-3)
