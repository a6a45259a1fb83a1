"""The layout of a rooted tree on paper: around the root, generation by generation, and evenly spread.

First each generation gets a ring of its own around the root: leaves share the circle evenly and a parent is in the
middle of its leaves, so that no two edges cross. That leaves most of the disc empty and crowds the rest, so the nodes
are then pushed apart, until neighbours keep the distance that the size of the tree allows, while edges pull gently on
both ends. Every walk is a loop: a chain may be any length.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["neighbour_distance", "radial_positions", "spread_positions"]

Array = NDArray[np.float64]
Parents = Sequence[int] | NDArray[np.integer]

SPACING = 0.78
"""Wanted distance of neighbours, in units of sqrt(area of the disc / nodes); about 1.07 would fill the disc."""

ROUNDS = 200
PULL = (0.05, 0.015)
"""By how much of its excess length an edge moves its lower and its upper end in a round; it fades out to the end."""

PUSH = 0.25
"""By how much of the missing distance each of two close nodes moves in a round."""


def spread_positions(parents: Parents) -> Array:  # (V,) -> (V, 2)
    """Coordinates from -1 to 1 of a tree that is given by each node's parent, -1 at the root.

    Always the same for the same tree. 200 rounds of O(V log V): under a second for a thousand nodes.
    """
    from scipy.spatial import cKDTree  # noqa: PLC0415 - slow to import

    above = np.asarray(parents, dtype=np.int64)
    lower = np.flatnonzero(above >= 0)
    upper = above[lower]
    place = radial_positions(above)
    wanted = SPACING * np.sqrt(np.pi / len(place))
    place += 0.01 * wanted * np.random.default_rng(0).standard_normal(place.shape)  # no two at the very same point
    for turn in range(ROUNDS):
        edge = place[lower] - place[upper]
        length = np.linalg.norm(edge, axis=1, keepdims=True)
        excess = edge * np.maximum(1 - wanted / np.maximum(length, wanted), 0) * (1 - turn / ROUNDS)
        np.add.at(place, lower, -PULL[0] * excess)
        np.add.at(place, upper, PULL[1] * excess)
        a, b = cKDTree(place).query_pairs(wanted, output_type="ndarray").T
        between = place[a] - place[b]
        distance = np.maximum(np.linalg.norm(between, axis=1, keepdims=True), 1e-9)
        push = PUSH * between * (wanted / distance - 1)
        np.add.at(place, a, push)
        np.add.at(place, b, -push)
        place /= np.maximum(np.linalg.norm(place, axis=1, keepdims=True), 1)
    return _fill_square(place)


def _fill_square(place: Array) -> Array:
    """Moved and stretched, each axis by itself, until the nodes reach all four sides."""
    low, high = place.min(0), place.max(0)
    span = np.where(high - low > 1e-3, high - low, 2.0)
    filled: Array = 2 * (place - (low + high) / 2) / span
    return filled


def neighbour_distance(place: Array) -> float:
    """How far apart nearest neighbours are, along the axis where they are farther; 1 in 20 is nearer. 1 for one node.

    Squares of that size around the nodes do not overlap, but for those few.
    """
    from scipy.spatial import cKDTree  # noqa: PLC0415 - slow to import

    if len(place) < 2:
        return 1.0
    nearest = cKDTree(place).query(place, 2, p=np.inf)[0][:, 1]
    return float(np.quantile(nearest, 0.05))


def radial_positions(parents: Parents) -> Array:  # (V,) -> (V, 2)
    """The rings alone: the root at 0, generation d at distance d / depth from it. O(V)."""
    above = np.asarray(parents, dtype=np.int64)
    order, depth = _branch_by_branch(above)
    angle = _angles(above, order)
    radius = depth / max(int(depth.max()), 1)
    return np.stack([radius * np.sin(angle), radius * np.cos(angle)], axis=1)


def _branch_by_branch(parents: NDArray[np.int64]) -> tuple[list[int], NDArray[np.int64]]:
    """The nodes in the order of a walk that ends each branch before it begins the next, and the depth of each."""
    children: list[list[int]] = [[] for _ in parents]
    waiting: list[int] = []
    for node, parent in enumerate(parents.tolist()):
        (children[parent] if parent >= 0 else waiting).append(node)
    depth = np.zeros(len(parents), dtype=np.int64)
    order = []
    while waiting:
        node = waiting.pop()
        order.append(node)
        depth[children[node]] = depth[node] + 1
        waiting += reversed(children[node])
    return order, depth


def _angles(parents: NDArray[np.int64], order: Sequence[int]) -> Array:
    """Leaves evenly around the circle in the order of the walk; every other node in the middle of its leaves."""
    first, last = np.full(len(parents), np.inf), np.full(len(parents), -np.inf)
    inner = set(parents.tolist())
    leaves = [node for node in order if node not in inner]
    first[leaves] = last[leaves] = np.arange(len(leaves))
    for node in reversed(order):
        parent = parents[node]
        if parent >= 0:
            first[parent] = min(first[parent], first[node])
            last[parent] = max(last[parent], last[node])
    middle: Array = np.pi * (first + last) / len(leaves)
    return middle
