"""Circurve: curvature-aware learning of probabilistic circuits."""

from circurve import inputs
from circurve._version import __version__
from circurve.curvature import (
    Curvature,
    curvature,
    hessian,
    hessian_diagonal,
    hessian_trace,
    load_curvature,
    local_hessian,
    per_sample,
    top_eigenvalues,
)
from circurve.data import Dataset, load_data, load_dataset
from circurve.errors import (
    CircurveError,
    CircurveWarning,
    DataError,
    FileAccessError,
    FileFormatError,
    OptionError,
    ParameterError,
    StructureError,
)
from circurve.graph import Circuit, Input, Product, Sum
from circurve.inputs import Bernoulli, Binomial, Categorical, Gaussian, Indicator, Poisson
from circurve.learning import Examples, Gated, Global, Grid, Run, Vanilla, fit, fit_fleet, gates, schedules
from circurve.model import Model, load
from circurve.structures import (
    chow_liu_tree,
    fully_factorized,
    hclt,
    hmm,
    infer_families,
    mixture,
    random_binary_trees,
)

__all__ = [
    "Bernoulli",
    "Binomial",
    "Categorical",
    "Circuit",
    "CircurveError",
    "CircurveWarning",
    "Curvature",
    "DataError",
    "Dataset",
    "Examples",
    "FileAccessError",
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
    "curvature",
    "fit",
    "fit_fleet",
    "fully_factorized",
    "gates",
    "hclt",
    "hessian",
    "hessian_diagonal",
    "hessian_trace",
    "hmm",
    "infer_families",
    "inputs",
    "load",
    "load_curvature",
    "load_data",
    "load_dataset",
    "local_hessian",
    "mixture",
    "per_sample",
    "random_binary_trees",
    "schedules",
    "top_eigenvalues",
]
