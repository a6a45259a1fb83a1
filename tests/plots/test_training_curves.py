from __future__ import annotations

import numpy as np
from plot_helpers import legend_texts, panels, render

from circurve import plots
from circurve.plots.style import colour


def test_one_line_for_each_method_and_split() -> None:
    histories = {
        "vanilla": {"train": [-3.0, -2.0, -1.5], "test": [-3.2, -2.4, -2.0]},
        "global": {"train": [-3, -2.5, -2]},
    }
    figure = plots.training_curves({"one": histories, "two": histories})
    render(figure)
    assert [ax.get_title() for ax in panels(figure)] == ["one", "two"]
    lines = panels(figure)[0].lines
    assert [line.get_label() for line in lines] == ["vanilla train", "vanilla test", "global train"]
    np.testing.assert_array_equal(lines[0].get_xdata(), [1, 2, 3])
    np.testing.assert_allclose(lines[1].get_ydata(), [-3.2, -2.4, -2.0])
    assert [line.get_color() for line in lines] == [colour("vanilla")] * 2 + [colour("global")]
    assert lines[0].is_dashed()
    assert not lines[1].is_dashed()
    assert legend_texts(figure) == ["vanilla", "global", "train", "test"]
    assert panels(figure)[0].get_xlabel() == "epoch"
    assert "nats" in panels(figure)[0].get_ylabel()


def test_several_seeds_are_a_mean_with_a_band() -> None:
    figure = plots.training_curves({"one": {"vanilla": {"test": [[-4.0, -2.0], [-2.0, -1.0]]}}})
    render(figure)
    (ax,) = panels(figure)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [-3.0, -1.5])
    band = ax.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == -4.0
    assert band[:, 1].max() == -1.0


def test_the_steep_first_epochs_do_not_set_the_scale() -> None:
    values = [-1000.0, *np.linspace(-2, -1, 29)]
    figure = plots.training_curves({"one": {"vanilla": {"train": values}}})
    low, high = panels(figure)[0].get_ylim()
    assert -3 < low < -1.5
    assert -1 < high < 0


def test_an_unknown_log_likelihood_leaves_a_gap() -> None:
    figure = plots.training_curves({"one": {"vanilla": {"test": [None, -2.0, None, -1.0]}}})
    render(figure)
    assert np.isnan(panels(figure)[0].lines[0].get_ydata()).tolist() == [True, False, True, False]
    flat = plots.training_curves(
        {"one": {"vanilla": {"test": [None, None]}}, "two": {"vanilla": {"test": [-1.0, -1.0]}}}
    )
    render(flat)
