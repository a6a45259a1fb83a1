"""The names that options accept, and their types.

This module imports neither torch nor numpy: the command line reads it to show its help at once.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

__all__ = [
    "BACKENDS",
    "ESTIMATORS",
    "INITIALIZATIONS",
    "PLAIN_GATES",
    "PRECISIONS",
    "RATIO_FLOOR",
    "BackendName",
    "Estimator",
    "Initialization",
]

BackendName: TypeAlias = Literal["auto", "reference", "tree", "fused"]
BACKENDS: tuple[BackendName, ...] = get_args(BackendName)

Initialization: TypeAlias = Literal["random", "prototypes"]
INITIALIZATIONS: tuple[Initialization, ...] = get_args(Initialization)

PRECISIONS = ("float32", "float64", "tf32")

Estimator: TypeAlias = Literal["mean_trace", "mean_ratio", "flow_weighted", "geometric", "clipped"]
ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)
"""How local curvature is averaged; see `learning/local_curvature.py`."""

RATIO_FLOOR = 1e-4
"""The floor of the estimator `clipped`: ratios up to 1e4, those of 10,000 children of equal weight, count in full."""

PLAIN_GATES = ("ones", "max_norm", "log_norm", "rank", "sigmoid", "flow_local", "unused_sharp")
"""The gates that need no argument; `learning/gates.py` defines them."""
