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
    data: object, families: Families | Family | None = None, pseudocount: float = 1.0, bins: int = 8
) -> Tree:
    """The tree over the columns of data (N, V) with the largest sum of mutual information, rooted at its centre.

    The options are those of `mutual_information`, whose cost dominates; the tree itself is O(V^2). Among trees of
    equal weight the choice depends on the order of the columns only, not on the machine.
    """
    weights = mutual_information(data, families, pseudocount, bins)
    links = maximum_spanning_tree(np.round(weights, DECIMALS))
    parents = root_at_centre(links)
    information = np.where(parents < 0, 0.0, weights[np.arange(len(parents)), parents])
    return Tree(parents, information)


def maximum_spanning_tree(weights: NDArray[np.float64]) -> list[tuple[int, int]]:  # (V, V) -> V-1 links
    """The links of a spanning tree of the complete graph with the largest total weight.

    Prim's algorithm on the dense matrix: the tree takes in the outside variable with the heaviest link to it, V-1
    times; the first one wins a tie. O(V^2) time, O(V) memory beyond the matrix. Weights may be zero or negative.
    """
    heaviest = weights[0].astype(np.float64)  # of the links from each outside variable into the tree
    partner = np.zeros(len(weights), dtype=np.int64)
    outside = np.ones(len(weights), dtype=bool)
    outside[0] = False
    links: list[tuple[int, int]] = []
    for _ in range(len(weights) - 1):
        v = int(np.argmax(np.where(outside, heaviest, -np.inf)))
        links.append((int(partner[v]), v))
        outside[v] = False
        better = weights[v] > heaviest
        heaviest = np.where(better, weights[v], heaviest)
        partner[better] = v
    return links
