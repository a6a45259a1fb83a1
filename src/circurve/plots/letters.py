"""Letters beside the rings of marked units, each moved off the others."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Circle
from matplotlib.text import Annotation, Text
from numpy.typing import NDArray

__all__ = ["part_letters"]

Array = NDArray[np.float64]

APART = 0.14
"""From the middle of a letter to that of another, or to another's ring, in the coordinates of a tree, which reach from
-1 to 1: twice as far as to its own ring, so that it is clear which ring it belongs to."""

TURNS = sorted((math.radians(angle) for angle in range(-180, 180, 15)), key=abs)


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
    """Where the letter stands, and the places around its ring, the nearest first."""
    centre = np.asarray(ring.center, dtype=np.float64)
    x, y = _at(text) - centre
    turned = [(math.cos(a) * x - math.sin(a) * y, math.sin(a) * x + math.cos(a) * y) for a in TURNS[1:]]
    return [_at(text), *(centre + np.array(place) for place in turned)]


def _free(place: Array, letters: list[Array], rings: list[Circle]) -> bool:
    off_letters = all(np.linalg.norm(place - letter) >= APART for letter in letters)
    return off_letters and all(np.linalg.norm(place - ring.center) >= ring.radius + APART for ring in rings)


def _at(text: Text) -> Array:
    return np.array(text.get_position(), dtype=np.float64)
