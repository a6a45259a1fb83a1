"""Figures of models, trainings and curvature.

Every function returns a `matplotlib.figure.Figure`. It is made without pyplot, so that no display is needed;
`figure.savefig(...)` writes it to a file, and a notebook shows it as the last value of a cell. Settings of matplotlib
are not changed. In all figures, F^2 is how much a unit is used, t^ its own sharpness, and T^ its share of the trace.
"""

from circurve.errors import needs

with needs("plots", "circurve.plots"):
    from circurve.plots.circuit import circuit_panels
    from circurve.plots.concentration import concentration
    from circurve.plots.decomposition import decomposition, find_regimes
    from circurve.plots.depth import depth_profile
    from circurve.plots.landscape import landscape
    from circurve.plots.selection import node_selection
    from circurve.plots.strengths import strengths
    from circurve.plots.training import training_curves
    from circurve.plots.tree import Mark, tree_panels

__all__ = [
    "Mark",
    "circuit_panels",
    "concentration",
    "decomposition",
    "depth_profile",
    "find_regimes",
    "landscape",
    "node_selection",
    "strengths",
    "training_curves",
    "tree_panels",
]
