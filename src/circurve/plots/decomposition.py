"""Use against local sharpness: every sum unit by F^2 and t^, coloured by what the two make of it, T^."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import ArrayLike, NDArray

from circurve.curvature import Curvature
from circurve.plots.given import Trained, curvature_of
from circurve.plots.style import COLUMN, FAINT, FONT, HAIR, INK, SMALL_FONT, SYMBOLS, Picture, halo, tidy
from circurve.plots.tree import COLOURS, colour_scale, log_colours

__all__ = ["REGIMES", "decomposition", "draw_decomposition", "find_regimes"]

Array = NDArray[np.float64]
REGIMES = {"A": "high use, low local", "B": "low use, high local", "C": "high both"}
ISO_LINES = 7


def decomposition(
    given: Trained | Curvature | Mapping[str, ArrayLike], marked: Mapping[str, int] | None = None, *, x: Any = None
) -> Figure:
    """Draw F^2 against t^ of every sum unit on logarithmic axes, coloured by T^.

    Lines of constant F^2 t^ run down at 45 degrees. Units with a zero are left out.

    Parameters
    ----------
    given : Model, FitResult, Curvature or mapping
        A mapping has `flow_squared`, `local` and `total`, with one number for every unit.
    marked : mapping of str to int, optional
        Letters and the units that they mark; None marks the three units of `find_regimes`.
    x : array, data frame or Table, optional
        The rows to measure a `Model` or `FitResult` on.

    Returns
    -------
    Figure
        One panel.

    Examples
    --------
    >>> import circurve as cc
    >>> data = cc.load_dataset("digits")
    >>> result = cc.fit(cc.hclt(data.train, units=4), data.train, valid=data.valid, epochs=2)
    >>> figure = cc.plots.decomposition(result, x=data.train)
    >>> figure.axes[0].get_ylabel()[:3]
    'use'
    """
    figure = Picture(figsize=(COLUMN, COLUMN * 0.95), layout="constrained")
    ax = figure.add_subplot()
    tidy(ax)
    draw_decomposition(ax, curvature_of(given, x), marked)
    return figure


def find_regimes(flow_squared: Array, local: Array) -> dict[str, int]:
    """Find one unit for each regime: A much used and flat, B hardly used and sharp, C much used and sharp.

    With f and l the ranks of F^2 and t^ from 0 to 1, these are the units with the largest f (1 - l), (1 - f) l and f l.

    Parameters
    ----------
    flow_squared : array
        F^2 of each unit.
    local : array
        t^ of each unit.

    Returns
    -------
    dict
        The number of a unit for each letter; empty if there are no units.

    Examples
    --------
    >>> import numpy as np
    >>> import circurve as cc
    >>> cc.plots.find_regimes(np.array([1.0, 0.1, 0.9]), np.array([1.0, 9.0, 8.0]))
    {'A': 0, 'B': 1, 'C': 2}
    """
    if not len(local):
        return {}
    use, sharp = _rank(flow_squared), _rank(local)
    scores = {"A": use * (1 - sharp), "B": (1 - use) * sharp, "C": use * sharp}
    return {letter: int(score.argmax()) for letter, score in scores.items()}


def _rank(values: Array) -> Array:
    return np.argsort(np.argsort(values, kind="stable"), kind="stable") / max(len(values) - 1, 1)


def draw_decomposition(
    ax: Axes, given: Curvature | Mapping[str, ArrayLike], marked: Mapping[str, int] | None = None
) -> None:
    """The panel of `decomposition`, on axes of your own."""
    columns = ("flow_squared", "local", "total")
    if isinstance(given, Curvature):
        given = {name: getattr(given, name) for name in columns}
    use, local, total = (np.asarray(given[name], dtype=np.float64) for name in columns)
    known = (use > 0) & (local > 0) & (total > 0)
    if marked is None:
        numbers = np.flatnonzero(known)
        marked = {letter: int(numbers[i]) for letter, i in find_regimes(use[known], local[known]).items()}
    x, y = np.log10(local[known]), np.log10(use[known])
    ax.set_xlabel(f"local curvature {SYMBOLS['local']}", fontsize=FONT, color=INK)
    ax.set_ylabel(f"use {SYMBOLS['flow']}", fontsize=FONT, color=INK)
    if not known.any():
        return
    last = np.argsort(total[known], kind="stable")  # the largest on top
    dots = ax.scatter(
        x[last], y[last], s=_dot_area(len(x)), c=total[known][last], cmap=COLOURS, norm=log_colours(total[known]),
        linewidths=0, zorder=2, rasterized=len(x) > 5000,
    )  # fmt: skip
    _limits(ax, x, y)
    _iso_lines(ax)
    for letter, unit in marked.items():
        _ring(ax, letter, float(np.log10(local[unit])), float(np.log10(use[unit])))
    colour_scale(ax, dots, f"contribution {SYMBOLS['total']}")


def _dot_area(count: int) -> float:
    """Square points: smaller dots for more units."""
    return float(np.clip(4000 / max(count, 1), 1.5, 16))


def _limits(ax: Axes, x: Array, y: Array) -> None:
    for values, fix in ((x, ax.set_xlim), (y, ax.set_ylim)):
        room = max(0.07 * float(np.ptp(values)), 0.15)
        fix(float(values.min()) - room, float(values.max()) + room)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(5, integer=True))
        axis.set_major_formatter(FuncFormatter(_power))


def _power(exponent: float, _: int | None = None) -> str:
    """10^2, or 178 for an exponent that is not whole."""
    return f"$10^{{{exponent:g}}}$" if float(exponent).is_integer() else f"{10**exponent:.3g}"


def _iso_lines(ax: Axes) -> None:
    """Lines log F^2 + log t^ = k for whole numbers k, labelled where they enter the panel, above or on the left."""
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    lowest, highest = int(np.ceil(left + bottom)), int(np.floor(right + top))
    step = max(-(-(highest - lowest + 1) // ISO_LINES), 1)
    for power in range(lowest, highest + 1, step):
        ax.plot([left, right], [power - left, power - right], color=FAINT, linewidth=HAIR, dashes=(4, 2.5), zorder=1)
        x = max(left + 0.03 * (right - left), power - top + 0.08 * (top - bottom))
        if x > right - 0.1 * (right - left):
            continue
        ax.text(
            x, power - x, f"$10^{{{power}}}$", fontsize=SMALL_FONT - 1, color="#777777", rotation=-45,
            transform_rotates_text=True, rotation_mode="anchor", va="bottom", zorder=3, clip_on=True,
            path_effects=halo(1.5),
        )  # fmt: skip
    ax.set_xlim(left, right)
    ax.set_ylim(bottom, top)


def _ring(ax: Axes, letter: str, x: float, y: float) -> None:
    ax.plot([x], [y], "o", markersize=7, markerfacecolor="none", markeredgecolor=INK, markeredgewidth=0.9, zorder=4)
    ax.annotate(
        letter, (x, y), xytext=(6, 5), textcoords="offset points", fontsize=FONT, weight="bold", color=INK, zorder=5,
        path_effects=halo(),
    )  # fmt: skip
