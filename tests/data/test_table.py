"""A table reads like a numpy array, and also has names, missing values, weights and labels."""

from __future__ import annotations

import operator
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import circurve as cc
from circurve.data import Table, as_table, check
from circurve.errors import DataError, OptionError
from circurve.inputs import Bernoulli, Categorical, Gaussian

WHOLE = np.array([[0, 1, 2], [3, 4, 5], [6, 7, 8], [1, 1, 1]], dtype=np.int8)
GAPS = np.where(WHOLE == 4, np.nan, WHOLE).astype(np.float32)
SOURCES = {
    "whole": (as_table(WHOLE), WHOLE),
    "integers with gaps": (as_table(WHOLE, missing=4), GAPS),
    "floats with gaps": (as_table(GAPS), GAPS),
}
both = pytest.mark.parametrize(("table", "array"), SOURCES.values(), ids=SOURCES)


def full_table() -> Table:
    frame = pd.DataFrame(WHOLE, columns=["a", "b", "c"])
    return as_table(frame, weights=[1, 2, 3, 4], labels=[0, 1, 0, 1], missing=4)


class TestLikeAnArray:
    @both
    def test_it_has_the_shape_type_and_values_of_the_array(self, table: Table, array: np.ndarray) -> None:
        np.testing.assert_array_equal(np.asarray(table), array, strict=True)
        assert (table.shape, table.dtype, len(table)) == (array.shape, array.dtype, len(array))
        assert (table.ndim, table.size) == (2, 12)

    @both
    @pytest.mark.parametrize(
        "key",
        [
            *(0, -1, (1, 1), (0, 2), (slice(None), 1), (slice(1, 3), slice(None, 2)), ([0, 2], 1), (..., 0), None),
            *(np.eye(4, 3, dtype=bool), (torch.tensor([3, 1]), 0)),
        ],
        ids=str,
    )
    def test_parts_that_are_not_rows_are_arrays_and_numbers(self, table: Table, array: np.ndarray, key: Any) -> None:
        found = table[key]
        assert not isinstance(found, Table)
        assert type(found) is type(array[key])
        np.testing.assert_array_equal(found, array[key])

    @both
    @pytest.mark.parametrize(
        "key",
        [
            *(slice(2), slice(None, None, -1), slice(3, 0, -2), [2, 0, 0], [-1], [], [True, False, False, True]),
            *(np.array([1, 0], dtype=np.uint8), np.array([0, 1, 1, 0], dtype=bool), torch.tensor([3, 1])),
        ],
        ids=str,
    )
    def test_a_choice_of_rows_is_a_table(self, table: Table, array: np.ndarray, key: Any) -> None:
        found = table[key]
        assert isinstance(found, Table)
        np.testing.assert_array_equal(found, array[key], strict=True)

    def test_rows_that_are_not_there_are_refused(self) -> None:
        table = as_table(WHOLE)
        for key in ([4], [True, False], 7, (0, 3)):
            with pytest.raises(IndexError):
                table[key]
        with pytest.raises(TypeError):
            table[[0.5, 1.5]]

    @both
    def test_methods_are_those_of_the_array(self, table: Table, array: np.ndarray) -> None:
        for name in ("mean", "sum", "max", "std"):
            np.testing.assert_array_equal(getattr(table, name)(axis=0), getattr(array, name)(axis=0))
        np.testing.assert_array_equal(table.astype(np.float64), array.astype(np.float64))
        np.testing.assert_array_equal(table.T, array.T)
        np.testing.assert_array_equal(np.nanmean(table, axis=1), np.nanmean(array, axis=1))
        np.testing.assert_array_equal(np.concatenate([table, table]), np.concatenate([array, array]))
        np.testing.assert_array_equal(np.array(list(table)), array)

    @both
    @pytest.mark.parametrize("name", ["sub", "mul", "truediv", "lt", "le", "gt", "ge", "eq", "ne", "mod", "floordiv"])
    def test_operators_are_those_of_the_array_from_both_sides(self, table: Table, array: np.ndarray, name: str) -> None:
        apply = getattr(operator, name)
        for other in (2, array + 1):
            np.testing.assert_array_equal(apply(table, other), apply(array, other))
            np.testing.assert_array_equal(apply(other, as_table(array + 1)), apply(other, array + 1))
        np.testing.assert_array_equal(apply(table, as_table(array + 1)), apply(array, array + 1))

    @both
    def test_sums_signs_and_products_are_those_of_the_array(self, table: Table, array: np.ndarray) -> None:
        np.testing.assert_array_equal(table + 1, array + 1)
        np.testing.assert_array_equal(1 + table, 1 + array)
        np.testing.assert_array_equal(-table, -array)
        np.testing.assert_array_equal(abs(table), abs(array))
        np.testing.assert_array_equal(table**2, array**2)
        np.testing.assert_array_equal(table @ np.ones(3), array @ np.ones(3))
        assert 7 in table
        assert 9 not in table

    def test_boolean_operators_are_those_of_the_array(self) -> None:
        bits = WHOLE % 2
        table = as_table(bits)
        np.testing.assert_array_equal(table & 1, bits & 1)
        np.testing.assert_array_equal(1 | table, 1 | bits)
        np.testing.assert_array_equal(table ^ bits, bits ^ bits)
        np.testing.assert_array_equal(~table, ~bits)

    def test_other_attributes_are_errors(self) -> None:
        with pytest.raises(AttributeError, match="'Table' object has no attribute 'has_missing'"):
            _ = as_table(WHOLE).has_missing

    def test_it_has_no_hash_like_an_array(self) -> None:
        with pytest.raises(TypeError, match="unhashable"):
            hash(as_table(WHOLE))


class TestMemory:
    def test_the_array_is_a_view_that_cannot_be_written(self) -> None:
        source = WHOLE.copy()
        view = np.asarray(as_table(source))
        assert np.shares_memory(view, source)
        with pytest.raises(ValueError, match="read-only"):
            view[0, 0] = 9
        with pytest.raises(ValueError, match="read-only"):
            as_table(source)[0][1] = 9
        assert source.flags.writeable

    @both
    def test_a_table_does_not_change(self, table: Table, array: np.ndarray) -> None:
        with pytest.raises(TypeError, match=r"a Table cannot be changed: make a copy with np\.array"):
            table[0] = 1
        with pytest.raises(ValueError, match="read-only"):
            table.sort()
        np.testing.assert_array_equal(table, array)

    @both
    def test_a_copy_is_the_callers_own(self, table: Table, array: np.ndarray) -> None:
        for copy in (np.array(table), np.asarray(table, dtype=np.float64), table[:, [0, 1]]):
            copy[:] = 0
        np.testing.assert_array_equal(table, array)

    def test_reading_without_a_copy_is_refused_where_one_is_needed(self) -> None:
        whole, gaps = as_table(WHOLE), as_table(GAPS)
        assert np.shares_memory(np.asarray(whole, copy=False), WHOLE)
        for table, dtype in ((gaps, None), (whole, np.float64)):
            with pytest.raises(ValueError, match="cannot be read without a copy"):
                np.asarray(table, dtype=dtype, copy=False)

    def test_fields_move_to_a_device_together(self) -> None:
        table = full_table()
        moved = table.to("meta")
        fields = (moved.values, moved.observed, moved.weights, moved.labels)
        assert all(field is not None and field.device.type == "meta" for field in fields)
        assert (moved.columns, moved.missing) == (table.columns, table.missing)
        assert table.values.device.type == "cpu"

    @pytest.mark.gpu
    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
    def test_a_table_on_a_gpu_reads_the_same(self) -> None:
        moved = full_table().to("cuda")
        np.testing.assert_array_equal(moved, GAPS)
        np.testing.assert_array_equal(moved[[2, 0]], GAPS[[2, 0]])

    def test_tables_are_pickled_whole(self) -> None:
        table = check(full_table(), [Categorical(9)] * 3, outputs=2)
        again = pickle.loads(pickle.dumps(table))
        np.testing.assert_array_equal(again, GAPS)
        assert again.schema == table.schema
        assert again.columns == ("a", "b", "c")
        assert again.weights.tolist() == [1, 2, 3, 4]
        assert again.labels.tolist() == [0, 1, 0, 1]


class TestWhatBelongsToRows:
    def test_chosen_rows_keep_names_weights_labels_and_gaps(self) -> None:
        part = full_table()[[3, 1]]
        assert part.columns == ("a", "b", "c")
        assert part.weights.tolist() == [4, 2]
        assert part.labels.tolist() == [1, 1]
        assert part.observed.tolist() == [[True] * 3, [True, False, True]]

    def test_the_given_weights_are_copied(self) -> None:
        weights = np.ones(4)
        table = as_table(WHOLE, weights=weights)
        weights[0] = 7
        assert table.weights is not None
        assert table.weights.tolist() == [1, 1, 1, 1]

    @pytest.mark.parametrize("name", ["weights", "labels", "missing"])
    def test_what_a_table_has_is_not_given_again(self, name: str) -> None:
        value = 4 if name == "missing" else [0, 1, 0, 1]
        with pytest.raises(OptionError, match=f"^{name}= is given twice"):
            as_table(full_table(), **{name: value})

    def test_a_mask_may_hide_more_values_of_a_table(self) -> None:
        mask = np.zeros(WHOLE.shape, dtype=bool)
        mask[0, 0] = True
        table = as_table(full_table(), missing_mask=mask)
        expected = GAPS.copy()
        expected[0, 0] = np.nan
        np.testing.assert_array_equal(table, expected)
        np.testing.assert_array_equal(full_table(), GAPS)

    def test_examples_are_tables(self) -> None:
        table = cc.Examples(WHOLE, [1, 2, 3, 4], [0, 1, 0, 1], 4)
        assert isinstance(table, cc.Table)
        assert table.weights is not None
        assert table.labels is not None
        assert (table.weights.dtype, table.labels.dtype) == (torch.float64, torch.int64)
        np.testing.assert_array_equal(table, GAPS)

    def test_no_rows_are_no_data(self) -> None:
        with pytest.raises(DataError, match="data has no rows"):
            as_table(as_table(WHOLE)[:0])

    def test_the_description_is_for_people(self) -> None:
        assert repr(as_table(WHOLE)) == "<Table: 4 rows x 3 columns; int8>"
        expected = "<Table: 4 rows x 3 columns; int8; columns a, b, c; 1 value missing; weights; labels>"
        assert repr(full_table()) == expected
        wide = as_table(pd.DataFrame(np.zeros((1, 7)), columns=list("abcdefg")))
        assert "columns a, b, c, d, e, ...>" in repr(wide)


class TestConcatenation:
    def test_rows_follow_one_another_with_all_that_belongs_to_them(self) -> None:
        table = full_table()
        joined = table[:1] + table[1:]
        assert isinstance(joined, Table)
        np.testing.assert_array_equal(joined, GAPS, strict=True)
        assert joined.weights.tolist() == [1, 2, 3, 4]
        assert joined.labels.tolist() == [0, 1, 0, 1]
        assert (joined.columns, joined.missing) == (table.columns, 4)

    def test_rows_without_weights_count_once_and_rows_without_gaps_are_observed(self) -> None:
        joined = as_table(WHOLE[:2]) + as_table(GAPS, weights=[5, 6, 7, 8])
        assert joined.weights.tolist() == [1, 1, 5, 6, 7, 8]
        np.testing.assert_array_equal(joined, np.concatenate([WHOLE[:2], GAPS]))
        assert (as_table(WHOLE) + as_table(WHOLE)).observed is None

    def test_labels_of_one_alone_are_dropped(self) -> None:
        assert (full_table() + as_table(WHOLE)).labels is None

    def test_names_come_from_the_table_that_has_them(self) -> None:
        assert (as_table(WHOLE) + full_table()).columns == ("a", "b", "c")

    def test_other_columns_are_refused(self) -> None:
        with pytest.raises(DataError, match="tables of 3 and 2 columns cannot be joined"):
            as_table(WHOLE) + as_table(WHOLE[:, :2])
        renamed = replace(full_table(), columns=("a", "c", "b"))
        with pytest.raises(DataError, match="tables with different columns cannot be joined"):
            full_table() + renamed

    def test_a_schema_is_kept_if_both_have_it(self) -> None:
        families = [Categorical(300)] * 3
        small, large = (check(as_table(rows), families) for rows in (WHOLE, WHOLE.astype(int) + 200))
        assert (small + large).schema == small.schema is not None
        np.testing.assert_array_equal(small + large, np.concatenate([WHOLE, WHOLE.astype(int) + 200]))
        assert (small + as_table(WHOLE)).schema is None


class TestSchema:
    def test_it_says_what_the_values_were_checked_against(self) -> None:
        families = [Categorical(9), Gaussian(), Categorical(9)]
        table = check(as_table(pd.DataFrame(WHOLE, columns=["a", "b", "c"])), families)
        assert table.schema is not None
        assert [(column.name, column.family) for column in table.schema.columns] == list(
            zip(["a", "b", "c"], families, strict=True)
        )
        unnamed = check(as_table(WHOLE), families).schema
        assert unnamed is not None
        assert [column.name for column in unnamed.columns] == [None] * 3

    def test_a_checked_table_is_not_encoded_again_for_the_same_families(self) -> None:
        table = check(as_table(WHOLE), [Categorical(9)] * 3)
        assert check(table, [Categorical(9)] * 3).values is table.values
        with pytest.raises(DataError, match=r"column 1, row 2: value 3 does not fit Bernoulli\(\)"):
            check(table, [Bernoulli()] * 3)

    def test_a_checked_table_with_gaps_can_be_checked_for_other_families(self) -> None:
        table = check(as_table(GAPS), [Categorical(9)] * 3)
        again = check(table, [Gaussian(), Categorical(10), Gaussian()])
        assert again.values.dtype == torch.float64
        np.testing.assert_array_equal(again, GAPS)

    def test_labels_are_checked_against_the_outputs_each_time(self) -> None:
        table = check(full_table(), [Categorical(9)] * 3, outputs=2)
        with pytest.raises(DataError, match="the label of row 2 is 1; the circuit has outputs 0 to 0"):
            check(table, [Categorical(9)] * 3, outputs=1)

    def test_a_part_in_which_nothing_is_missing_has_no_gaps_once_checked(self) -> None:
        assert check(as_table(GAPS)[2:], [Categorical(9)] * 3).observed is None
