"""A rooted tree over the variables, as a record of parents; every walk is a loop, so a chain may be any length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from circurve.errors import StructureError
from circurve.words import counted

__all__ = ["Tree", "root_at_centre"]


@dataclass(frozen=True, eq=False, init=False)
class Tree:
    """A tree over variables 0..V-1, given by each one's parent, -1 at the root; checked when it is made."""

    parents: NDArray[np.int64] = field()  # (V,)
    information: NDArray[np.float64] = field(repr=False)  # (V,)
    """Mutual information of each variable and its parent: 0 at the root, NaN where it is not known."""

    order: NDArray[np.int64] = field(repr=False)  # (V,)
    """The variables breadth first from the root: parents before children."""

    depth: int
    """The number of edges from the root to the deepest variable."""

    def __init__(
        self,
        parents: Sequence[int] | NDArray[np.integer],
        information: Sequence[float] | NDArray[np.float64] | None = None,
    ) -> None:
        above = np.array(parents)
        if above.ndim != 1 or not above.size or above.dtype.kind not in "iu":
            raise StructureError(f"parents must be a list of one variable number for each variable, not {parents!r}")
        above = above.astype(np.int64)
        known = np.where(above < 0, 0.0, np.nan) if information is None else np.array(information, dtype=np.float64)
        if known.shape != above.shape:
            raise StructureError(f"information has shape {known.shape} for {counted(len(above), 'variable')}")
        order, depth = _breadth_first(above)
        for name, array in (("parents", above), ("information", known), ("order", order)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        object.__setattr__(self, "depth", depth)

    @property
    def root(self) -> int:
        """The variable without a parent."""
        return int(self.order[0])

    @property
    def edges(self) -> tuple[tuple[int, int, float], ...]:
        """(parent, child, mutual information) of each edge, in the order of the children."""
        return tuple((int(self.parents[v]), int(v), float(self.information[v])) for v in self.order[1:])

    def __len__(self) -> int:
        return len(self.parents)


def _breadth_first(parents: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """The order of the variables from the root, and the depth; raises StructureError for anything but one tree."""
    roots = np.flatnonzero(parents == -1)
    if len(roots) != 1:
        raise StructureError(f"a tree has one root (parent -1), not {len(roots)}: {roots[:8].tolist()}")
    outside = np.flatnonzero((parents < -1) | (parents >= len(parents)))
    if outside.size:
        v = int(outside[0])
        raise StructureError(
            f"variable {v} has parent {parents[v]}, which is not among the {counted(len(parents), 'variable')}"
        )
    children: list[list[int]] = [[] for _ in parents]
    for v, parent in enumerate(parents.tolist()):
        if parent >= 0:
            children[parent].append(v)
    order, level, depth = roots.tolist(), roots.tolist(), -1
    while level:
        depth += 1
        level = [child for v in level for child in children[v]]
        order += level
    if len(order) != len(parents):
        lost = sorted(set(range(len(parents))) - set(order))
        raise StructureError(f"variables {lost[:8]} are not connected to the root: their parents form a cycle")
    return np.array(order, dtype=np.int64), depth


def root_at_centre(links: Sequence[tuple[int, int]]) -> NDArray[np.int64]:  # (V-1) links -> (V,) parents
    """Parents of the tree with these undirected links, rooted in the middle of its longest path.

    The variable farthest from any start ends a longest path; the farthest from that one is its other end. The middle
    has the least possible depth, ceil(length / 2). Of two middles, or of several farthest, the lower number. O(V).
    """
    neighbours: list[list[int]] = [[] for _ in range(len(links) + 1)]
    for u, v in links:
        neighbours[u].append(v)
        neighbours[v].append(u)
    end, _ = _walk(neighbours, 0)
    other, parents = _walk(neighbours, end)
    path = [other]
    while parents[path[-1]] >= 0:
        path.append(parents[path[-1]])
    centre = min(path[(len(path) - 1) // 2], path[len(path) // 2])
    return np.array(_walk(neighbours, centre)[1], dtype=np.int64)


def _walk(neighbours: Sequence[Sequence[int]], start: int) -> tuple[int, list[int]]:
    """The lowest-numbered of the variables farthest from `start`, and the parents when it is the root."""
    parents = [-1] * len(neighbours)
    level, last = [start], [start]
    while level:
        last, found = level, []
        for v in level:
            for other in neighbours[v]:
                if other != parents[v]:
                    parents[other] = v
                    found.append(other)
        level = found
    return min(last), parents
