from __future__ import annotations

import numpy as np
from plot_helpers import curvature_record, panels, render

from circurve import plots
from circurve.plots.decomposition import REGIMES

USE = [1.0, 1e-3, 0.5, 0.01, 0.02]
LOCAL = [2.0, 1e4, 5e3, 30.0, 40.0]
RECORD = curvature_record(USE, LOCAL)


def test_regimes_are_the_corners_of_the_plane() -> None:
    assert plots.find_regimes(np.array(USE), np.array(LOCAL)) == {"A": 0, "B": 1, "C": 2}
    assert plots.find_regimes(np.zeros(0), np.zeros(0)) == {}
    assert set(REGIMES) == {"A", "B", "C"}


def test_units_lie_at_their_logarithms_coloured_by_contribution() -> None:
    figure = plots.decomposition(RECORD)
    render(figure)
    (ax,) = panels(figure)
    dots = ax.collections[0]
    order = np.argsort(RECORD.total, kind="stable")
    np.testing.assert_allclose(dots.get_offsets(), np.log10(np.stack([LOCAL, USE], axis=1))[order])
    np.testing.assert_allclose(dots.get_array(), RECORD.total[order])
    assert [a.get_text() for a in ax.texts if a.get_text() in REGIMES] == ["A", "B", "C"]
    assert "use" in ax.get_ylabel()
    assert "local" in ax.get_xlabel()


def test_along_a_dashed_line_the_product_is_constant() -> None:
    figure = plots.decomposition(RECORD)
    lines = [line for line in panels(figure)[0].lines if line.is_dashed()]
    assert 3 <= len(lines) <= 9
    for line in lines:
        product = np.asarray(line.get_xdata()) + np.asarray(line.get_ydata())
        np.testing.assert_allclose(product, np.round(product[0]), atol=1e-9)


def test_a_mapping_and_marks_of_ones_own_do_as_well() -> None:
    columns = {"flow_squared": USE, "local": LOCAL, "total": RECORD.total}
    figure = plots.decomposition(columns, {"X": 3})
    render(figure)
    (ax,) = panels(figure)
    assert [a.get_text() for a in ax.texts if not a.get_text().startswith("$")] == ["X"]


def test_units_without_use_are_left_out() -> None:
    record = curvature_record([1.0, 0.0, 0.5], [2.0, 3.0, 4.0])
    figure = plots.decomposition(record)
    render(figure)
    assert len(panels(figure)[0].collections[0].get_offsets()) == 2
    render(plots.decomposition(curvature_record([0.0], [3.0])))
    render(plots.decomposition(curvature_record([1.0], [3.0])))


def test_four_panels_mark_the_same_units() -> None:
    parents = [-1, 0, 0]
    trees = {name: [[1.0], [0.5, 0.1], [0.2, 0.3]] for name in ("flow_squared", "local", "total")}
    units = {name: [1.0, 0.1, 0.5, 0.2, 0.3] for name in trees}
    marks = [plots.Mark("A", 0), plots.Mark("B", 1, 1)]
    figure = plots.circuit_panels(parents, trees, units, marks)
    render(figure)
    assert len(panels(figure)) == 4
    for ax in panels(figure):
        assert [t.get_text() for t in ax.texts if t.get_text() in "AB"] == ["A", "B"]
    assert figure.get_supxlabel() == f"A: {REGIMES['A']},   B: {REGIMES['B']}"
    render(plots.circuit_panels(parents, trees, units))


def test_a_narrow_axis_has_plain_numbers() -> None:
    figure = plots.decomposition(curvature_record([0.5, 0.01, 1.0], [3.0, 12.0, 25.0]))
    render(figure)
    labels = [label.get_text() for label in panels(figure)[0].get_xticklabels()]
    assert "$10^{1}$" in labels
    assert not any("." in label for label in labels if label.startswith("$"))
