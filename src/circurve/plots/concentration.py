"""How much of a quantity the largest sum nodes hold: cumulative share against the share of nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike, NDArray

from circurve.curvature import Curvature
from circurve.curvature import concentration as measure
from circurve.curvature.record import By
from circurve.learning.history import FleetResult
from circurve.plots.given import Trained, as_panels, curvature_of
from circurve.plots.style import (
    FAINT,
    HAIR,
    LINE,
    QUANTITIES,
    SMALL_FONT,
    SYMBOLS,
    entitle,
    grid_of_panels,
    legend_above,
    name_axes,
    two_rows,
)

__all__ = ["concentration"]

Curves: TypeAlias = Curvature | Mapping[str, ArrayLike]
Points: TypeAlias = NDArray[np.float64]  # (points, 2)
MARKERS = {0.9: "o", 0.99: "s", 0.9999: "D"}
"""The shares that are marked on the curves."""


def concentration(
    panels: Trained | FleetResult | Curvature | Mapping[str, Trained | Curves],
    by: By = "total",
    compare: Sequence[By] = (),
    *,
    x: Any = None,
) -> Figure:
    """Draw how much of a quantity the largest nodes hold: one panel for each data set or model.

    Marks, and the numbers next to them, show which share of the nodes holds 90, 99 and 99.99 %. The diagonal is an even
    spread over the nodes.

    Parameters
    ----------
    panels : Model, FitResult, FleetResult, Curvature or mapping
        A fleet has a panel for each run. A mapping has names of panels and one of the other objects for each, or a
        mapping from a quantity to its curve: a list of points (share of nodes, cumulative share), or a list of such
        curves, one for each seed. All curves are drawn, and the numbers are means.
    by : str, default "total"
        "total" is T^, "local" is t^, "flow" is F^2; or the name of an estimator of t^, such as "geometric".
    compare : sequence of str, default ()
        Further quantities, drawn thin and without marks.
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
    >>> figure = cc.plots.concentration({"digits": result}, compare=["local"], x=data.train)
    >>> len(figure.axes)
    1
    """
    drawn = {name: curvature_of(given, x) for name, given in as_panels(panels).items()}
    figure, axes = grid_of_panels(len(drawn))
    for ax, (name, given) in zip(axes, drawn.items(), strict=True):
        entitle(ax, name)
        ax.plot([0, 100], [0, 100], color=FAINT, linewidth=HAIR, zorder=1)
        for other in compare:
            _draw(ax, _points(given, other), other, HAIR * 1.5)
        curves = _points(given, by)
        _draw(ax, curves, by, LINE)
        _mark(ax, curves, by)
        ax.set_xlim(-1, 101)
        ax.set_ylim(0, 103)
        ax.set_xticks([0, 25, 50, 75, 100])
        ax.set_yticks([0, 25, 50, 75, 100])
    name_axes(axes, "share of sum nodes (%)", "cumulative share (%)")
    lines = [
        Line2D([], [], color=QUANTITIES[q], linewidth=LINE if q == by else HAIR * 1.5, label=f"nodes by {SYMBOLS[q]}")
        for q in (by, *compare)
    ]
    marks = [_mark_key(by, marker, f"{100 * level:g} %") for level, marker in MARKERS.items()]
    if len(axes) == 1 and compare:  # one row would be wider than the panel
        legend_above(figure, two_rows(lines, marks), max(len(lines), len(marks)))
    else:
        legend_above(figure, [*lines, *marks])
    return figure


def _points(given: Curves, by: By) -> list[Points]:  # one for each seed
    if isinstance(given, Curvature):
        curve = measure(given, by)
        return [np.stack([curve.curve_nodes, curve.curve_share], axis=1)]
    stored = given[by]
    curves: list[ArrayLike] = list(stored) if np.ndim(stored[0]) == 2 else [stored]  # type: ignore[arg-type, index]
    return [np.asarray(curve, dtype=np.float64) for curve in curves]


def _draw(ax: Axes, curves: Sequence[Points], by: By, width: float) -> None:
    for curve in curves:
        ax.plot(100 * curve[:, 0], 100 * curve[:, 1], color=QUANTITIES[by], linewidth=width, label=by)


def _mark(ax: Axes, curves: Sequence[Points], by: By) -> None:
    """Marks on the curves, and the share of the nodes at each, below the diagonal, where there is no curve."""
    keys = []
    for level, marker in MARKERS.items():
        reached = 100 * float(np.mean([_reaches(curve, level) for curve in curves]))
        place = _mark_key(by, marker, "")
        place.set_data([reached], [100 * level])
        place.set_clip_on(False)
        place.set_zorder(3)
        ax.add_line(place)
        keys.append(_mark_key(by, marker, f"{reached:.2g} %" if reached < 99.5 else f"{reached:.0f} %"))
    ax.legend(handles=keys, loc="lower right", fontsize=SMALL_FONT, frameon=False, handletextpad=0.1, borderaxespad=0.2)


def _reaches(curve: Points, level: float) -> float:
    """The share of the nodes at which a curve first holds `level`, up to rounding."""
    place = int(np.searchsorted(curve[:, 1], level * (1 - 1e-9)))
    return float(curve[min(place, len(curve) - 1), 0])


def _mark_key(by: By, marker: str, label: str) -> Line2D:
    return Line2D(
        [], [], linestyle="none", label=label, color=QUANTITIES[by], marker=marker, markersize=4.0,
        markeredgecolor="white", markeredgewidth=0.6,
    )  # fmt: skip
