"""Hidden Markov models: a chain of latents, one for each variable."""

from __future__ import annotations

import numpy as np

from circurve.graph import Circuit
from circurve.structures.arguments import Families, as_families, check_count
from circurve.structures.hclt import latent_tree
from circurve.structures.tree import Tree

__all__ = ["hmm"]


def hmm(families: Families, units: int) -> Circuit:
    """A hidden Markov model over the variables in their order, with `units` states at each step.

    p(x) = sum_z p(z_0) prod_t p(x_t | z_t) prod_{t>0} p(z_t | z_{t-1}); each step has K x K transition weights of its
    own. `families`: one for each variable, `(family, count)`, or a count of binary variables. O(V).
    """
    check_count("units", units)
    chosen = as_families(families)
    return latent_tree(Tree(np.arange(len(chosen)) - 1), chosen, units)
