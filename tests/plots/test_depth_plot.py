from __future__ import annotations

import numpy as np
from matplotlib.patches import Rectangle
from plot_helpers import curvature_record, legend_texts, panels, render

from circurve import plots


def heights(ax: object) -> list[float]:
    return [round(patch.get_height(), 6) for patch in ax.patches if isinstance(patch, Rectangle)]  # type: ignore[attr-defined]


def test_bars_are_shares_by_depth_and_outlines_shares_of_nodes() -> None:
    record = curvature_record([1, 1, 1, 1], [6.0, 2.0, 1.0, 1.0], depth=[0, 1, 1, 2])
    figure = plots.depth_profile({"model": record}, "total")
    render(figure)
    (ax,) = panels(figure)
    assert heights(ax) == [60, 30, 10, 25, 50, 25]
    assert list(ax.get_xticks()) == [1, 2, 3]
    assert len(legend_texts(figure)) == 2
    assert ax.get_xlabel()
    assert ax.get_ylabel() == "share (%)"


def test_several_seeds_have_whiskers_from_lowest_to_highest() -> None:
    figure = plots.depth_profile({"a": {"share": [[0.5, 0.5], [0.7, 0.3]]}, "b": {"share": [0.9, 0.1]}})
    render(figure)
    first, second = panels(figure)
    assert heights(first) == [60, 40]
    whiskers = first.collections[0].get_segments()  # type: ignore[attr-defined]
    np.testing.assert_allclose(whiskers[0][:, 1], [50, 70])
    assert heights(second) == [90, 10]
    assert not second.collections
    assert len(legend_texts(figure)) == 1


def test_many_partitions_have_few_tick_labels() -> None:
    figure = plots.depth_profile({"a": {"share": np.full(40, 1 / 40)}})
    render(figure)
    assert len(panels(figure)[0].get_xticks()) <= 10
