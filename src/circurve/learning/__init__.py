"""Learning: EM over fleets of runs."""

from circurve.learning import schedules
from circurve.learning.examples import Examples
from circurve.learning.fit import fit, fit_fleet
from circurve.learning.history import EpochRecord, FitResult, FleetResult
from circurve.learning.loop import Callback, EpochEnd
from circurve.learning.methods import Method, Vanilla
from circurve.learning.options import Run

__all__ = [
    "Callback",
    "EpochEnd",
    "EpochRecord",
    "Examples",
    "FitResult",
    "FleetResult",
    "Method",
    "Run",
    "Vanilla",
    "fit",
    "fit_fleet",
    "schedules",
]
