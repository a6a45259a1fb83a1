"""Circurve: curvature-aware learning of probabilistic circuits."""

from circurve import inputs
from circurve._version import __version__
from circurve.data import Dataset, load_data, load_dataset
from circurve.errors import (
    CircurveError,
    CircurveWarning,
    DataError,
    FileFormatError,
    OptionError,
    ParameterError,
    StructureError,
)
from circurve.graph import Circuit, Input, Product, Sum
from circurve.inputs import Bernoulli, Binomial, Categorical, Gaussian, Indicator, Poisson
from circurve.learning import Examples, Gated, Global, Grid, Run, Vanilla, fit, fit_fleet, gates, schedules
from circurve.model import Model, load
from circurve.structures import chow_liu_tree, fully_factorized, hclt, hmm, mixture, random_binary_trees

__all__ = [
    "Bernoulli",
    "Binomial",
    "Categorical",
    "Circuit",
    "CircurveError",
    "CircurveWarning",
    "DataError",
    "Dataset",
    "Examples",
    "FileFormatError",
    "Gated",
    "Gaussian",
    "Global",
    "Grid",
    "Indicator",
    "Input",
    "Model",
    "OptionError",
    "ParameterError",
    "Poisson",
    "Product",
    "Run",
    "StructureError",
    "Sum",
    "Vanilla",
    "__version__",
    "chow_liu_tree",
    "fit",
    "fit_fleet",
    "fully_factorized",
    "gates",
    "hclt",
    "hmm",
    "inputs",
    "load",
    "load_data",
    "load_dataset",
    "mixture",
    "random_binary_trees",
    "schedules",
]
