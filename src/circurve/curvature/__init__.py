"""Curvature: where in a model its sharpness sits, exactly."""

from circurve.curvature.hessian import Edge, Hessian, hessian, hessian_diagonal, local_hessian, top_eigenvalues
from circurve.curvature.measure import PerSample, curvature, hessian_trace, per_sample
from circurve.curvature.record import Curvature, NodeRef, load_curvature

__all__ = [
    "Curvature",
    "Edge",
    "Hessian",
    "NodeRef",
    "PerSample",
    "curvature",
    "hessian",
    "hessian_diagonal",
    "hessian_trace",
    "load_curvature",
    "local_hessian",
    "per_sample",
    "top_eigenvalues",
]
