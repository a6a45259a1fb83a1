"""The fast path for latent trees and their mixtures on a CPU."""

from circurve.engine.tree.backend import LatentTree
from circurve.engine.tree.layout import TreeLayout, tree_layout
from circurve.engine.tree.members import MixtureLayout, mixture_layout
from circurve.engine.tree.mixture import TreeMixture

__all__ = ["LatentTree", "MixtureLayout", "TreeLayout", "TreeMixture", "mixture_layout", "tree_layout"]
