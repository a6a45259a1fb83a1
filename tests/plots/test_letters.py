"""Letters of marked units do not cover one another."""

from __future__ import annotations

import math

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from circurve.plots.circuit import MIN_LETTER_DISTANCE, part_letters
from circurve.reproduction.trained_figures import draw_decomposition

RADIUS, BESIDE = 0.03, 0.095


def panel(*marked: tuple[float, float]) -> Axes:
    """Rings at these places, each with its letter on the left."""
    ax = Figure().subplots()
    ax.add_patch(Circle((0, 0), 0.4, fill=False))  # the frame of the root
    for letter, (x, y) in zip("ABC", marked, strict=False):
        ax.add_patch(Circle((x, y), RADIUS, fill=False))
        ax.text(x - BESIDE, y, letter)
    return ax


def places(ax: Axes) -> list[tuple[float, float]]:
    return [text.get_position() for text in ax.texts]


def assert_apart(ax: Axes) -> None:
    rings = [patch for patch in ax.patches if isinstance(patch, Circle)][-len(ax.texts) :]
    for i, place in enumerate(places(ax)):
        for j, other in enumerate(places(ax)):
            if i != j:
                assert math.dist(place, other) >= MIN_LETTER_DISTANCE
                assert math.dist(place, rings[j].center) >= rings[j].radius + MIN_LETTER_DISTANCE


def test_letters_with_room_stay_where_they_are() -> None:
    ax = panel((0.0, 0.0), (0.5, 0.0), (0.0, 0.5))
    before = places(ax)
    part_letters(ax)
    assert places(ax) == before


@pytest.mark.parametrize("other", [(0.11, 0.02), (0.09, 0.0), (0.0, 0.1), (-0.05, -0.08)])
def test_a_letter_on_anothers_ring_or_letter_turns_about_its_own(other: tuple[float, float]) -> None:
    ax = panel((0.0, 0.0), other)
    before = places(ax)
    part_letters(ax)
    assert places(ax) != before
    assert_apart(ax)
    for (x, y), centre in zip(places(ax), ((0.0, 0.0), other), strict=True):
        assert math.dist((x, y), centre) == pytest.approx(BESIDE)


def test_a_letter_without_any_room_stays() -> None:
    ax = panel((0.0, 0.0), (0.001, 0.0), (0.0, 0.001))
    part_letters(ax)
    assert places(ax)[0] == (-BESIDE, 0.0)


def test_neighbours_in_a_drawn_circuit_can_be_told_apart() -> None:
    units = np.arange(16)
    values = {name: (1.0 + units).tolist() for name in ("flow_squared", "local", "total")}
    data = {
        "parents": [-1, 0],
        "means": {name: [1.0, 8.0] for name in values},
        "units": {"node": [0, *[1] * 15], "unit": [0, *range(15)], **values},
        "all_units": 16,
        "marks": {"A": 0, "B": 7, "C": 8},
    }
    trees = [ax for ax in draw_decomposition(data).axes if ax.texts][:3]
    assert len(trees) == 3
    for ax in trees:
        assert [text.get_text() for text in ax.texts] == ["A", "B", "C"]
        assert_apart(ax)
