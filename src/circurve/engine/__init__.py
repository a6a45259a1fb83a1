"""The engine: a circuit compiled to index arrays, and backends that compute values, flows and statistics from it."""

from circurve.engine.backend import Backend
from circurve.engine.batch import Batch, chunks
from circurve.engine.choice import BACKENDS, BackendName, choose_backend, explain_choice, fixed_bytes, option_for
from circurve.engine.compiler import compile, fold
from circurve.engine.gradient import differentiable_log_prob, refuse_discrete, wants_gradient
from circurve.engine.inspect import flows, values
from circurve.engine.params import Params, by_node, from_nodes, random_weights, stack
from circurve.engine.program import Program
from circurve.engine.reference import Reference
from circurve.engine.small import SmallBatches
from circurve.engine.statistics import CurvatureSums, Request, Statistics

__all__ = [
    "BACKENDS",
    "Backend",
    "BackendName",
    "Batch",
    "CurvatureSums",
    "Params",
    "Program",
    "Reference",
    "Request",
    "SmallBatches",
    "Statistics",
    "by_node",
    "choose_backend",
    "chunks",
    "compile",
    "differentiable_log_prob",
    "explain_choice",
    "fixed_bytes",
    "flows",
    "fold",
    "from_nodes",
    "option_for",
    "random_weights",
    "refuse_discrete",
    "stack",
    "values",
    "wants_gradient",
]
