"""What a penalty on some of the nodes does to the fit, when they are chosen by T^ and when they are chosen by t^."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from circurve.errors import OptionError
from circurve.learning.history import FleetResult
from circurve.plots.given import changes_of
from circurve.plots.style import INK, LINE, QUANTITIES, SYMBOLS, entitle, grid_of_panels, legend_above, name_axes

__all__ = ["node_selection"]

MARKERS = {"total": "o", "local": "s"}


def node_selection(
    panels: FleetResult | Mapping[str, Mapping[str, ArrayLike]], fractions: Sequence[float] | None = None
) -> Figure:
    """Draw what a penalty on some of the nodes changes in the test log-likelihood: one panel for each data set.

    Parameters
    ----------
    panels : FleetResult or mapping
        A fleet with test scores has one panel: its runs with `gates.top_fraction(q, by)` minus those with `Vanilla()`
        of the same seed. In a mapping, panels[data set]["total"] and ["local"] have a change for each fraction, with
        nodes ranked by T^ and by t^; or a list of such lists, one for each seed: marks then show the means and whiskers
        the range. NaN leaves a fraction out.
    fractions : sequence of float, optional
        Needed with a mapping: the shares of the nodes that were penalised, in the order in which they are drawn.

    Returns
    -------
    Figure
        One panel for each data set.

    Raises
    ------
    OptionError
        If the fractions of a mapping, or the runs of a fleet, are missing.

    Examples
    --------
    >>> import circurve as cc
    >>> changes = {"total": [0.1, 0.3], "local": [0.0, 0.2]}
    >>> figure = cc.plots.node_selection({"digits": changes}, fractions=[0.1, 1.0])
    >>> [label.get_text() for label in figure.axes[0].get_xticklabels()]
    ['10', 'all']
    """
    if isinstance(panels, FleetResult):
        changes, fractions = changes_of(panels)
        panels = {"": changes}
    if fractions is None:
        raise OptionError("node_selection needs panels and fractions=, or a FleetResult")
    figure, axes = grid_of_panels(len(panels))
    for ax, (name, series) in zip(axes, panels.items(), strict=True):
        entitle(ax, name)
        ax.axhline(0, color=INK, linewidth=0.7, dashes=(4, 2))
        for shift, by in ((-0.08, "total"), (0.08, "local")):
            if by in series:
                _series(ax, np.asarray(series[by], dtype=np.float64), by, shift)
        ax.set_xticks(range(len(fractions)), ["all" if q == 1 else f"{100 * q:g}" for q in fractions])
        ax.set_xlim(-0.4, len(fractions) - 0.6)
    name_axes(axes, "penalised sum nodes (%)", "change of test\nlog-likelihood (nats)")
    keys = []
    for by, marker in MARKERS.items():
        label = f"largest {SYMBOLS[by]}"
        keys.append(Line2D([], [], color=QUANTITIES[by], marker=marker, markersize=4, linewidth=LINE, label=label))
    unpenalised = Line2D([], [], color=INK, linewidth=0.7, dashes=(4, 2), label="no penalty")
    legend_above(figure, [*keys, unpenalised])
    return figure


def _series(ax: Axes, values: np.ndarray, by: str, shift: float) -> None:
    runs = np.atleast_2d(values)  # (seeds, fractions)
    shown = np.isfinite(runs).all(0)
    place = np.flatnonzero(shown) + shift
    runs = runs[:, shown]
    mean = runs.mean(0)
    spread = np.stack([mean - runs.min(0), runs.max(0) - mean]) if len(runs) > 1 else None
    ax.errorbar(
        place, mean, spread, color=QUANTITIES[by], marker=MARKERS[by], markersize=4, linewidth=LINE,
        elinewidth=0.7, capsize=1.5, markeredgecolor="white", markeredgewidth=0.5, label=by,
    )  # fmt: skip
