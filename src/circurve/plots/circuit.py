"""A trained circuit in four panels: how much each node is used, how sharp it is, what it adds, and how they relate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from matplotlib.text import Annotation, Text
from numpy.typing import ArrayLike, NDArray

from circurve.errors import OptionError
from circurve.learning.history import FitResult
from circurve.model import Model
from circurve.plots.decomposition import REGIMES, draw_decomposition, find_regimes
from circurve.plots.given import Trained, measured_tree
from circurve.plots.style import INK, PAGE, SMALL_FONT, Picture, entitle, tidy
from circurve.plots.tree import TITLES, Mark, draw_tree, lay_out

__all__ = ["circuit_panels"]

Array = NDArray[np.float64]

MIN_LETTER_DISTANCE = 0.14
"""From the middle of a letter to that of another, or to another's ring, in the coordinates of a tree, which reach from
-1 to 1: twice as far as to its own ring, so that it is clear which ring it belongs to."""

ROTATIONS = sorted((math.radians(angle) for angle in range(-180, 180, 15)), key=abs)

PANELS = {name: f"({letter}) {title}" for letter, (name, title) in zip("abc", TITLES.items(), strict=True)}


def circuit_panels(
    parents: Trained | Sequence[int] | NDArray[np.integer],
    quantities: Mapping[str, Sequence[ArrayLike]] | None = None,
    units: Mapping[str, ArrayLike] | None = None,
    marks: Sequence[Mark] = (),
    *,
    x: Any = None,
) -> Figure:
    """Draw the sums of a circuit as three trees, coloured by F^2, t^ and T^, and their decomposition.

    The same units are marked in all four panels.

    Parameters
    ----------
    parents : Model, FitResult or sequence of int
        The model; the units of `find_regimes` are then marked. Or the parent of each node, as in `tree_panels`.
    quantities : mapping, optional
        Needed with parents: `flow_squared`, `local` and `total`, each with the values of the units of every node.
    units : mapping, optional
        Needed with parents: the three quantities with one number for each unit of the panel of the decomposition. The
        first units are those of `marks`, in their order.
    marks : sequence of Mark, default ()
        With parents: the units to mark.
    x : array, data frame or Table, optional
        The rows to measure a `Model` or `FitResult` on.

    Returns
    -------
    Figure
        Four panels.

    Raises
    ------
    OptionError
        If quantities or units are missing, or a model is given without x.

    Examples
    --------
    >>> import circurve as cc
    >>> data = cc.load_dataset("digits")
    >>> result = cc.fit(cc.hclt(data.train, units=4), data.train, valid=data.valid, epochs=2)
    >>> figure = cc.plots.circuit_panels(result, x=data.train)
    >>> figure.axes[6].get_title()
    '(d) use against local curvature'
    """
    if isinstance(parents, Model | FitResult):
        parents, quantities, units, marks = _measured(parents, x)
    if quantities is None or units is None:
        raise OptionError("circuit_panels needs parents, quantities= and units=, or a Model with x=")
    figure = Picture(figsize=(PAGE, PAGE * 1.06), layout="constrained")
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


def _measured(given: Trained, x: Any) -> tuple[list[int], dict[str, list[Array]], dict[str, Array], list[Mark]]:
    """The arguments of `circuit_panels` for a model; the units that are marked come first in the plane."""
    tree = measured_tree(given, x)
    curv = tree.curvature
    known = np.flatnonzero((curv.flow_squared > 0) & (curv.local > 0) & np.isfinite(curv.total))
    regimes = find_regimes(curv.flow_squared[known], curv.local[known])
    first = [int(known[i]) for i in regimes.values()]
    order = np.concatenate([np.array(first, dtype=np.int64), np.setdiff1d(np.arange(len(curv)), first)])
    marks = [Mark(letter, int(tree.node[i]), int(tree.unit[i])) for letter, i in zip(regimes, first, strict=True)]
    quantities = {name: tree.by_node(name) for name in PANELS}
    return tree.parents, quantities, {name: getattr(curv, name)[order] for name in PANELS}, marks


def part_letters(ax: Axes) -> None:
    """Turn a letter about its own ring, as little as need be, until it is off the other rings and the letters before.

    The panel is one of `circuit_panels`: rings and letters in the same order, a letter outside its ring. One that is
    free already stays, and so does one that is free nowhere.
    """
    texts = [text for text in ax.texts if not isinstance(text, Annotation)]
    rings = [patch for patch in ax.patches if isinstance(patch, Circle)]
    if not texts or len(rings) < len(texts):
        return
    rings = rings[-len(texts) :]  # before them, the frame of the root
    placed: list[Array] = []
    for text, ring in zip(texts, rings, strict=True):
        others = [other for other in rings if other is not ring]
        place = next((p for p in _places(text, ring) if _free(p, placed, others)), _at(text))
        if not np.array_equal(place, _at(text)):
            text.set_position((float(place[0]), float(place[1])))
        placed.append(place)


def _places(text: Text, ring: Circle) -> list[Array]:
    """The position of the letter, and the places around its ring, the nearest first."""
    centre = np.asarray(ring.center, dtype=np.float64)
    x, y = _at(text) - centre
    turned = [(math.cos(a) * x - math.sin(a) * y, math.sin(a) * x + math.cos(a) * y) for a in ROTATIONS[1:]]
    return [_at(text), *(centre + np.array(place) for place in turned)]


def _free(place: Array, letters: list[Array], rings: list[Circle]) -> bool:
    off_letters = all(np.linalg.norm(place - letter) >= MIN_LETTER_DISTANCE for letter in letters)
    return off_letters and all(
        np.linalg.norm(place - ring.center) >= ring.radius + MIN_LETTER_DISTANCE for ring in rings
    )


def _at(text: Text) -> Array:
    return np.array(text.get_position(), dtype=np.float64)
