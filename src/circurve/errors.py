"""Every error that Circurve raises on purpose, under one base class, and its warnings."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

__all__ = [
    "CircurveError",
    "CircurveWarning",
    "DataError",
    "DownloadError",
    "FileAccessError",
    "FileFormatError",
    "OptionError",
    "ParameterError",
    "StructureError",
    "TrainingError",
    "WorkerError",
    "warn_user",
]


class CircurveError(Exception):
    """Base class of all errors raised by Circurve."""


class StructureError(CircurveError, ValueError):
    """A circuit that is not smooth, not decomposable, or not well formed; names the nodes at fault."""


class DataError(CircurveError, ValueError):
    """Data that does not fit: wrong columns, values out of range, nothing observed, unreadable."""


class ParameterError(CircurveError, ValueError):
    """Circuit parameters of the wrong shape or outside their range; names the node."""


class OptionError(CircurveError, ValueError):
    """An option outside its range; names the option and the value."""


class TrainingError(CircurveError):
    """No run of a training is left: parameters, statistics or data turned out not to be finite; names the first.

    failures: of each run the epoch in which it broke, and why.
    """

    def __init__(self, message: str, failures: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(message)
        self.failures = failures


class WorkerError(CircurveError, RuntimeError):
    """Another process of a data-parallel training is gone."""


class FileFormatError(CircurveError, ValueError):
    """A model or data file that is damaged, truncated, foreign, or from a newer version."""


class FileAccessError(CircurveError, OSError):
    """A file that cannot be read or written: not there, not allowed, a folder, no space left; names the file."""


class DownloadError(CircurveError, OSError):
    """A file that could not be fetched over the network, or that came with the wrong content; names its address."""


class CircurveWarning(UserWarning):
    """Something was left out or adapted, and the user should know."""


def warn_user(message: str) -> None:
    """A CircurveWarning that points to the line outside this package from which it was called."""
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == __package__:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, CircurveWarning, stacklevel=level)
