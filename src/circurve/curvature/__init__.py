"""Curvature: where in a model its sharpness sits, exactly."""

from circurve.curvature.analysis import (
    Attenuation,
    Concentration,
    DepthProfile,
    Reversal,
    Reversals,
    attenuation,
    concentration,
    depth_profile,
    rank_by,
    reversals,
)
from circurve.curvature.hessian import Edge, Hessian, hessian, hessian_diagonal, local_hessian, top_eigenvalues
from circurve.curvature.measure import curvature, hessian_trace, per_sample
from circurve.curvature.record import Curvature, NodeRef, PerSample, load_curvature

__all__ = [
    "Attenuation",
    "Concentration",
    "Curvature",
    "DepthProfile",
    "Edge",
    "Hessian",
    "NodeRef",
    "PerSample",
    "Reversal",
    "Reversals",
    "attenuation",
    "concentration",
    "curvature",
    "depth_profile",
    "hessian",
    "hessian_diagonal",
    "hessian_trace",
    "load_curvature",
    "local_hessian",
    "per_sample",
    "rank_by",
    "reversals",
    "top_eigenvalues",
]
