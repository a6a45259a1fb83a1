from __future__ import annotations

import ast
import struct
from pathlib import Path

import matplotlib
import pytest
from matplotlib.lines import Line2D
from plot_helpers import curvature_record, render

from circurve import plots
from circurve.plots.style import COLUMN, PAGE, colour, entitle, grid_of_panels, legend_above, name_axes, two_rows


@pytest.mark.parametrize(("count", "columns"), [(1, 1), (2, 2), (3, 3), (4, 2), (5, 3), (6, 3), (7, 4), (20, 4)])
def test_panels_stand_in_rows_that_fit_the_page(count: int, columns: int) -> None:
    figure, axes = grid_of_panels(count)
    assert len(axes) == count
    assert axes[0].get_subplotspec().get_geometry()[1] == columns  # type: ignore[union-attr]
    assert figure.get_figwidth() == (COLUMN if count == 1 else PAGE)
    name_axes(axes, "across", "up")
    assert [bool(ax.get_ylabel()) for ax in axes] == [i % columns == 0 for i in range(count)]
    assert [bool(ax.get_xlabel()) for ax in axes] == [i + columns >= count for i in range(count)]
    render(figure)


def test_the_three_methods_have_colours_of_their_own() -> None:
    methods = {colour(label) for label in ("vanilla", "global", "gated")}
    assert len(methods) == 3
    assert methods.isdisjoint({colour("other", i) for i in range(10)})


def test_no_global_setting_changes() -> None:
    before = matplotlib.rcParams.copy()
    render(plots.training_curves({"a": {"vanilla": {"train": [-2, -1]}}}))
    render(plots.decomposition(curvature_record([1.0, 0.5], [2.0, 3.0])))
    assert matplotlib.rcParams.copy() == before


@pytest.mark.parametrize("path", sorted(Path(plots.__file__).parent.glob("*.py")), ids=lambda path: path.stem)
def test_pyplot_is_not_imported(path: Path) -> None:
    imports = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert not [node for node in imports if "pyplot" in ast.unparse(node)]


def test_legend_stands_above_the_panels() -> None:
    figure, axes = grid_of_panels(2)
    entitle(axes[0], "name")
    legend_above(figure, [Line2D([], [], label="one"), Line2D([], [], label="two")])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one", "two"]
    render(figure)
    assert figure.legends[0].get_window_extent().y0 >= axes[0].get_window_extent().y1


def test_every_public_name_is_there() -> None:
    assert all(hasattr(plots, name) for name in plots.__all__)


def test_a_notebook_shows_a_picture_without_any_setting() -> None:
    figure = plots.decomposition(curvature_record([1.0, 0.5], [2.0, 3.0]))
    data, size = figure._repr_png_()
    width, height = struct.unpack(">II", data[16:24])
    assert (width / 2, height / 2) == pytest.approx((size["width"], size["height"]), abs=1)


def test_two_rows_of_a_legend_are_filled_column_by_column() -> None:
    names = [handle.get_label() for handle in two_rows([key("a"), key("b")], [key("1"), key("2"), key("3")])]
    assert names == ["a", "1", "b", "2", " ", "3"]


def key(label: str) -> Line2D:
    return Line2D([], [], label=label)
