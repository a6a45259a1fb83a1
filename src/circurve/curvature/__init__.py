"""Curvature: which parts of a model are sharp, exactly.

The package has the name of its main function, so it is that function, too: `circurve.curvature(model, x)` and
`circurve.curvature.curvature(model, x)` are the same call, whichever way the package was imported.

Examples
--------
>>> import circurve as cc
>>> data = cc.load_dataset("digits")
>>> model = cc.fit(cc.hclt(data.train, units=4), data.train, epochs=3, valid=False).model
>>> record = cc.curvature(model, data.train)
>>> print(f"trace {record.trace:.0f}, {len(record)} sum units")
trace 111, 253 sum units
>>> round(cc.curvature.concentration(record, "total").fraction_for(0.9), 2)  # these hold 90 % of it
0.74
"""

import sys
from inspect import signature
from types import ModuleType
from typing import Any

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
from circurve.curvature.diagonal import hessian_diagonal, local_hessian
from circurve.curvature.hessian import Edge, Hessian, hessian, top_eigenvalues
from circurve.curvature.measure import curvature, hessian_trace, per_sample
from circurve.curvature.record import Curvature, NodeRef, PerSample, load_curvature
from circurve.curvature.shards import ShardStatistics, load_statistics, merge_statistics, statistics

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
    "ShardStatistics",
    "attenuation",
    "concentration",
    "curvature",
    "depth_profile",
    "hessian",
    "hessian_diagonal",
    "hessian_trace",
    "load_curvature",
    "load_statistics",
    "local_hessian",
    "merge_statistics",
    "per_sample",
    "rank_by",
    "reversals",
    "statistics",
    "top_eigenvalues",
]


class CallableModule(ModuleType):
    """A module that calls its function `curvature` when it is called, and can be pickled as functions can."""

    __signature__ = signature(curvature)

    def __call__(self, *arguments: Any, **options: Any) -> Curvature:
        return curvature(*arguments, **options)

    def __reduce__(self) -> str | tuple[Any, ...]:
        return _this_module, ()


def _this_module() -> ModuleType:
    return sys.modules[__name__]


_this_module().__class__ = CallableModule
