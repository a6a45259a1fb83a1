"""Structures: from data, or from a shape alone, to a circuit."""

from circurve.data.infer import infer_families
from circurve.data.scan import Columns, scan_columns
from circurve.structures.chow_liu import chow_liu, chow_liu_tree
from circurve.structures.hclt import hclt, hmm
from circurve.structures.mixture import fully_factorized, mixture
from circurve.structures.mutual_information import mutual_information
from circurve.structures.random_trees import random_binary_trees
from circurve.structures.tree import Tree

__all__ = [
    "Columns",
    "Tree",
    "chow_liu",
    "chow_liu_tree",
    "fully_factorized",
    "hclt",
    "hmm",
    "infer_families",
    "mixture",
    "mutual_information",
    "random_binary_trees",
    "scan_columns",
]
