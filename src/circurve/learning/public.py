"""All that `circurve.learning` exports, imported at once."""

from circurve.data import Examples
from circurve.learning import gates, schedules
from circurve.learning.ensemble import Ensemble, Member
from circurve.learning.fitting import fit, fit_fleet
from circurve.learning.fitting_ensembles import fit_ensemble
from circurve.learning.history import Callback, EpochEnd, EpochRecord, Failure, FitResult, FleetResult
from circurve.learning.methods import Gated, Global, Grid, Method, Vanilla
from circurve.learning.mixing import components, mix
from circurve.learning.options import Run
from circurve.learning.units import UnitsChoice, fit_units

__all__ = [
    "Callback",
    "Ensemble",
    "EpochEnd",
    "EpochRecord",
    "Examples",
    "Failure",
    "FitResult",
    "FleetResult",
    "Gated",
    "Global",
    "Grid",
    "Member",
    "Method",
    "Run",
    "UnitsChoice",
    "Vanilla",
    "components",
    "fit",
    "fit_ensemble",
    "fit_fleet",
    "fit_units",
    "gates",
    "mix",
    "schedules",
]
