"""The Chow-Liu tree: the maximum spanning tree of pairwise mutual information (Chow and Liu, 1968)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from circurve.inputs import Family
from circurve.structures.arguments import Families
from circurve.structures.mutual_information import mutual_information
from circurve.structures.tree import Tree, root_at_centre

__all__ = ["chow_liu_tree", "maximum_spanning_tree"]

DECIMALS = 12
"""Weights closer than this are ties: the last bits of a logarithm differ between machines, the tree must not."""


def chow_liu_tree(
    data: object,
    families: Families | Family | None = None,
    pseudocount: float = 1.0,
    bins: int = 8,
    missing: int | None = None,
) -> Tree:
    """The tree over the columns of data (N, V) with the largest sum of mutual information, rooted at its centre.

    The options are those of `mutual_information`, whose cost dominates; the tree itself is O(V^2 log V). Among trees
    of equal weight the choice depends on the order of the columns only, not on the machine.
    """
    weights = mutual_information(data, families, pseudocount, bins, missing)
    links = maximum_spanning_tree(np.round(weights, DECIMALS))
    parents = root_at_centre(links)
    information = np.where(parents < 0, 0.0, weights[np.arange(len(parents)), parents])
    return Tree(parents, information)


def maximum_spanning_tree(weights: NDArray[np.float64]) -> list[tuple[int, int]]:  # (V, V) -> V-1 links
    """The links of a spanning tree of the complete graph with the largest total weight; weights are symmetric.

    The cost of a link is its place in the order from the heaviest to the lightest, the first one winning a tie. A
    spanning tree depends on that order alone, and with distinct costs there is one only, whatever sort scipy uses.
    """
    from scipy.sparse import coo_array  # noqa: PLC0415 - slow to import, and only structures from data need it
    from scipy.sparse.csgraph import minimum_spanning_tree  # noqa: PLC0415

    variables = len(weights)
    u, v = np.triu_indices(variables, k=1)
    costs = np.empty(len(u))
    costs[np.argsort(-weights[u, v], kind="stable")] = np.arange(1, len(u) + 1)
    tree = minimum_spanning_tree(coo_array((costs, (u, v)), shape=(variables, variables)).tocsr()).tocoo()
    return sorted(zip(tree.row.tolist(), tree.col.tolist(), strict=True))
