"""The fast path for latent trees on a CPU."""

from circurve.engine.tree.backend import LatentTree
from circurve.engine.tree.layout import TreeLayout, tree_layout

__all__ = ["LatentTree", "TreeLayout", "tree_layout"]
