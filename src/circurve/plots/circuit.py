"""A trained circuit in four panels: how much each node is used, how sharp it is, what it adds, and how they relate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from circurve.plots.decomposition import REGIMES, draw_decomposition
from circurve.plots.letters import part_letters
from circurve.plots.style import INK, PAGE, SMALL_FONT, SYMBOLS, entitle, tidy
from circurve.plots.tree import Mark, draw_tree, lay_out

__all__ = ["circuit_panels"]

PANELS = {
    "flow_squared": f"(a) use {SYMBOLS['flow']}",
    "local": f"(b) local curvature {SYMBOLS['local']}",
    "total": f"(c) contribution {SYMBOLS['total']}",
}


def circuit_panels(
    parents: Sequence[int] | NDArray[np.integer],
    quantities: Mapping[str, Sequence[ArrayLike]],
    units: Mapping[str, ArrayLike],
    marks: Sequence[Mark] = (),
) -> Figure:
    """Three trees and the plane of `decomposition`, with the same units marked in all four.

    parents and quantities (`flow_squared`, `local` and `total`, for each node the values of its units): see
    `tree_panels`. units: the same three, one number for each unit that the plane shows; its first ones are those of
    `marks`, in their order.
    """
    figure = Figure(figsize=(PAGE, PAGE * 1.06), layout="constrained")
    values = {name: [np.atleast_1d(np.asarray(v, dtype=np.float64)) for v in quantities[name]] for name in PANELS}
    drawing = lay_out(parents, values["flow_squared"], PAGE / 2)
    for i, (name, title) in enumerate(PANELS.items()):
        ax = figure.add_subplot(2, 2, i + 1)
        entitle(ax, title)
        draw_tree(ax, drawing, values[name], marks)
        part_letters(ax)
    ax = figure.add_subplot(2, 2, 4)
    tidy(ax)
    entitle(ax, "(d) use against local curvature")
    draw_decomposition(ax, units, {mark.letter: i for i, mark in enumerate(marks)})
    if marks:
        shown = ",   ".join(f"{mark.letter}: {REGIMES.get(mark.letter, '')}" for mark in marks)
        figure.supxlabel(shown, fontsize=SMALL_FONT, color=INK)
    return figure
