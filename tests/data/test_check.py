"""Tables against families: what a checked table holds, and which value of which column is refused."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from circurve.data import QuickCheck, Table, as_table, check
from circurve.errors import DataError, OptionError
from circurve.inputs import Bernoulli, Binomial, Categorical, Family, Gaussian, Indicator, Poisson


@dataclass(frozen=True)
class UpTo(Bernoulli):
    """Whole numbers up to a limit: a discrete family of this test's own."""

    limit: int = 1

    def check_values(self, column: np.ndarray) -> str | None:
        wrong = column[column > self.limit]
        return f"{wrong[0]:g} is above {self.limit}" if wrong.size else None


@dataclass(frozen=True)
class Below(Bernoulli):
    """Any number below a limit: a family that is not discrete."""

    name = "below"
    discrete = False
    limit: float = 10

    def check_values(self, column: np.ndarray) -> str | None:
        wrong = column[column >= self.limit]
        return f"{wrong[0]:g} is not below {self.limit:g}" if wrong.size else None


def refusal(data: object, families: list[Bernoulli], **options: object) -> str:
    with pytest.raises(DataError) as caught:
        check(as_table(data, **options), families)  # type: ignore[arg-type]
    message = str(caught.value)
    assert "\n" not in message
    return message


def coded(data: object, families: list[Bernoulli], **options: object) -> Table:
    return check(as_table(data, **options), families)  # type: ignore[arg-type]


class TestDiscreteTables:
    @pytest.mark.parametrize(
        ("largest", "dtype"),
        [
            (1, torch.int8),
            (127, torch.int8),
            (128, torch.int16),
            (32767, torch.int16),
            (32768, torch.int32),
            (2**31 - 1, torch.int32),
        ],
    )
    @pytest.mark.parametrize("given", [np.int64, np.uint64, np.float64])
    def test_the_smallest_type_that_fits_is_used(self, largest: int, dtype: torch.dtype, given: type) -> None:
        table = coded(np.array([[0, largest]], dtype=given), [UpTo(limit=2**31)] * 2)
        assert table.values.dtype == dtype
        assert table.values.tolist() == [[0, largest]]
        assert table.observed is None
        assert table.empty_rows == 0

    def test_nan_is_marked_and_filled_with_zero_and_empty_rows_are_counted(self) -> None:
        table = coded([[1, None], [None, None], [0, 1], [None, None]], [Bernoulli()] * 2)
        assert table.values.dtype == torch.int8
        assert table.values.tolist() == [[1, 0], [0, 0], [0, 1], [0, 0]]
        assert table.observed is not None
        assert table.observed.tolist() == [[True, False], [False, False], [True, True], [False, False]]
        assert table.empty_rows == 2

    def test_the_table_has_memory_of_its_own(self) -> None:
        data = np.array([[0, 1]], dtype=np.int8)
        data.setflags(write=False)
        table = coded(data, [Bernoulli()] * 2)
        table.values[0, 0] = 1
        assert data[0, 0] == 0

    def test_views_with_odd_strides_are_taken(self) -> None:
        data = np.array([[0, 1, 0], [1, 1, 0]])[::-1, ::-2]
        table = coded(data, [Bernoulli()] * 2)
        assert table.values.is_contiguous()
        assert table.values.tolist() == data.tolist()

    def test_a_table_with_nothing_observed_is_allowed(self) -> None:
        table = coded([[None, None]], [Bernoulli()] * 2)
        np.testing.assert_array_equal(table, [[np.nan, np.nan]])
        assert table.empty_rows == 1


class TestMixedTables:
    def test_values_are_float64_with_zero_for_missing(self) -> None:
        data = np.array([[0, 0.5], [np.nan, -3]], dtype=np.float32)
        table = coded(data, [Bernoulli(), Below()])
        assert table.values.dtype == torch.float64
        assert table.values.tolist() == [[0, 0.5], [0, -3]]
        np.testing.assert_array_equal(table, [[0, 0.5], [np.nan, -3]])
        assert table.observed is not None

    def test_integers_are_taken_for_continuous_families(self) -> None:
        table = coded(np.array([[-5], [7]]), [Below()])
        assert table.values.tolist() == [[-5.0], [7.0]]
        assert table.observed is None

    def test_discrete_columns_are_held_to_whole_numbers(self) -> None:
        data = [[0.5, 1], [0.5, 0.25]]
        expected = "column 2, row 2: 0.25 is not a whole number, but bernoulli takes whole numbers >= 0"
        assert refusal(data, [Below(), Bernoulli()]) == expected

    def test_each_family_judges_its_own_columns(self) -> None:
        families = [Below(limit=1), UpTo(limit=3), Below(limit=5), UpTo(limit=3)]
        assert coded([[0.5, 3, 4.5, 3], [None, None, None, 0]], families).empty_rows == 0
        message = refusal([[0.5, 3, 4.5, 3], [None, None, 5, 4]], families)
        assert message == "column 3, row 2: value 5 does not fit Below(limit=5): 5 is not below 5"


class TestMissing:
    def test_a_sentinel_marks_missing_values(self) -> None:
        table = coded(np.array([[0, -1], [1, 1]]), [Bernoulli()] * 2, missing=-1)
        assert table.observed is not None
        np.testing.assert_array_equal(table, [[0, np.nan], [1, 1]])

    def test_any_whole_number_can_be_the_sentinel(self) -> None:
        table = coded(np.array([[0, 255]], dtype=np.uint8), [Bernoulli()] * 2, missing=255)
        np.testing.assert_array_equal(table, [[0, np.nan]])
        assert coded(np.array([[0, 1]], dtype=np.uint8), [Bernoulli()] * 2, missing=-1).observed is None
        assert coded(np.array([[0, 1]]), [Bernoulli()] * 2, missing=10**30).observed is None

    def test_the_sentinel_counts_beside_nan_in_floats(self) -> None:
        table = coded([[-1.0, None, 0.5]], [Bernoulli(), Bernoulli(), Below()], missing=-1)
        np.testing.assert_array_equal(table, [[np.nan, np.nan, 0.5]])

    @pytest.mark.parametrize("missing", [True, 1.5, "NA"])
    def test_other_sentinels_are_refused(self, missing: object) -> None:
        with pytest.raises(OptionError, match="missing must be a whole number or None, not"):
            coded([[0]], [Bernoulli()], missing=missing)

    @pytest.mark.parametrize("kind", [np.array, torch.tensor, list, pd.DataFrame])
    def test_a_mask_marks_missing_values_whatever_they_are(self, kind: type) -> None:
        table = coded([[0, 77], [1, 1]], [Bernoulli()] * 2, missing_mask=kind([[False, True], [False, False]]))
        np.testing.assert_array_equal(table, [[0, np.nan], [1, 1]])
        assert table.observed is not None

    def test_sentinel_mask_and_nan_add_up(self) -> None:
        mask = np.array([[True, False, False, False]])
        table = coded([[1.0, -1.0, np.nan, 1.0]], [Bernoulli()] * 4, missing=-1, missing_mask=mask)
        np.testing.assert_array_equal(table, [[np.nan, np.nan, np.nan, 1]])

    def test_masks_of_another_shape_or_type_are_refused(self) -> None:
        families = [Bernoulli()] * 2
        wrong_shape = refusal([[0, 1]], families, missing_mask=np.zeros((2, 2), dtype=bool))
        assert wrong_shape == "missing_mask must be boolean of shape (1, 2), not bool of shape (2, 2)"
        wrong_type = refusal([[0, 1]], families, missing_mask=[[0, 1]])
        assert wrong_type == "missing_mask must be boolean of shape (1, 2), not int64 of shape (1, 2)"
        ragged = refusal([[0, 1], [0, 1]], families, missing_mask=[[True], [True, False]])
        assert ragged == "missing_mask must be boolean of shape (2, 2), but its rows differ in length"


class TestRefusals:
    def test_wrong_number_of_columns(self) -> None:
        message = refusal(np.zeros((3, 5), dtype=int), [Bernoulli()] * 16)
        assert message == "data has 5 columns, the circuit has 16 variables"

    def test_a_value_out_of_range_is_named_with_row_column_and_family(self) -> None:
        data = np.zeros((50, 4), dtype=np.int64)
        data[17:, 3] = 2
        expected = "column 4, row 18: value 2 does not fit Bernoulli(): 2 is not 0 or 1"
        assert refusal(data, [Bernoulli()] * 4) == expected
        frame = pd.DataFrame(data, columns=["a", "b", "c", "smoker"])
        assert refusal(frame, [Bernoulli()] * 4).startswith("column 4 ('smoker'), row 18: value 2 ")

    def test_rows_are_counted_with_their_missing_neighbours(self) -> None:
        data = [[None], [1], [None], [2], [3]]
        assert refusal(data, [Bernoulli()]).startswith("column 1, row 4: value 2 does not fit")

    @pytest.mark.parametrize("row", [0, 1, 6, 7])
    def test_the_first_wrong_row_is_found_wherever_it_is(self, row: int) -> None:
        data = np.zeros((8, 1), dtype=int)
        data[row:] = 9
        assert refusal(data, [Bernoulli()]).startswith(f"column 1, row {row + 1}: value 9 ")

    def test_negative_values(self) -> None:
        expected = "column 2, row 1: -2 is negative, but bernoulli takes whole numbers >= 0"
        assert refusal([[0, -2]], [Bernoulli()] * 2) == expected
        hint = "; if -1 marks missing values, pass missing=-1"
        assert refusal([[0, -1]], [Bernoulli()] * 2).endswith(hint)

    def test_numbers_that_are_not_whole(self) -> None:
        expected = "column 1, row 2: 0.5 is not a whole number, but bernoulli takes whole numbers >= 0"
        assert refusal([[1.0], [0.5]], [Bernoulli()]) == expected
        assert "-0.5 is not a whole number" in refusal([[1.0], [-0.5]], [Bernoulli()])

    def test_numbers_too_large_to_store(self) -> None:
        expected = "column 1, row 1: 2147483648 is larger than 2147483647, but bernoulli takes whole numbers >= 0"
        assert refusal(np.array([[2**31]]), [Bernoulli()]) == expected
        assert refusal([[2.0**31]], [Bernoulli()]) == expected
        for dtype in (np.int64, np.float32, np.float64):  # also where the family itself has no such limit
            data = np.array([[1], [2**31]], dtype=dtype)
            assert "row 2: 2147483648 is larger than 2147483647" in refusal(data, [UpTo(limit=2**40)])
            assert QuickCheck([UpTo(limit=2**40)])(data) is None


@given(
    arrays.arrays(
        np.float64,
        arrays.array_shapes(min_dims=2, max_dims=2, max_side=6),
        elements=st.sampled_from([0.0, 1.0, 2.0, 200.0, 40000.0, np.nan]),
    )
)
def test_observed_values_and_gaps_survive_the_coding(data: np.ndarray) -> None:
    discrete = coded(data, [UpTo(limit=10**6)] * data.shape[1])
    continuous = coded(data, [Below(limit=10**6)] * data.shape[1])
    gaps = np.isnan(data)
    for table in (discrete, continuous):
        np.testing.assert_array_equal(table, data)
        np.testing.assert_array_equal(table.values.numpy(), np.where(gaps, 0, data))
    for table in (discrete, continuous):
        assert (table.observed is not None) == gaps.any()
        assert table.empty_rows == gaps.all(axis=1).sum()


FAMILIES = [
    *(Bernoulli(), Categorical(2), Categorical(3), Binomial(4), Indicator((0, 1)), Indicator((0, 3)), Poisson()),
    *(UpTo(limit=2), Gaussian()),
]


@given(st.data())
def test_whole_numbers_are_accepted_exactly_where_the_families_take_each_of_them(drawn: st.DataObject) -> None:
    families: list[Family] = drawn.draw(st.lists(st.sampled_from(FAMILIES), min_size=1, max_size=4))
    dtype = drawn.draw(st.sampled_from([np.bool_, np.int8, np.uint8, np.int32, np.int64, np.uint16]))
    values = st.integers(0, 1) if dtype is np.bool_ else st.integers(0 if dtype in (np.uint8, np.uint16) else -1, 5)
    shape = (drawn.draw(st.integers(1, 4)), len(families))
    data = drawn.draw(arrays.arrays(dtype, shape, elements=values))
    data = np.asfortranarray(data) if drawn.draw(st.booleans()) else data
    counts = data.astype(np.float64)
    fits = all(
        family.check_values(counts[row : row + 1, v]) is None and (counts[row, v] >= 0 or not family.discrete)
        for v, family in enumerate(families)
        for row in range(len(counts))
    )
    try:
        table = check(as_table(data), families)
    except DataError:
        assert not fits
    else:
        assert fits
        np.testing.assert_array_equal(table.values.numpy(), counts)
        assert not np.shares_memory(table.values.numpy(), data)


def test_large_tables_are_checked_in_seconds() -> None:
    generator = np.random.default_rng(0)
    for shape in ((300_000, 100), (3_000, 1_500)):
        data = generator.integers(0, 2, shape, dtype=np.int8)
        start = time.process_time()
        coded(data, [Bernoulli()] * shape[1])
        assert time.process_time() - start < 2  # about 0.1 on an idle machine


def test_thousands_of_columns_of_many_families_are_checked_in_seconds() -> None:
    families: list[Bernoulli] = [UpTo(limit=1 + v) if v % 2 else Below(limit=2 + v) for v in range(20_000)]
    data = np.random.default_rng(0).integers(0, 2, (300, 20_000)).astype(np.float32)
    start = time.process_time()
    coded(data, families)
    assert time.process_time() - start < 6  # about 0.3 on an idle machine
