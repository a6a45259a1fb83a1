"""Surfaces over a plane of parameters, and the paths that trainings took across it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, ListedColormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from circurve.errors import OptionError
from circurve.plots.style import FONT, HAIR, INK, PAGE, SMALL_FONT, Picture, colour, halo, legend_above, tidy
from circurve.plots.tree import log_ticks
from circurve.words import counted

__all__ = ["landscape"]

Array = NDArray[np.float64]
LEVELS = 14
MARKERS = {"vanilla": "o", "global": "s", "gated": "D"}


def landscape(
    axes: Mapping[str, ArrayLike],
    surfaces: Mapping[str, ArrayLike],
    paths: Mapping[str, ArrayLike],
    *,
    ends: Mapping[str, Mapping[str, float]] | None = None,
    log: Collection[str] = (),
) -> Figure:
    """Draw surfaces over a plane as contours, darker where they are higher, with paths from a common start.

    Parameters
    ----------
    axes : mapping of str to array
        Two names, and the coordinates along each axis, (X,) and (Y,).
    surfaces : mapping of str to array
        The values of each surface, (Y, X); each has a panel.
    paths : mapping of str to array
        For each method the points (P, 2) in the order in which they were reached. A star marks the first point, a
        symbol the last.
    ends : mapping, optional
        ends[surface][method] is the value with which a training really ended, written next to its last point: the plane
        does not contain the parameters themselves.
    log : collection of str, default ()
        The surfaces with a logarithmic scale.

    Returns
    -------
    Figure
        One panel for each surface.

    Raises
    ------
    OptionError
        If there are not two axes, or a surface has another shape.

    Examples
    --------
    >>> import numpy as np
    >>> import circurve as cc
    >>> line = np.linspace(-1, 1, 5)
    >>> bowl = line[:, None] ** 2 + line**2
    >>> paths = {"vanilla": [[0.9, 0.9], [0.1, 0.0]], "gated": [[0.9, 0.9], [0.0, 0.2]]}
    >>> figure = cc.plots.landscape({"first": line, "second": line}, {"loss": bowl}, paths)
    >>> figure.axes[0].get_xlabel()
    'first'
    """
    if len(axes) != 2:
        raise OptionError(f"a landscape has two axes, not {len(axes)}")
    (x_name, x_given), (y_name, y_given) = axes.items()
    x, y = np.asarray(x_given, dtype=np.float64), np.asarray(y_given, dtype=np.float64)
    figure = Picture(figsize=(PAGE, PAGE / max(len(surfaces), 2) + 1.05), layout="constrained")
    for i, (name, given) in enumerate(surfaces.items()):
        values = np.asarray(given, dtype=np.float64)
        if values.shape != (len(y), len(x)):
            raise OptionError(f"surface {name!r} has shape {values.shape} for {len(y)} by {counted(len(x), 'point')}")
        ax = figure.add_subplot(1, len(surfaces), i + 1)
        tidy(ax)
        _surface(ax, x, y, values, name, name in log)
        for number, (label, path) in enumerate(paths.items()):
            _path(ax, label, np.asarray(path, dtype=np.float64), number)
        _end_values(ax, {m: np.asarray(path)[-1] for m, path in paths.items()}, (ends or {}).get(name, {}))
        ax.set_xlabel(x_name, fontsize=FONT, color=INK)
        if i == 0:
            ax.set_ylabel(y_name, fontsize=FONT, color=INK)
    legend_above(figure, _keys(list(paths)))
    return figure


def _surface(ax: Axes, x: Array, y: Array, values: Array, name: str, log: bool) -> None:
    """Filled contours between the lowest value and one that most of the plane stays below."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(np.quantile(finite, 0.9))) if finite.size else (0.0, 1.0)
    low = max(low, 1e-12) if log else low
    high = high if high > low else low + 1.0
    levels = np.geomspace(low, high, LEVELS) if log else np.linspace(low, high, LEVELS)
    shown = np.clip(np.where(np.isfinite(values), values, high), low, high)
    norm: Normalize = LogNorm(low, high) if log else Normalize(low, high)
    filled = ax.contourf(x, y, shown, levels=levels, cmap=_tints(), norm=norm)
    ax.contour(x, y, shown, levels=levels, colors="white", linewidths=0.4)
    ax.set_xlim(float(x[0]), float(x[-1]))
    ax.set_ylim(float(y[0]), float(y[-1]))
    ax.xaxis.set_major_locator(MaxNLocator(4))
    ax.yaxis.set_major_locator(MaxNLocator(4))
    figure = ax.get_figure(root=True)
    assert figure is not None
    scale = figure.colorbar(filled, ax=ax, location="top", fraction=0.05, pad=0.02, aspect=28)
    scale.set_label(name, fontsize=FONT, color=INK)
    ticks = log_ticks(low, high) if log else list(MaxNLocator(4).tick_values(low, high))
    ticks = [tick for tick in ticks if low <= tick <= high]
    scale.set_ticks(ticks, labels=[f"{tick:.4g}" for tick in ticks])
    scale.ax.minorticks_off()
    scale.ax.tick_params(labelsize=SMALL_FONT, width=HAIR, length=2, color=INK, labelcolor=INK)
    scale.outline.set_visible(False)


def _tints() -> Colormap:
    """The lighter part of an even scale, so that paths stand out on all of it."""
    return ListedColormap(colormaps["YlGnBu"](np.linspace(0.0, 0.62, 256)))


def _path(ax: Axes, label: str, path: Array, number: int) -> None:
    tint = colour(label, number)
    ax.plot(path[:, 0], path[:, 1], color=tint, linewidth=1.5, path_effects=halo(2.8), zorder=3, label=label)
    ax.plot(
        *path[-1], MARKERS.get(label, "o"), color=tint, markersize=6, markeredgecolor="white", markeredgewidth=0.9,
        zorder=5,
    )  # fmt: skip
    ax.plot(*path[0], "*", color=INK, markersize=10, markeredgecolor="white", markeredgewidth=0.8, zorder=4)


def _end_values(ax: Axes, places: Mapping[str, Array], values: Mapping[str, float]) -> None:
    """Numbers next to the ends of the paths, on the side with more room, moved up where they would cover each other."""
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    least = bottom
    for label in sorted(values, key=lambda label: float(places[label][1])):
        x, y = places[label]
        y = max(float(y), least)
        least = y + 0.055 * (top - bottom)
        to_the_left = x > (left + right) / 2
        ax.annotate(
            f"{values[label]:.4g}", (float(x), y), xytext=(-6 if to_the_left else 6, 0), textcoords="offset points",
            ha="right" if to_the_left else "left", va="center", fontsize=SMALL_FONT, weight="bold", zorder=6,
            color=colour(label, list(places).index(label)), path_effects=halo(2.2),
        )  # fmt: skip


def _keys(labels: list[str]) -> list[Line2D]:
    keys = [Line2D([], [], linestyle="none", marker="*", color=INK, markersize=8, label="start")]
    for i, label in enumerate(labels):
        marker = MARKERS.get(label, "o")
        keys.append(Line2D([], [], color=colour(label, i), marker=marker, markersize=5, label=label))
    return keys
