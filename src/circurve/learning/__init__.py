"""Learning: EM over fleets of runs, plain or regularised by curvature."""

from circurve.data import Examples
from circurve.learning import gates, schedules
from circurve.learning.fit import fit, fit_fleet
from circurve.learning.history import Callback, EpochEnd, EpochRecord, Failure, FitResult, FleetResult
from circurve.learning.methods import Gated, Global, Grid, Method, Vanilla
from circurve.learning.options import Run

__all__ = [
    "Callback",
    "EpochEnd",
    "EpochRecord",
    "Examples",
    "Failure",
    "FitResult",
    "FleetResult",
    "Gated",
    "Global",
    "Grid",
    "Method",
    "Run",
    "Vanilla",
    "fit",
    "fit_fleet",
    "gates",
    "schedules",
]
