"""A tree-shaped circuit drawn several times with the same coordinates, coloured by one quantity after the other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Patch, Rectangle
from matplotlib.ticker import NullLocator
from numpy.typing import ArrayLike, NDArray

from circurve.errors import OptionError
from circurve.learning.history import FitResult
from circurve.model import Model
from circurve.plots.given import Trained, measured_tree
from circurve.plots.style import FAINT, FONT, HAIR, INK, PAGE, SMALL_FONT, SYMBOLS, Picture, entitle, halo
from circurve.plots.tree_layout import neighbour_distance, spread_positions
from circurve.words import counted

__all__ = ["TITLES", "Mark", "colour_scale", "draw_tree", "lay_out", "log_colours", "log_ticks", "tree_panels"]

Array = NDArray[np.float64]
TITLES = {
    "flow_squared": f"use {SYMBOLS['flow']}",
    "local": f"local curvature {SYMBOLS['local']}",
    "total": f"contribution {SYMBOLS['total']}",
}
"""The columns of a curvature that the tree of a model is coloured by."""

COLOURS = "viridis_r"
"""Evenly graded in lightness, for every kind of colour vision: the darker, the larger."""

SMALLEST_CELL = 1.1
"""Points: units are drawn one by one as long as their cells are at least so wide."""

FILLED = 0.9
"""The part of the distance between neighbours that a node may cover."""

MARGIN = 1.13
"""Half of the width of a panel; the coordinates of nodes are from -1 to 1."""


@dataclass(frozen=True)
class Mark:
    """A letter next to one unit of one node.

    Parameters
    ----------
    letter : str
        What is written.
    node : int
        The number of the node, counted from 0.
    unit : int, default 0
        The number of the unit of this node.

    Examples
    --------
    >>> import circurve as cc
    >>> cc.plots.Mark("A", node=3)
    Mark(letter='A', node=3, unit=0)
    """

    letter: str
    node: int
    unit: int = 0


@dataclass(frozen=True, eq=False)
class TreeDrawing:
    """The layout, which is the same for all panels."""

    parents: NDArray[np.int64]
    place: Array  # (V, 2)
    size: float
    """The width of a node."""

    order: tuple[NDArray[np.int64], ...]
    """For each node, which unit comes first, second...: cells are filled row by row."""

    by_unit: bool
    """Whether each unit has its own cell; otherwise one disc represents all units of a node."""


def tree_panels(
    parents: Trained | Sequence[int] | NDArray[np.integer],
    panels: Mapping[str, Sequence[ArrayLike]] | None = None,
    marks: Iterable[Mark] = (),
    *,
    x: Any = None,
) -> Figure:
    """Draw a tree once for each quantity, side by side, each with a logarithmic colour scale of its own.

    A node is a block of cells, one for each unit, in the order of the first quantity, the largest first. Where cells
    would be too small to see, it is a disc in the colour of the mean over its units.

    Parameters
    ----------
    parents : Model, FitResult or sequence of int
        A model has the tree of its sums, with F^2, t^ and T^. Or the number of the parent of each node, -1 at the root.
    panels : mapping, optional
        Needed with parents: for each name the values of the units of every node, none of them negative.
    marks : iterable of Mark, default ()
        With parents: units to mark with a letter.
    x : array, data frame or Table, optional
        The rows to measure a `Model` or `FitResult` on.

    Returns
    -------
    Figure
        One panel for each quantity.

    Raises
    ------
    OptionError
        If panels are missing, a quantity has another number of nodes, or a model is given without x.

    Examples
    --------
    >>> import circurve as cc
    >>> values = [[3.0, 1.0], [2.0], [0.5, 0.1]]
    >>> figure = cc.plots.tree_panels([-1, 0, 0], {"use": values}, [cc.plots.Mark("A", node=1)])
    >>> [text.get_text() for text in figure.axes[0].texts]
    ['A']
    """
    if isinstance(parents, Model | FitResult):
        tree = measured_tree(parents, x)
        parents, panels = tree.parents, {title: tree.by_node(name) for name, title in TITLES.items()}
    if panels is None:
        raise OptionError("tree_panels needs parents and panels=, or a Model with x=")
    width = PAGE / max(len(panels), 1)
    figure = Picture(figsize=(PAGE, width + 0.55), layout="constrained")
    units = {name: [np.atleast_1d(np.asarray(v, dtype=np.float64)) for v in values] for name, values in panels.items()}
    drawing = lay_out(parents, next(iter(units.values())), width)
    for i, (name, values) in enumerate(units.items()):
        ax = figure.add_subplot(1, len(units), i + 1)
        entitle(ax, name)
        draw_tree(ax, drawing, values, marks)
    return figure


def lay_out(parents: Sequence[int] | NDArray[np.integer], first: Sequence[Array], inches: float) -> TreeDrawing:
    """Coordinates for panels that are `inches` wide; units in the order of the values of the first quantity."""
    above = np.asarray(parents, dtype=np.int64)
    if len(first) != len(above):
        raise OptionError(f"a quantity has values for {counted(len(first), 'node')}, the tree has {len(above)}")
    place = spread_positions(above)
    size = FILLED * min(neighbour_distance(place), 0.4)
    cells = max(_side(len(values)) for values in first)
    by_unit = size / cells * 72 * inches / (2 * MARGIN) >= SMALLEST_CELL
    return TreeDrawing(above, place, size, tuple(np.argsort(-v, kind="stable") for v in first), by_unit)


def draw_tree(ax: Axes, drawing: TreeDrawing, values: Sequence[Array], marks: Iterable[Mark] = ()) -> None:
    """One panel: edges, nodes in colour, letters, and a colour scale below."""
    lower = np.flatnonzero(drawing.parents >= 0)
    lines = np.stack([drawing.place[drawing.parents[lower]], drawing.place[lower]], axis=1)
    ax.add_collection(LineCollection(list(lines), colors=FAINT, linewidths=HAIR, zorder=1))
    nodes = PatchCollection(_shapes(drawing), cmap=COLOURS, linewidths=0, zorder=2)
    shown = _shown(drawing, values)
    nodes.set_array(shown)
    nodes.set_norm(log_colours(shown))
    nodes.set_rasterized(len(shown) > 5000)
    ax.add_collection(nodes)
    ax.add_patch(_outline(drawing, int(np.flatnonzero(drawing.parents < 0)[0])))
    for mark in marks:
        _letter(ax, drawing, mark)
    ax.set_aspect("equal")
    ax.set_xlim(-MARGIN, MARGIN)
    ax.set_ylim(-MARGIN, MARGIN)
    ax.set_axis_off()
    colour_scale(ax, nodes)


def log_colours(values: Array) -> LogNorm:
    """A logarithmic scale without the lowest and the highest hundredth of the values, which get the colours of its
    ends."""
    positive = values[values > 0]
    if not positive.size:
        return LogNorm(0.1, 1, clip=True)
    low, high = np.quantile(positive, [0.01, 0.99]).tolist()
    return LogNorm(low / 1.05, high * 1.05, clip=True)


def colour_scale(ax: Axes, coloured: ScalarMappable, label: str = "") -> None:
    """What the colours mean, below the panel; pointed ends include all values beyond."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    scale = figure.colorbar(
        coloured, ax=ax, orientation="horizontal", fraction=0.05, pad=0.02, aspect=30, shrink=0.85, extend="both"
    )
    low, high = coloured.get_clim()
    assert low is not None
    assert high is not None
    ticks = log_ticks(low, high)
    shown = [f"$10^{{{math.log10(tick):.0f}}}$" for tick in ticks] if high >= 50 * low else [f"{t:.3g}" for t in ticks]
    scale.set_ticks(ticks, labels=shown)
    scale.ax.xaxis.set_minor_locator(NullLocator())
    scale.ax.tick_params(labelsize=SMALL_FONT, width=HAIR, length=2, color=INK, labelcolor=INK)
    scale.set_label(label, fontsize=FONT, color=INK)
    scale.outline.set_visible(False)


def log_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers between two positive ones: powers of ten in a wide range, finer steps in a narrow one."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    if high >= 50 * low:
        inside = [power for power in powers if low <= 10.0**power <= high]
        return [10.0**power for power in inside[:: -(-len(inside) // most)]]
    for digits in ((1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7), (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9)):
        found = [digit * 10.0**power for power in powers for digit in digits if low <= digit * 10.0**power <= high]
        if len(found) >= 3:
            return found[:: -(-len(found) // most)]
    return [low, math.sqrt(low * high), high]


def _side(units: int) -> int:
    """The rows and columns of a block of cells."""
    return max(math.ceil(math.sqrt(units)), 1)


def _shapes(drawing: TreeDrawing) -> list[Patch]:
    if not drawing.by_unit:
        return [Circle((x, y), drawing.size / 2) for x, y in drawing.place.tolist()]
    shapes: list[Patch] = []
    for node, order in enumerate(drawing.order):
        cell = drawing.size / _side(len(order))
        shapes += [Rectangle(_corner(drawing, node, i), cell, cell) for i in range(len(order))]
    return shapes


def _corner(drawing: TreeDrawing, node: int, position: int) -> tuple[float, float]:
    """The lower left corner of a cell of a node's block."""
    side = _side(len(drawing.order[node]))
    cell = drawing.size / side
    x, y = drawing.place[node] + (-drawing.size / 2, drawing.size / 2 - cell)
    return float(x + position % side * cell), float(y - position // side * cell)


def _shown(drawing: TreeDrawing, values: Sequence[Array]) -> Array:
    if not drawing.by_unit:
        return np.array([node.mean() for node in values])
    return np.concatenate([node[order] for node, order in zip(values, drawing.order, strict=True)])


def _outline(drawing: TreeDrawing, node: int) -> Patch:
    """A line around a node."""
    x, y = drawing.place[node]
    wide = drawing.size * 1.25
    if drawing.by_unit:
        return Rectangle((x - wide / 2, y - wide / 2), wide, wide, fill=False, edgecolor=INK, linewidth=0.8, zorder=3)
    return Circle((x, y), 0.8 * drawing.size, fill=False, edgecolor=INK, linewidth=0.8, zorder=3)


def _letter(ax: Axes, drawing: TreeDrawing, mark: Mark) -> None:
    """Ring the unit (or its node), and put the letter next to it, away from the middle of the tree."""
    centre, radius = drawing.place[mark.node], 0.8 * drawing.size
    if drawing.by_unit:
        cell = drawing.size / _side(len(drawing.order[mark.node]))
        position = int(np.flatnonzero(drawing.order[mark.node] == mark.unit)[0])
        centre, radius = np.array(_corner(drawing, mark.node, position)) + cell / 2, max(0.8 * cell, 0.03)
    ax.add_patch(Circle((centre[0], centre[1]), radius, fill=False, edgecolor=INK, linewidth=0.9, zorder=4))
    distance = float(np.linalg.norm(centre))
    outwards = centre / distance if distance > 0.02 else np.array([0.0, 1.0])
    x, y = centre + outwards * (radius + 0.065)
    ax.text(
        x, y, mark.letter, fontsize=FONT, weight="bold", color=INK, ha="center", va="center", zorder=5,
        path_effects=halo(2.5),
    )  # fmt: skip
