"""Data sets that are changed on purpose."""

from __future__ import annotations

import numpy as np
import pytest

from circurve.data import Dataset, as_table
from circurve.reproduction.study_data import corrupted, noisy_cells, selected


def data(rows: int = 2000, seed: int = 0) -> Dataset:
    random = np.random.default_rng(seed)
    values = (random.random((rows, 4)) < [0.5, 0.9, 0.2, 0.35]).astype(np.int64)
    values[:, 3] = values[:, 0]  # two columns that belong together
    return Dataset("made", values[: rows // 2], values[rows // 2 : 3 * rows // 4], values[3 * rows // 4 :])


def test_noise_changes_its_share_of_rows_and_keeps_each_column_as_it_is_spread() -> None:
    before = data().train
    after = noisy_cells(before, rows=0.5, cells=0.8, seed=3)
    left, right = np.asarray(before), np.asarray(after)
    changed = (left != right).any(1).mean()
    assert 0.2 < changed < 0.5  # half of the rows, less those whose new cells are equal to the old ones
    assert right.mean(0) == pytest.approx(left.mean(0), abs=0.05)
    assert (left[:, 0] == left[:, 3]).all()
    assert 0.6 < (right[:, 0] == right[:, 3]).mean() < 0.95
    again = np.asarray(noisy_cells(before, rows=0.5, cells=0.8, seed=3))
    assert (again == right).all()
    assert (np.asarray(noisy_cells(before, rows=0.0, cells=1.0, seed=0)) == left).all()


def test_a_missing_value_moves_with_its_cell() -> None:
    values = np.array([[np.nan, 1.0], [2.0, 3.0], [4.0, np.nan]])
    after = np.asarray(noisy_cells(as_table(values), rows=1.0, cells=1.0, seed=1))
    for column in range(2):
        known = set(values[:, column][~np.isnan(values[:, column])])
        assert set(after[:, column][~np.isnan(after[:, column])]) <= known


def test_corrupted_rows_leave_the_test_rows_alone() -> None:
    whole = data()
    changed = corrupted(0.2, 0.5).change(whole)
    assert (np.asarray(changed.test) == np.asarray(whole.test)).all()
    for part in ("train", "valid"):
        assert (np.asarray(getattr(changed, part)) != np.asarray(getattr(whole, part))).any()
    assert corrupted(0.2, 0.5).name != corrupted(0.1, 0.5).name


def test_selection_keeps_one_in_ten_of_the_rows_with_the_rarer_value_of_the_most_even_column() -> None:
    whole = data()
    changed = selected().change(whole)
    assert (np.asarray(changed.test) == np.asarray(whole.test)).all()
    train, before = np.asarray(changed.train), np.asarray(whole.train)
    common = int(before[:, 0].mean() > 0.5)
    assert (train[:, 0] == common).sum() == (before[:, 0] == common).sum()
    rare = (before[:, 0] != common).sum()
    assert (train[:, 0] != common).sum() == -(-rare // 10)


def test_selection_counts_no_missing_cell_as_a_value() -> None:
    values = np.zeros((100, 3))
    values[:20, 0] = 1  # the most even column of those with values
    values[10:90, 1] = np.nan  # a constant with holes
    values[15:30, 0] = np.nan
    values[:, 2] = np.nan
    table = as_table(values)
    changed = np.asarray(selected().change(Dataset("holes", table, table, table)).train)
    assert (np.nansum(changed[:, 0]), np.isnan(changed[:, 0]).sum(), len(changed)) == (2, 15, 87)
