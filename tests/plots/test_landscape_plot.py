from __future__ import annotations

import numpy as np
import pytest
from plot_helpers import legend_texts, panels, render

from circurve import plots
from circurve.errors import OptionError
from circurve.plots.style import colour

X, Y = np.linspace(-1, 1, 7), np.linspace(-2, 2, 5)
BOWL = X[None] ** 2 + Y[:, None] ** 2
PATHS = {"vanilla": [[0.9, 1.5], [0.1, 0.2]], "gated": [[0.9, 1.5], [0.5, 0.4], [0.2, 0.2]]}


def test_each_surface_has_all_paths_from_the_start_to_the_end() -> None:
    figure = plots.landscape({"first": X, "second": Y}, {"loss": BOWL, "trace": BOWL + 1}, PATHS, log=["trace"])
    render(figure)
    assert len(panels(figure)) == 2
    assert legend_texts(figure) == ["start", "vanilla", "gated"]
    for ax in panels(figure):
        lines = {line.get_label(): line for line in ax.lines}
        np.testing.assert_allclose(np.transpose(lines["gated"].get_data()), PATHS["gated"])
        assert lines["vanilla"].get_color() == colour("vanilla")
        assert sum(line.get_marker() == "*" for line in ax.lines) == 2
        assert ax.get_xlabel() == "first"
        assert ax.get_xlim() == (-1, 1)
    assert panels(figure)[0].get_ylabel() == "second"
    scales = [ax for ax in figure.axes if ax.get_label() == "<colorbar>"]
    assert [ax.get_xlabel() for ax in scales] == ["loss", "trace"]


def test_values_at_the_ends_are_written_beside_them() -> None:
    ends = {"loss": {"vanilla": 1.23456, "gated": 2.0}}
    figure = plots.landscape({"a": X, "b": Y}, {"loss": BOWL}, PATHS, ends=ends)
    render(figure)
    texts = {text.get_text(): text for text in panels(figure)[0].texts}
    assert set(texts) == {"1.235", "2"}
    heights = [text.xy[1] for text in texts.values()]  # type: ignore[attr-defined]
    assert abs(heights[0] - heights[1]) >= 0.05 * np.ptp(Y)  # both ends lie at 0.2


def test_infinite_and_flat_surfaces_can_be_drawn() -> None:
    wild = np.where(X[None] + 0 * Y[:, None] > 0.5, np.inf, BOWL)
    none = [[None] * len(X)] * len(Y)
    render(
        plots.landscape({"a": X, "b": Y}, {"loss": wild, "flat": np.ones_like(BOWL), "none": none}, PATHS, log=["flat"])
    )


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(OptionError, match=r"surface 'loss' has shape \(7, 5\) for 5 by 7 points"):
        plots.landscape({"a": X, "b": Y}, {"loss": BOWL.T}, PATHS)
    with pytest.raises(OptionError, match="a landscape has two axes, not 1"):
        plots.landscape({"a": X}, {"loss": BOWL}, PATHS)
