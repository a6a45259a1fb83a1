"""The engine: a circuit compiled to index arrays, evaluated and differentiated layer by layer for fleets of runs."""

from circurve.engine.backends import AnyEngine, Backend, bind_engine, chosen_backend
from circurve.engine.batch import Batch, chunks
from circurve.engine.bound import Engine
from circurve.engine.compiler import compile
from circurve.engine.estep import log_prob, observe, statistics
from circurve.engine.inspect import flows, values
from circurve.engine.params import Params, random_weights, stack
from circurve.engine.program import Program
from circurve.engine.reference import backward, forward
from circurve.engine.statistics import CurvatureSums, Request, Statistics

__all__ = [
    "AnyEngine",
    "Backend",
    "Batch",
    "CurvatureSums",
    "Engine",
    "Params",
    "Program",
    "Request",
    "Statistics",
    "backward",
    "bind_engine",
    "chosen_backend",
    "chunks",
    "compile",
    "flows",
    "forward",
    "log_prob",
    "observe",
    "random_weights",
    "stack",
    "statistics",
    "values",
]
