"""What may enter as data, how it comes out, and what is refused with which words."""

from __future__ import annotations

import datetime
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

from circurve.data import Table, as_table
from circurve.errors import DataError
from circurve.schema import Coding


def refusal(data: object) -> str:
    with pytest.raises(DataError) as caught:
        as_table(data)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "float32", "float64"])
def test_arrays_keep_their_type_and_are_not_copied(dtype: str) -> None:
    array = np.array([[0, 1, 2], [3, 4, 5]], dtype=dtype)
    table = as_table(array)
    assert table.dtype == array.dtype
    assert table.columns is None
    assert np.shares_memory(np.asarray(table), array)
    assert np.shares_memory(table.values.numpy(), array)


@pytest.mark.parametrize(("given", "kept"), [("uint16", "int32"), ("uint32", "int64"), ("uint64", "int64")])
def test_unsigned_types_that_torch_lacks_are_widened(given: str, kept: str) -> None:
    largest = min(np.iinfo(given).max, np.iinfo(kept).max)
    table = as_table(np.array([[0, largest]], dtype=given))
    assert table.dtype == kept
    assert table.tolist() == [[0, largest]]


def test_whole_numbers_beyond_int64_become_floats() -> None:
    table = as_table(np.array([[0, 2**64 - 2**12]], dtype=np.uint64))
    assert table.dtype == np.float64
    assert table.tolist() == [[0, 2.0**64 - 2**12]]


def test_arrays_that_may_not_be_written_are_shared_without_a_warning() -> None:
    array = np.array([[0.5, 1.0]])
    array.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = as_table(array)
    assert np.shares_memory(np.asarray(table), array)


def test_views_with_backward_or_odd_strides_are_taken() -> None:
    array = np.arange(12.0).reshape(4, 3)
    np.testing.assert_array_equal(as_table(array[::-1, ::-2]), array[::-1, ::-2])
    records = np.zeros(3, dtype=[("a", "i1"), ("x", "<f8", 2)])
    records["x"] = array[:3, :2]
    np.testing.assert_array_equal(as_table(records["x"]), array[:3, :2])


@pytest.mark.parametrize(("given", "kept"), [("bool", "uint8"), ("float16", "float32"), ("longdouble", "float64")])
def test_booleans_become_uint8_and_unusual_floats_usual_ones(given: str, kept: str) -> None:
    table = as_table(np.array([[0, 1], [1, 0]], dtype=given))
    assert table.dtype == kept
    np.testing.assert_array_equal(table, [[0, 1], [1, 0]])


def test_foreign_byte_order_becomes_the_machines_own() -> None:
    for code in (">i4", "<i4", ">f8", "<f8"):
        values = np.asarray(as_table(np.array([[1, 2]], dtype=code)))
        assert values.dtype.isnative
        np.testing.assert_array_equal(values, [[1, 2]])


def test_nan_stays_as_the_mark_of_a_missing_value() -> None:
    values = np.asarray(as_table(np.array([[np.nan, 1.5]], dtype=np.float32)))
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, np.array([[np.nan, 1.5]], dtype=np.float32))


def test_tables_pass_unchanged() -> None:
    table = as_table([[1]])
    assert as_table(table) is table


def test_tables_are_frozen() -> None:
    with pytest.raises(AttributeError):
        as_table([[1]]).values = torch.zeros(1, 1)  # type: ignore[misc]


class TestLists:
    def test_whole_numbers_give_integers(self) -> None:
        assert np.asarray(as_table([[0, 1], [1, 0]])).dtype == np.int64
        assert np.asarray(as_table(((True, False),))).dtype == np.uint8

    def test_none_is_missing(self) -> None:
        np.testing.assert_array_equal(np.asarray(as_table([[1, None], [2, 3]])), [[1, np.nan], [2, 3]])

    def test_decimals_and_fractions_are_numbers(self) -> None:
        data = [[Decimal("0.5"), Fraction(1, 4), True, None, pd.NA]]
        np.testing.assert_array_equal(np.asarray(as_table(data)), [[0.5, 0.25, 1, np.nan, np.nan]])

    def test_objects_that_are_all_whole_stay_integers(self) -> None:
        values = np.asarray(as_table(np.array([[1, True], [np.int8(3), np.bool_(False)]], dtype=object)))
        assert values.dtype == np.int64
        np.testing.assert_array_equal(values, [[1, 1], [3, 0]])

    def test_arrays_and_tensors_inside_lists_are_rows(self) -> None:
        np.testing.assert_array_equal(np.asarray(as_table([np.array([1, 2]), np.array([3, 4])])), [[1, 2], [3, 4]])
        np.testing.assert_array_equal(np.asarray(as_table([torch.tensor([1.0, 2.0])])), [[1, 2]])

    def test_ragged_rows_are_refused(self) -> None:
        assert refusal([[1, 2], [3, 4], [5]]) == "rows differ in length: row 1 has 2 values, row 3 has 1"
        assert refusal([[1, 2], 3]) == "rows differ in length: row 1 has 2 values, row 2 has 0"
        assert refusal([[1, [2]], [3, 4]]) == "the list does not form rows x columns of numbers"

    def test_text_among_numbers_is_found(self) -> None:
        expected = "column 2 holds numbers (row 1: 2) and text (row 2: 'x'); convert all of them to text or to numbers"
        assert refusal([[1, 2], [3, "x"]]) == expected

    def test_huge_whole_numbers_become_floats_while_they_can(self) -> None:
        assert np.asarray(as_table([[2**70, None]]))[0, 0] == 2.0**70
        assert refusal([[10**400, 1]]) == "column 1 holds a number too large for a float"


class TestMaskedArrays:
    def test_masked_entries_are_missing(self) -> None:
        data = np.ma.array([[1, 2], [3, 4]], mask=[[0, 1], [0, 0]])
        values = np.asarray(as_table(data))
        np.testing.assert_array_equal(values, [[1, np.nan], [3, 4]])

    def test_integers_stay_integers_if_nothing_is_masked(self) -> None:
        assert np.asarray(as_table(np.ma.array([[1, 2]], dtype=np.int8))).dtype == np.int8

    def test_float32_stays_float32_and_what_a_mask_hides_does_not_matter(self) -> None:
        data = np.ma.array([[1, np.inf]], mask=[[False, True]], dtype=np.float32)
        values = np.asarray(as_table(data))
        assert values.dtype == np.float32
        np.testing.assert_array_equal(values, np.array([[1, np.nan]], dtype=np.float32))
        assert np.isinf(data.data[0, 1])

    def test_masked_objects_are_missing(self) -> None:
        data = np.ma.array([[1, "x"]], mask=[[False, True]], dtype=object)
        np.testing.assert_array_equal(np.asarray(as_table(data)), [[1, np.nan]])


class TestTensors:
    def test_all_types_of_tensors_are_taken(self) -> None:
        for dtype, kept in [
            (torch.int8, "int8"),
            (torch.int64, "int64"),
            (torch.bool, "uint8"),
            (torch.float16, "float32"),
            (torch.bfloat16, "float32"),
            (torch.float32, "float32"),
            (torch.float64, "float64"),
        ]:
            values = np.asarray(as_table(torch.tensor([[0, 1]]).to(dtype)))
            assert values.dtype == kept
            np.testing.assert_array_equal(values, [[0, 1]])

    def test_tensors_with_gradients_views_and_sparse_ones_are_taken(self) -> None:
        dense = torch.tensor([[0.0, 1.0], [2.0, 3.0]])
        for tensor in (dense.clone().requires_grad_(), dense.t().contiguous().t(), dense.to_sparse()):
            np.testing.assert_array_equal(np.asarray(as_table(tensor)), dense.numpy())

    @pytest.mark.gpu
    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
    def test_tensors_on_a_device_are_taken(self) -> None:
        np.testing.assert_array_equal(np.asarray(as_table(torch.tensor([[1, 2]], device="cuda"))), [[1, 2]])


def test_sparse_matrices_become_dense() -> None:
    dense = np.array([[0, 1], [2, 0]], dtype=np.int8)
    for sparse in (scipy.sparse.csr_matrix(dense), scipy.sparse.coo_array(dense)):
        values = np.asarray(as_table(sparse))
        assert values.dtype == np.int8
        np.testing.assert_array_equal(values, dense)


class TestDataFrames:
    def test_names_are_kept_and_the_smallest_common_type_is_chosen(self) -> None:
        frame = pd.DataFrame({"a": np.array([0, 1], dtype=np.int8), "b": [True, False]})
        table = as_table(frame)
        assert table.columns == ("a", "b")
        assert table.dtype == np.int16
        np.testing.assert_array_equal(table, [[0, 1], [1, 0]])

    def test_numbered_columns_have_no_names(self) -> None:
        assert as_table(pd.DataFrame(np.zeros((2, 3)))).columns is None

    def test_integers_beside_floats_become_floats(self) -> None:
        values = np.asarray(as_table(pd.DataFrame({"a": [1, 2], "b": [0.5, np.nan]})))
        np.testing.assert_array_equal(values, [[1, 0.5], [2, np.nan]])

    def test_nullable_columns_give_nan_where_they_are_na(self) -> None:
        frame = pd.DataFrame(
            {
                "i": pd.array([1, None, 3], dtype="Int8"),
                "b": pd.array([True, False, None], dtype="boolean"),
                "f": pd.array([None, 0.5, 1], dtype="Float64"),
                "o": pd.Series([None, 2, pd.NA], dtype=object),
            }
        )
        expected = [[1, 1, np.nan, np.nan], [np.nan, 0, 0.5, 2], [3, np.nan, 1, np.nan]]
        np.testing.assert_array_equal(np.asarray(as_table(frame)), expected)

    def test_nullable_columns_without_na_stay_compact_integers(self) -> None:
        frame = pd.DataFrame({"i": pd.array([1, 2], dtype="UInt8"), "b": pd.array([True, False], dtype="boolean")})
        values = np.asarray(as_table(frame))
        assert values.dtype == np.uint8
        np.testing.assert_array_equal(values, [[1, 1], [2, 0]])

    def test_categories_that_are_numbers_and_sparse_columns_are_taken(self) -> None:
        frame = pd.DataFrame(
            {"c": pd.Categorical([3, 1, None]), "s": pd.arrays.SparseArray([0, 0, 7])}, index=[7, 8, 9]
        )
        table = as_table(frame)
        np.testing.assert_array_equal(np.asarray(table), [[1, 0], [0, 0], [np.nan, 7]])
        assert table.codings == (Coding("category", (1, 3)), Coding())

    def test_derived_frames_are_taken_and_repeated_names_are_refused(self) -> None:
        class Derived(pd.DataFrame):
            pass

        np.testing.assert_array_equal(as_table(Derived([[1, 2]], columns=["a", "b"])), [[1, 2]])
        assert refusal(Derived([[1, 2]], columns=["a", "a"])) == "two columns have the name 'a'; rename one of them"

    def test_repeated_names_of_an_arrow_table_are_refused(self) -> None:
        pyarrow = pytest.importorskip("pyarrow")
        table = pyarrow.table([[1, 2], [3, 4]], names=["a", "a"])
        assert refusal(table) == "two columns have the name 'a'; rename one of them"

    @pytest.mark.parametrize("dtype", [object, "str", "category"])
    def test_text_becomes_categories(self, dtype: str) -> None:
        frame = pd.DataFrame({"n": [1, 2, 3], "city": pd.Series(["Rome", "Oslo", None], dtype=dtype)})
        table = as_table(frame)
        np.testing.assert_array_equal(table, [[1, 1], [2, 0], [3, np.nan]])
        assert table.codings == (Coding(), Coding("category", ("Oslo", "Rome")))

    def test_dates_become_days(self) -> None:
        days = [datetime.datetime(2024, 1, 31), None, datetime.datetime(2024, 2, 2)]
        table = as_table(pd.DataFrame({"n": [1, 2, 3], "when": days}))
        np.testing.assert_array_equal(table, [[1, 0], [2, np.nan], [3, 2]])
        assert table.codings == (Coding(), Coding("date", origin="2024-01-31"))

    def test_dictionaries_of_pyarrow_in_pandas_are_categories(self) -> None:
        pa = pytest.importorskip("pyarrow")
        kind = pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string()))
        table = as_table(pd.DataFrame({"city": pd.Series(["Rome", None, "Oslo"], dtype=kind)}))
        assert table.codings == (Coding("category", ("Oslo", "Rome")),)
        np.testing.assert_array_equal(np.asarray(table), [[1], [np.nan], [0]])

    def test_dictionaries_of_numbers(self) -> None:
        pa = pytest.importorskip("pyarrow")
        numbers = pa.array([7, None, 5, 7]).dictionary_encode()
        for data in (pa.table({"n": numbers}), pd.DataFrame({"n": pd.arrays.ArrowExtensionArray(numbers)})):
            table = as_table(data)
            assert table.codings == (Coding("category", (5, 7)),)
            np.testing.assert_array_equal(np.asarray(table), [[1], [np.nan], [0], [1]])

    def test_record_batches_are_tables(self) -> None:
        pa = pytest.importorskip("pyarrow")
        batch = pa.RecordBatch.from_pydict({"age": [3.5, None], "city": ["Rome", "Oslo"]})
        table = as_table(batch)
        assert table.columns == ("age", "city")
        np.testing.assert_array_equal(np.asarray(table), [[3.5, 1], [np.nan, 0]])

    def test_integers_of_128_bits(self) -> None:
        pl = pytest.importorskip("polars")
        table = as_table(pl.DataFrame({"n": pl.Series([3, None, -4], dtype=pl.Int128)}))
        np.testing.assert_array_equal(np.asarray(table), [[3], [np.nan], [-4]])

    def test_infinities_are_named_with_their_column(self) -> None:
        frame = pd.DataFrame({"a": [1.0, 2.0], "b": [0.0, -np.inf]}, index=["x", "y"])
        assert refusal(frame) == "column 2 ('b'), row 2 (index 'y'): -inf is not finite"

    def test_empty_frames_are_refused(self) -> None:
        assert refusal(pd.DataFrame({"a": []})) == "data has no rows"
        assert refusal(pd.DataFrame()) == "data has no rows"
        assert refusal(pd.DataFrame(index=[0, 1])) == "data has no columns"


class TestRefusals:
    def test_infinities(self) -> None:
        assert refusal(np.array([[0, 1], [np.nan, np.inf]])) == "column 2, row 2: inf is not finite"

    def test_wrong_number_of_dimensions(self) -> None:
        one = refusal(np.zeros(5))
        assert one.startswith("data has 1 dimension (shape (5,)), expected rows x columns; for a single row use")
        series = refusal(pd.Series([1, 2]))
        assert series.startswith("data has 1 dimension")
        assert series.endswith(
            "for a single column pass data.to_frame(), for a single row a mapping such as data.to_dict()"
        )
        assert refusal(torch.zeros(2, 3, 4)) == "data has 3 dimensions (shape (2, 3, 4)), expected rows x columns"

    @pytest.mark.parametrize("data", [None, 3.5, "table.csv", {1, 2}])
    def test_things_that_are_no_table(self, data: object) -> None:
        kind, cure = type(data).__name__, "; read the file with load_data" if isinstance(data, str) else ""
        assert refusal(data) == f"data must be a table, rows x columns of numbers, not a {kind}{cure}"

    def test_no_rows_and_no_columns(self) -> None:
        assert refusal([]) == "data has no rows"
        assert refusal(np.zeros((0, 3))) == "data has no rows"
        assert refusal([[], []]) == "data has no columns"

    def test_complex_numbers(self) -> None:
        assert refusal(np.array([[1j, 2]])) == "column 1, row 1: 1j is a complex number, expected a real one"
        assert refusal(torch.tensor([[1j]])) == "column 1, row 1: 1j is a complex number, expected a real one"
        assert refusal([[None, 2j]]) == "column 2, row 1: 2j is a complex number, expected a real one"

    def test_text_arrays(self) -> None:
        assert as_table(np.array([["7", "8"]])).codings == (Coding("category", ("7",)), Coding("category", ("8",)))
        assert refusal(np.array([[b"x"]])) == "column 1, row 1: b'x' is bytes; decode it into text first"
        assert refusal([["x" * 100], [1]]).count("x") < 60

    def test_dates_and_records(self) -> None:
        spans = np.array([[3]], dtype="timedelta64[D]")
        assert refusal(spans).startswith("column 1 holds durations (timedelta64[D]); convert them to numbers first")
        records = np.zeros((1, 1), dtype=[("a", "i4")])
        assert refusal(records) == "column 1 holds records ([('a', '<i4')]), expected numbers"
        assert refusal(records[0]) == (
            "data is a structured array, expected rows x columns; pass {name: data[name] for name in data.dtype.names}"
        )

    def test_columns_without_an_order_of_rows(self) -> None:
        """As evidence for a question, a mapping has likelihoods; a table is no evidence."""
        wanted = "column 2 ('city') is a dict, which has no order of rows; pass a list"
        assert refusal({"age": [3, 4], "city": {"Rome": 0.7, "Oslo": 0.3}}) == wanted
        assert refusal({"city": {"Rome", "Oslo"}}).startswith("column 1 ('city') is a set, which has no order")

    def test_other_objects(self) -> None:
        data = np.empty((1, 1), dtype=object)
        data[0, 0] = {"a": 1}
        assert refusal(data) == "column 1, row 1: {'a': 1} (dict) is not a number, text, true or false, or a date"


def test_the_result_is_a_table() -> None:
    assert isinstance(as_table([[1]]), Table)
