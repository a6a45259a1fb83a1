"""Circurve: curvature-aware learning of probabilistic circuits."""

from typing import TYPE_CHECKING, Any

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
from circurve.data import Dataset, Examples, Table, infer_families, infer_schema, load_data, load_dataset, take_fraction
from circurve.errors import (
    CircurveError,
    CircurveWarning,
    DataError,
    DownloadError,
    FileAccessError,
    FileFormatError,
    OptionError,
    ParameterError,
    StructureError,
    TrainingError,
)
from circurve.graph import Circuit, Input, Product, Sum
from circurve.inputs import Bernoulli, Binomial, Categorical, Gaussian, Indicator, Poisson
from circurve.learning import Gated, Global, Grid, Run, Vanilla, fit, fit_fleet, gates, schedules
from circurve.model import Model, load
from circurve.schema import Column, Schema
from circurve.structures import (
    chow_liu_tree,
    fully_factorized,
    hclt,
    hmm,
    mixture,
    random_binary_trees,
)

if TYPE_CHECKING:
    from circurve.estimators import CircuitClassifier, CircuitImputer, DensityEstimator, OutlierDetector

__all__ = [
    "Bernoulli",
    "Binomial",
    "Categorical",
    "Circuit",
    "CircuitClassifier",
    "CircuitImputer",
    "CircurveError",
    "CircurveWarning",
    "Column",
    "Curvature",
    "DataError",
    "Dataset",
    "DensityEstimator",
    "DownloadError",
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
    "OutlierDetector",
    "ParameterError",
    "Poisson",
    "Product",
    "Run",
    "Schema",
    "StructureError",
    "Sum",
    "Table",
    "TrainingError",
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
    "infer_schema",
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
    "take_fraction",
    "top_eigenvalues",
]

ESTIMATORS = ("CircuitClassifier", "CircuitImputer", "DensityEstimator", "OutlierDetector")


def __getattr__(name: str) -> Any:
    """The estimators, loaded on first use: scikit-learn is slow to import."""
    if name not in ESTIMATORS:
        raise AttributeError(f"module 'circurve' has no attribute {name!r}")
    from circurve import estimators  # noqa: PLC0415

    return getattr(estimators, name)
