"""How long to train by default."""

from __future__ import annotations

import pytest

from circurve.learning.recipe import best_epochs


@pytest.mark.parametrize(
    ("rows", "epochs"),
    [(10, 100), (4_999, 100), (5_000, 150), (20_000, 150), (40_000, 75), (150_000, 20), (10**9, 20)],
)
def test_epochs_by_the_number_of_rows(rows, epochs):
    assert best_epochs(rows) == epochs
