"""Where in the circuit a quantity is: its share by partitions of the sum depth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import ArrayLike

from circurve.curvature import Curvature
from circurve.curvature import depth_profile as measure
from circurve.curvature.record import By
from circurve.learning.history import FleetResult
from circurve.plots.given import Trained, as_panels, curvature_of
from circurve.plots.style import INK, QUANTITIES, SYMBOLS, entitle, grid_of_panels, legend_above, name_axes

__all__ = ["depth_profile"]

Profile: TypeAlias = Curvature | Mapping[str, ArrayLike]


def depth_profile(
    panels: Trained | FleetResult | Curvature | Mapping[str, Trained | Profile], by: By = "total", *, x: Any = None
) -> Figure:
    """Draw the share of a quantity by depth: one panel for each data set or model.

    Parameters
    ----------
    panels : Model, FitResult, FleetResult, Curvature or mapping
        A fleet has a panel for each run. A mapping has names of panels and one of the other objects for each, or a
        mapping with `share`: one number for each partition, the shallowest first, or a list of such lists, one for each
        seed; bars then show the means and whiskers the range. It may also have `nodes`, the share of the sum nodes in
        each partition: an outline shows what an even spread over the nodes would give.
    by : {"total", "local", "flow"}, default "total"
        "total" is T^, "local" is t^, "flow" is F^2.
    x : array, data frame or Table, optional
        The rows to measure a `Model` or `FitResult` on.

    Returns
    -------
    Figure
        One panel for each name.

    Examples
    --------
    >>> import circurve as cc
    >>> data = cc.load_dataset("digits")
    >>> result = cc.fit(cc.hclt(data.train, units=4), data.train, valid=data.valid, epochs=2)
    >>> figure = cc.plots.depth_profile(result, x=data.train)
    >>> len(figure.axes)
    1
    """
    drawn = {name: curvature_of(given, x) for name, given in as_panels(panels).items()}
    figure, axes = grid_of_panels(len(drawn))
    outlined = False
    for ax, (name, given) in zip(axes, drawn.items(), strict=True):
        entitle(ax, name)
        profile = _measured(given, by) if isinstance(given, Curvature) else given
        outlined |= "nodes" in profile
        _bars(ax, profile, by)
    name_axes(axes, "depth partition (1: root)", "share (%)")
    keys = [Patch(color=QUANTITIES[by], linewidth=0, label=f"share of the sum of {SYMBOLS[by]}")]
    if outlined:
        keys.append(Patch(facecolor="none", edgecolor=INK, linewidth=0.7, label="share of the sum nodes"))
    legend_above(figure, keys)
    return figure


def _measured(curv: Curvature, by: By) -> Mapping[str, ArrayLike]:
    profile = measure(curv, by)
    return {"share": profile.share, "nodes": profile.units / max(int(profile.units.sum()), 1)}


def _bars(ax: Axes, profile: Mapping[str, ArrayLike], by: By) -> None:
    share = 100 * np.atleast_2d(np.asarray(profile["share"], dtype=np.float64))  # (seeds, partitions)
    place = np.arange(1, share.shape[1] + 1)
    mean = share.mean(0)
    ax.bar(place, mean, width=0.8, color=QUANTITIES[by])
    if len(share) > 1:
        spread = np.stack([mean - share.min(0), share.max(0) - mean])
        ax.errorbar(place, mean, spread, fmt="none", ecolor=INK, elinewidth=0.7, capsize=1.5)
    if "nodes" in profile:
        nodes = 100 * np.atleast_2d(np.asarray(profile["nodes"], dtype=np.float64)).mean(0)
        ax.bar(place, nodes, width=0.8, facecolor="none", edgecolor=INK, linewidth=0.7)
    ax.set_xticks(place[:: -(-len(place) // 10)])  # about ten at most, so that their labels do not meet
    ax.set_ylim(bottom=0)
