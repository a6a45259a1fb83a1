"""Which strength of the penalty is best: log-likelihood by mu, a line for each method, plain EM as a level."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from circurve.learning.history import FleetResult
from circurve.plots.given import scores_by_mu
from circurve.plots.style import INK, LINE, METHODS, OTHERS, grid_of_panels, legend_above, name_axes

__all__ = ["strengths"]

WORDS = {"valid": "validation", "test": "test", "train": "training"}

MAX_LABEL = 18
"""The longest labels, in letters, with which three panels fit next to each other."""

SHIFT = 0.1
"""The distance between lines, so that none hides another."""


def strengths(fleet: FleetResult) -> Figure:
    """Draw the log-likelihood by mu, for each method and gate.

    Rows are those of validation, else of the test, else of the training. Dots are means over seeds, whiskers reach from
    the lowest to the highest, and a ring marks the best mean of a method. Runs that failed are left out.

    Parameters
    ----------
    fleet : FleetResult
        With runs of `Global(mu)` or `Gated(mu)`.

    Returns
    -------
    Figure
        One panel.

    Raises
    ------
    OptionError
        If no run has a mu.

    Examples
    --------
    >>> import circurve as cc
    >>> data = cc.load_dataset("digits")
    >>> runs = [cc.Run(cc.Vanilla()), cc.Run(cc.Gated(mu=0.01)), cc.Run(cc.Gated(mu=0.1))]
    >>> fleet = cc.fit_fleet(cc.hclt(data.train, units=4), data.train, runs, valid=data.valid, epochs=2)
    >>> figure = cc.plots.strengths(fleet)
    >>> [label.get_text() for label in figure.axes[0].get_xticklabels()]
    ['0.01', '0.1']
    """
    split, levels, lines = scores_by_mu(fleet)
    figure, (ax,) = grid_of_panels(1, height=2.0)
    handles = []
    for label, seeds in levels.items():
        ax.axhline(float(seeds.mean()), color=METHODS["vanilla"], linewidth=LINE, dashes=(4, 2))
        handles.append(Line2D([], [], color=METHODS["vanilla"], linewidth=LINE, dashes=(4, 2), label=label))
    mus = sorted({mu for line in lines.values() for mu in line})
    for number, (label, line) in enumerate(lines.items()):
        drawn = {mus.index(mu) + SHIFT * (number - (len(lines) - 1) / 2): scores for mu, scores in line.items()}
        handles.append(_line(ax, label, drawn, _tint(label, list(lines)[:number])))
    ax.set_xticks(range(len(mus)), [f"{mu:g}" for mu in mus])
    ax.set_xlim(-0.4, len(mus) - 0.6)
    name_axes([ax], "strength of the penalty (mu)", f"{WORDS[split]}\nlog-likelihood (nats)")
    longest = max(len(label) for label in (*levels, *lines))
    legend_above(figure, handles, columns=min(len(handles), 3 if longest <= MAX_LABEL else 2))
    return figure


def _tint(label: str, before: list[str]) -> str:
    """The colour of the method; from the second gate on another one."""
    own = [other for other in before if other.partition(" ")[0] == label.partition(" ")[0]]
    return OTHERS[(len(own) - 1) % len(OTHERS)] if own else METHODS.get(label.partition(" ")[0], INK)


def _line(ax: Axes, label: str, line: Mapping[float, NDArray[np.float64]], tint: str) -> Line2D:
    """line: the scores of all seeds by their place on the axis."""
    places = sorted(line)
    means = np.array([line[at].mean() for at in places])
    reach = np.array([[line[at].mean() - line[at].min(), line[at].max() - line[at].mean()] for at in places]).T
    ax.errorbar(
        places, means, reach, color=tint, marker="o", markersize=4, linewidth=LINE, elinewidth=0.7, capsize=1.5,
        markeredgecolor="white", markeredgewidth=0.5,
    )  # fmt: skip
    best = int(means.argmax())
    ax.plot([places[best]], [means[best]], "o", markersize=9, markerfacecolor="none", markeredgecolor=tint)
    return Line2D([], [], color=tint, marker="o", markersize=4, linewidth=LINE, label=label)
