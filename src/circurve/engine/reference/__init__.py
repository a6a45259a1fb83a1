"""The reference backend: plain torch, for any circuit, device and precision, differentiable."""

from circurve.engine.reference.backend import DownwardPass, Reference
from circurve.engine.reference.downward import RootFlow, SumPass, root_flow
from circurve.engine.reference.upward import SumValues, UpwardPass
from circurve.engine.reference.workspace import FRESH, Memory, Rows, Workspace

__all__ = [
    "FRESH",
    "DownwardPass",
    "Memory",
    "Reference",
    "RootFlow",
    "Rows",
    "SumPass",
    "SumValues",
    "UpwardPass",
    "Workspace",
    "root_flow",
]
