"""Circuits from and for other libraries; each is imported only when asked for."""

from circurve.interop.pyjuice_export import to_pyjuice
from circurve.interop.pyjuice_import import from_pyjuice

__all__ = ["from_pyjuice", "to_pyjuice"]
