"""The maximum spanning tree of a complete graph whose weights come block by block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["DECIMALS", "Forest"]

DECIMALS = 12
"""Weights closer than this are ties: the last bits of a logarithm differ between machines, the tree must not."""

Index = NDArray[np.int64]
Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Forest:
    """The maximum spanning forest of the links seen so far.

    Links are ordered from the heaviest to the lightest, ties by their variables (u, v), u < v. In that order no two
    links are equal, so each set of links has exactly one maximum spanning forest, and

        forest(A + B) = forest(forest(A) + B):

    a link that closes a circle of heavier links closes it in every larger set, too. So the forest after the last block
    is the spanning tree of the whole matrix, and V - 1 links are all that is ever kept.
    """

    variables: int
    edges: tuple[Index, Index]  # (E,) each, u < v, sorted by (u, v)
    weights: Array  # (E,)

    @classmethod
    def empty(cls, variables: int) -> Forest:
        """Before the first block."""
        none = np.zeros(0, dtype=np.int64)
        return cls(variables, (none, none), np.zeros(0))

    def with_block(self, rows: slice, columns: slice, part: Array) -> Forest:  # (A, B)
        """The forest with the links between two blocks of variables, the same one or a later one, added."""
        kept = np.ones(part.shape, dtype=bool)
        if rows == columns:
            kept = np.triu(kept, k=1)
        if len(self.weights) == self.variables - 1 and self.weights.size:
            kept &= part >= self.weights.min() - 10.0**-DECIMALS  # lighter than all links of a spanning tree
        u, v = np.nonzero(kept)
        return self._merged(u + rows.start, v + columns.start, part[u, v])

    def links(self) -> list[tuple[int, int]]:
        """The links as pairs of variables."""
        return list(zip(self.edges[0].tolist(), self.edges[1].tolist(), strict=True))

    def _merged(self, u: Index, v: Index, weights: Array) -> Forest:
        """The maximum spanning forest of these links, sorted by (u, v), and those that are kept."""
        if self.weights.size:
            u, v = (np.concatenate(pair) for pair in zip(self.edges, (u, v), strict=True))
            weights = np.concatenate([self.weights, weights])
            order = np.argsort(u * self.variables + v, kind="stable")  # two sorted lists: a merge, O(E)
            u, v, weights = u[order], v[order], weights[order]
        places = _spanning(u, v, np.round(weights, DECIMALS), self.variables)
        return Forest(self.variables, (u[places], v[places]), weights[places])


def _spanning(u: Index, v: Index, weights: Array, variables: int) -> Index:  # (E,) each -> at most V - 1 places
    """Which links are in the maximum spanning forest; of equal ones the first wins. O(E log E).

    The cost of a link is its place in the order from the heaviest to the lightest. A spanning forest depends on that
    order alone, and with distinct costs there is one only, whatever sort scipy uses.
    """
    from scipy.sparse import coo_array  # noqa: PLC0415 - slow to import, and only structures from data need it
    from scipy.sparse.csgraph import minimum_spanning_tree  # noqa: PLC0415

    order = np.argsort(-weights, kind="stable")
    costs = np.empty(len(u))
    costs[order] = np.arange(1, len(u) + 1)
    ends = u.astype(np.int32), v.astype(np.int32)  # older versions of scipy take no others
    tree = minimum_spanning_tree(coo_array((costs, ends), shape=(variables, variables)).tocsr())
    return np.sort(order[tree.data.astype(np.int64) - 1])
