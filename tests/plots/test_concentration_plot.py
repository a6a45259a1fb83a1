from __future__ import annotations

import dataclasses

import numpy as np
from plot_helpers import curvature_record, legend_texts, panels, render

from circurve import plots

RECORD = curvature_record([1.0, 0.5, 0.25, 0.25], [1.0, 2.0, 4.0, 8.0])  # T^ = 1, 1, 1, 2


def test_curve_of_a_curvature_record_rises_from_zero_to_all() -> None:
    figure = plots.concentration({"model": RECORD}, "total")
    render(figure)
    (ax,) = panels(figure)
    curve = next(line for line in ax.lines if line.get_label() == "total")
    np.testing.assert_allclose(curve.get_xdata(), [0, 25, 50, 75, 100])
    np.testing.assert_allclose(curve.get_ydata(), [0, 40, 60, 80, 100])
    assert ax.get_xlabel().endswith("(%)")
    assert ax.get_ylabel().endswith("(%)")
    assert legend_texts(figure)[1:] == ["90 %", "99 %", "99.99 %"]


def test_marks_say_which_share_of_the_nodes_holds_most() -> None:
    points = [[0, 0], [0.1, 0.5], [0.2, 0.9], [0.4, 0.99], [0.6, 0.9999], [1, 1]]
    figure = plots.concentration({"model": {"local": points}}, "local")
    render(figure)
    (ax,) = panels(figure)
    marks = [line for line in ax.lines if line.get_marker() in ("o", "s", "D")]
    assert [(round(m.get_xdata()[0], 6), round(m.get_ydata()[0], 6)) for m in marks] == [
        (20, 90),
        (40, 99),
        (60, 99.99),
    ]
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["20 %", "40 %", "60 %"]


def test_curves_of_several_seeds_are_all_drawn_and_the_numbers_are_means() -> None:
    curves = [[[0, 0], [share, 0.9999], [1, 1]] for share in (0.1, 0.3)]
    figure = plots.concentration({"a": {"total": curves}, "b": {"total": curves[0]}}, "total")
    render(figure)
    first, second = panels(figure)
    assert sum(line.get_label() == "total" for line in first.lines) == 2
    assert sum(line.get_label() == "total" for line in second.lines) == 1
    legend = first.get_legend()
    assert legend is not None
    assert legend.get_texts()[0].get_text() == "20 %"


def test_other_quantities_to_compare_are_thinner_and_without_marks() -> None:
    figure = plots.concentration({"model": RECORD}, "local", compare=["total", "flow"])
    render(figure)
    (ax,) = panels(figure)
    width = {line.get_label(): line.get_linewidth() for line in ax.lines}
    assert width["total"] < width["local"]
    assert width["flow"] < width["local"]
    assert sum(line.get_marker() in ("o", "s", "D") for line in ax.lines) == 3
    assert len(legend_texts(figure)) == 6


def test_a_curve_that_ends_below_a_level_is_marked_at_its_end() -> None:
    figure = plots.concentration({"model": {"total": [[0, 0], [0.5, 0.6], [1, 0.95]]}}, "total")
    render(figure)
    marks = [line for line in panels(figure)[0].lines if line.get_marker() in ("o", "s", "D")]
    assert [mark.get_xdata()[0] for mark in marks] == [100, 100, 100]


def test_local_curvature_can_be_drawn_by_every_estimator() -> None:
    record = dataclasses.replace(RECORD, local_geometric=np.array([3.0, 1.0, 0.0, 0.0]))
    figure = plots.concentration({"model": record}, "geometric", compare=["mean_trace", "mean_ratio"])
    render(figure)
    (ax,) = panels(figure)
    curve = next(line for line in ax.lines if line.get_label() == "geometric")
    np.testing.assert_allclose(curve.get_ydata(), [0, 75, 100, 100, 100])
    assert "geometric" in legend_texts(figure)[0]
