"""Circurve: curvature-aware learning of probabilistic circuits."""

from circurve._version import __version__
from circurve.graph import Circuit, Input, Product, Sum

__all__ = ["Circuit", "Input", "Product", "Sum", "__version__"]
