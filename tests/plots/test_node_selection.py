from __future__ import annotations

import numpy as np
from plot_helpers import legend_texts, panels, render

from circurve import plots


def series(ax: object, by: str) -> np.ndarray:
    (found,) = [c.lines[0] for c in ax.containers if c.get_label() == by]  # type: ignore[attr-defined]
    return np.array([found.get_xdata(), found.get_ydata()])


def test_both_rankings_are_drawn_beside_each_other_against_no_penalty() -> None:
    panel = {"total": [-0.5, -0.7, -0.9], "local": [-0.5, -0.2, 0.1]}
    figure = plots.node_selection({"one": panel, "two": panel}, [1, 0.5, 0.05])
    render(figure)
    ax = panels(figure)[0]
    assert series(ax, "total")[1].tolist() == panel["total"]
    assert series(ax, "local")[1].tolist() == panel["local"]
    assert (series(ax, "total")[0] < series(ax, "local")[0]).all()
    assert [label.get_text() for label in ax.get_xticklabels()] == ["all", "50", "5"]
    assert ax.lines[0].get_ydata() == [0, 0]
    assert "nats" in ax.get_ylabel()
    assert len(legend_texts(figure)) == 3


def test_seeds_become_a_mean_and_fractions_that_are_not_known_are_left_out() -> None:
    runs = [[-0.5, None, -1.0], [-0.7, -0.1, -2.0]]
    figure = plots.node_selection({"one": {"total": runs}}, [1, 0.5, 0.1])
    render(figure)
    np.testing.assert_allclose(series(panels(figure)[0], "total")[1], [-0.6, -1.5])
    np.testing.assert_allclose(series(panels(figure)[0], "total")[0], [0, 2], atol=0.2)
