"""All that `circurve` exports; estimators, plots and reports are imported when they are used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from circurve import inputs
from circurve._version import __version__
from circurve.circuit_module import CircuitModule, torch_module
from circurve.curvature import (
    Curvature,
    hessian,
    hessian_diagonal,
    hessian_trace,
    load_curvature,
    local_hessian,
    per_sample,
    top_eigenvalues,
)
from circurve.data import (
    Dataset,
    Examples,
    Stream,
    Table,
    infer_families,
    infer_schema,
    load_data,
    load_dataset,
    open_stream,
    take_fraction,
)
from circurve.errors import (
    CircurveError,
    CircurveWarning,
    DataError,
    DownloadError,
    FileAccessError,
    FileFormatError,
    MemoryLimitError,
    MissingPackageError,
    OptionError,
    ParameterError,
    StructureError,
    TrainingError,
    WorkerError,
)
from circurve.graph import Circuit, Input, Product, Sum
from circurve.inputs import Bernoulli, Binomial, Categorical, Gaussian, Indicator, Poisson, register_family
from circurve.learning import (
    Ensemble,
    Gated,
    Global,
    Grid,
    Run,
    Vanilla,
    fit,
    fit_ensemble,
    fit_fleet,
    fit_units,
    gates,
    mix,
    schedules,
)
from circurve.model import Model, load
from circurve.models import Models
from circurve.schema import Column, Schema
from circurve.structures import (
    chow_liu,
    chow_liu_tree,
    fully_factorized,
    hclt,
    hmm,
    mixture,
    random_binary_trees,
)

if TYPE_CHECKING:  # the package circurve.curvature is this function: see its docstring
    from circurve.curvature import curvature
    from circurve.estimators import CircuitClassifier, CircuitImputer, DensityEstimator, OutlierDetector
    from circurve.report import report
else:
    from circurve import curvature

__all__ = [
    "Bernoulli",
    "Binomial",
    "Categorical",
    "Circuit",
    "CircuitClassifier",
    "CircuitImputer",
    "CircuitModule",
    "CircurveError",
    "CircurveWarning",
    "Column",
    "Curvature",
    "DataError",
    "Dataset",
    "DensityEstimator",
    "DownloadError",
    "Ensemble",
    "Examples",
    "FileAccessError",
    "FileFormatError",
    "Gated",
    "Gaussian",
    "Global",
    "Grid",
    "Indicator",
    "Input",
    "MemoryLimitError",
    "MissingPackageError",
    "Model",
    "Models",
    "OptionError",
    "OutlierDetector",
    "ParameterError",
    "Poisson",
    "Product",
    "Run",
    "Schema",
    "Stream",
    "StructureError",
    "Sum",
    "Table",
    "TrainingError",
    "Vanilla",
    "WorkerError",
    "__version__",
    "chow_liu",
    "chow_liu_tree",
    "curvature",
    "fit",
    "fit_ensemble",
    "fit_fleet",
    "fit_units",
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
    "mix",
    "mixture",
    "open_stream",
    "per_sample",
    "random_binary_trees",
    "register_family",
    "report",
    "schedules",
    "take_fraction",
    "top_eigenvalues",
    "torch_module",
]

ESTIMATORS = ("CircuitClassifier", "CircuitImputer", "DensityEstimator", "OutlierDetector")


def __getattr__(name: str) -> Any:
    """Estimators are imported when they are first used: scikit-learn takes a while."""
    if name in ESTIMATORS:
        return getattr(import_module("circurve.estimators"), name)
    raise AttributeError(f"module 'circurve' has no attribute {name!r}")
