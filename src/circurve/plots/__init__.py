"""Pictures: records and arrays -> matplotlib figures. No training here, no files, and nothing global is changed.

Every function returns a `matplotlib.figure.Figure`, made without pyplot: no display is needed, `figure.savefig(...)`
writes it, and a notebook shows it as the last value of a cell.
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
