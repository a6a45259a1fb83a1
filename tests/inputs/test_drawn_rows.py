"""Rows that units start from: distinct, and in proportion to their weights."""

from itertools import permutations

import numpy as np
import pytest
import torch

from circurve.inputs.common import distinct_rows


def source(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("weights", [None, torch.tensor([5.0, 1e-18, 1.0, 1e18, 0.3], dtype=torch.float64)])
@pytest.mark.parametrize("units", [1, 3, 5, 12])
def test_every_row_is_drawn_before_one_is_drawn_twice(weights: torch.Tensor | None, units: int) -> None:
    found = distinct_rows(5, units, source(), weights).tolist()
    assert len(found) == units
    for start in range(0, units, 5):
        part = found[start : start + 5]
        assert len(set(part)) == len(part)


def test_each_order_has_the_probability_of_drawing_one_row_after_another() -> None:
    weights, draws, randomness = np.array([1.0, 2.0, 5.0]), 20_000, source(1)
    given = torch.from_numpy(weights)
    drawn = [tuple(distinct_rows(3, 3, randomness, given).tolist()) for _ in range(draws)]
    for order in permutations(range(3)):
        first, second, _ = weights[list(order)]
        expected = first / 8 * second / (8 - first)
        assert drawn.count(order) / draws == pytest.approx(expected, abs=0.015)
