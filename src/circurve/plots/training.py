"""Log-likelihood by epoch: does a penalty close the gap between training and test, or does it lower both?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from circurve.learning.history import FitResult, FleetResult
from circurve.plots.given import Result, as_panels, curves_of
from circurve.plots.style import INK, LINE, colour, entitle, grid_of_panels, legend_above, name_axes

__all__ = ["training_curves"]

DASHES = {"train": (4.0, 1.8), "valid": (1.2, 1.4)}  # any other split, such as test, is a full line
SKIPPED_SHARE = 0.1
"""The first tenth of the epochs may run out of the panel: they rise so far that they would flatten all the rest."""


Curves: TypeAlias = Mapping[str, Mapping[str, ArrayLike]]


def training_curves(panels: Result | Mapping[str, Result | Curves]) -> Figure:
    """Draw the mean log-likelihood by epoch: one panel for each data set.

    Each method has its colour and each split its dashes.

    Parameters
    ----------
    panels : FitResult, FleetResult or mapping
        Runs of a fleet with the same method and other seeds make one line. A mapping has names of panels and a result
        for each; or panels[data set][method][split] is a list of numbers, one for each epoch counted from 1, or a list
        of such lists, one for each seed: the line is then their mean, and a band reaches from the lowest to the
        highest.

    Returns
    -------
    Figure
        One panel for each name.

    Raises
    ------
    OptionError
        If a training ended before its first epoch.

    Examples
    --------
    >>> import circurve as cc
    >>> data = cc.load_dataset("digits")
    >>> result = cc.fit(cc.hclt(data.train, units=4), data.train, valid=data.valid, epochs=2)
    >>> figure = cc.plots.training_curves(result)
    >>> figure.axes[0].get_xlabel()
    'epoch'
    """
    named = as_panels(panels, FitResult) if not isinstance(panels, FleetResult) else {"": panels}
    drawn = {name: curves_of(given) for name, given in named.items()}
    return _figure(drawn)


def _figure(panels: Mapping[str, Curves]) -> Figure:
    figure, axes = grid_of_panels(len(panels))
    for ax, (name, methods) in zip(axes, panels.items(), strict=True):
        entitle(ax, name)
        _curves(ax, methods)
    name_axes(axes, "epoch", "log-likelihood (nats)")
    methods_drawn = list(dict.fromkeys(label for methods in panels.values() for label in methods))
    splits = list(dict.fromkeys(split for methods in panels.values() for m in methods.values() for split in m))
    legend_above(figure, _keys(methods_drawn, splits))
    return figure


def _curves(ax: Axes, methods: Mapping[str, Mapping[str, ArrayLike]]) -> None:
    seen: list[float] = []
    for index, (label, splits) in enumerate(methods.items()):
        for split, values in splits.items():
            runs = np.atleast_2d(np.asarray(values, dtype=np.float64))  # (seeds, epochs)
            known = np.ma.masked_where(np.isnan(runs), runs)  # a run that ended early leaves the rest to the others
            epochs = np.arange(1, runs.shape[1] + 1)
            mean, tint = known.mean(0).filled(np.nan), colour(label, index)
            (line,) = ax.plot(epochs, mean, color=tint, linewidth=LINE, label=f"{label} {split}")
            _dash(line, split)
            if len(runs) > 1:
                low, high = known.min(0).filled(np.nan), known.max(0).filled(np.nan)
                ax.fill_between(epochs, low, high, color=tint, alpha=0.15, linewidth=0)
            seen += runs[:, math.ceil(SKIPPED_SHARE * (len(epochs) - 1)) :].ravel().tolist()
    ax.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(5))
    finite = [value for value in seen if np.isfinite(value)]
    if finite:
        low, high = min(finite), max(finite)
        room = 0.06 * (high - low) or 0.5
        ax.set_ylim(low - room, high + room)


def _dash(line: Line2D, split: str) -> None:
    if split in DASHES:
        line.set_dashes(DASHES[split])


def _keys(methods: Sequence[str], splits: Sequence[str]) -> list[Line2D]:
    """Legend entries: colours for the methods, dashes for the splits; a single method needs no entry."""
    colours = [Line2D([], [], color=colour(label, i), linewidth=LINE, label=label) for i, label in enumerate(methods)]
    one = len(methods) == 1 and len(splits) > 1
    tint = colour(methods[0]) if one else INK
    dashes = [Line2D([], [], color=tint, linewidth=LINE, label=split) for split in splits]
    for key, split in zip(dashes, splits, strict=True):
        _dash(key, split)
    return dashes if one else colours + dashes
