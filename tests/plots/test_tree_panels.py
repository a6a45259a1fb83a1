from __future__ import annotations

import numpy as np
import pytest
from matplotlib.collections import PatchCollection
from plot_helpers import panels, render

from circurve import plots
from circurve.errors import OptionError
from circurve.plots.tree import lay_out, log_colours, log_ticks

PARENTS = [-1, 0, 0, 1]
USE = [[1.0], [0.1, 0.4], [0.3, 0.2], [0.05, 0.5]]
LOCAL = [[2.0], [10.0, 40.0], [30.0, 20.0], [5.0, 50.0]]


def cells(ax: object) -> PatchCollection:
    (found,) = [c for c in ax.collections if isinstance(c, PatchCollection)]  # type: ignore[attr-defined]
    return found


def test_panels_share_coordinates_and_the_order_of_units() -> None:
    figure = plots.tree_panels(PARENTS, {"use": USE, "local": LOCAL})
    render(figure)
    first, second = panels(figure)
    assert [ax.get_title() for ax in (first, second)] == ["use", "local"]
    np.testing.assert_allclose(cells(first).get_array(), [1.0, 0.4, 0.1, 0.3, 0.2, 0.5, 0.05])
    np.testing.assert_allclose(cells(second).get_array(), [2.0, 40.0, 10.0, 30.0, 20.0, 50.0, 5.0])
    for a, b in zip(cells(first).get_paths(), cells(second).get_paths(), strict=True):
        np.testing.assert_array_equal(a.vertices, b.vertices)
    assert len(first.collections[0].get_segments()) == 3  # type: ignore[attr-defined]


def test_nodes_with_too_many_units_for_their_place_are_discs_of_the_mean() -> None:
    parents = [-1, *range(299)]
    values = [np.arange(1.0, 101.0)] * 300
    figure = plots.tree_panels(parents, dict.fromkeys(("use", "local", "total"), values))
    render(figure)
    shown = cells(panels(figure)[0]).get_array()
    assert shown is not None
    np.testing.assert_allclose(shown, np.full(300, 50.5))


def test_cells_do_not_overlap() -> None:
    drawing = lay_out(PARENTS, [np.array(v) for v in USE], 3.0)
    assert drawing.by_unit
    gaps = np.abs(drawing.place[:, None] - drawing.place[None]).max(-1)
    assert gaps[~np.eye(4, dtype=bool)].min() > drawing.size


def test_marks_have_letters_in_every_panel() -> None:
    marks = [plots.Mark("A", 0), plots.Mark("B", 3, 1)]
    figure = plots.tree_panels(PARENTS, {"use": USE, "local": LOCAL}, marks)
    render(figure)
    for ax in panels(figure):
        assert [text.get_text() for text in ax.texts] == ["A", "B"]


def test_zeros_and_unknown_values_take_a_colour_too() -> None:
    values = [[0.0], [None, 2.0], [0.0, 0.0], [1.0, 3.0]]
    render(plots.tree_panels(PARENTS, {"total": values}))
    render(plots.tree_panels(PARENTS, {"total": [[0.0]] * 4}))
    render(plots.tree_panels([-1], {"total": [[1.0]]}))


def test_values_for_another_number_of_nodes_are_refused() -> None:
    with pytest.raises(OptionError, match="values for 2 nodes, the tree has 4"):
        plots.tree_panels(PARENTS, {"use": [[1.0], [2.0]]})


def test_colours_leave_out_single_extremes() -> None:
    values = np.concatenate([[1e-9], np.full(500, 1.0), np.full(500, 2.0), [1e9]])
    norm = log_colours(values)
    assert norm.vmin is not None
    assert norm.vmax is not None
    assert 0.9 < norm.vmin < 1
    assert 2 < norm.vmax < 2.2


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (1e-3, 1e3, [1e-3, 1e-1, 1e1, 1e3]),
        (0.9, 11.0, [1, 2, 5, 10]),
        (0.15, 0.33, [0.15, 0.2, 0.3]),
        (1.01, 1.05, [1.01, np.sqrt(1.01 * 1.05), 1.05]),
    ],
)
def test_ticks_are_round_and_few(low: float, high: float, ticks: list[float]) -> None:
    np.testing.assert_allclose(log_ticks(low, high), ticks)
