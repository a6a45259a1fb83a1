"""Every error that Circurve raises on purpose, under one base class, and its warnings."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

__all__ = [
    "Argument",
    "CircurveError",
    "CircurveWarning",
    "DataError",
    "DownloadError",
    "FileAccessError",
    "FileFormatError",
    "MissingPackageError",
    "OptionError",
    "ParameterError",
    "StructureError",
    "TrainingError",
    "needs",
    "warn_user",
]


@dataclass(frozen=True)
class Argument:
    """An argument that a message names: `missing=-1` in Python, `--missing -1` on the command line.

    Without a value, the name alone. lead: words that stand before it, and are left out with it where there is no such
    argument.
    """

    name: str
    value: object = None
    lead: str = ""

    def __str__(self) -> str:
        return f"{self.lead}{self.name}{'' if self.value is None else f'={self.value!r}'}"


class CircurveError(Exception):
    """Base class of all errors raised by Circurve.

    parts: the message, in texts and in arguments that are spelled differently in Python and on the command line.
    """

    def __init__(self, *parts: str | Argument) -> None:
        super().__init__("".join(map(str, parts)))
        self.parts = parts


class StructureError(CircurveError, ValueError):
    """A circuit that is not smooth, not decomposable, or not well formed; names the nodes at fault."""


class DataError(CircurveError, ValueError):
    """Data that does not fit: wrong columns, values out of range, nothing observed, unreadable."""


class ParameterError(CircurveError, ValueError):
    """Circuit parameters of the wrong shape or outside their range; names the node."""


class OptionError(CircurveError, ValueError):
    """An option outside its range; names the option and the value."""


class MissingPackageError(OptionError, ImportError):
    """A feature needs a package that is not installed; names the extra to install."""


class TrainingError(CircurveError):
    """No run of a training is left: parameters, statistics or data turned out not to be finite; names the first.

    failures: of each run the epoch in which it broke, and why.
    """

    def __init__(self, message: str, failures: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(message)
        self.failures = failures


class FileFormatError(CircurveError, ValueError):
    """A model or data file that is damaged, truncated, foreign, or from a newer version."""


class FileAccessError(CircurveError, OSError):
    """A file that cannot be read or written: not there, not allowed, a folder, no space left; names the file."""


class DownloadError(CircurveError, OSError):
    """A file that could not be fetched over the network, or that came with the wrong content; names its address."""


class CircurveWarning(UserWarning):
    """Something was left out or adapted, and the user should know. parts: as in `CircurveError`."""

    def __init__(self, *parts: str | Argument) -> None:
        super().__init__("".join(map(str, parts)))
        self.parts = parts


@contextmanager
def needs(extra: str, feature: str) -> Iterator[None]:
    """Within it, an import of a package that is not installed says what to install: `circurve[extra]`."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == __package__:
            raise
        raise MissingPackageError(f"{feature} needs {package}: pip install 'circurve[{extra}]'") from error


def warn_user(*parts: str | Argument) -> None:
    """A CircurveWarning that points to the line outside this package from which it was called."""
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == __package__:
        frame, level = frame.f_back, level + 1
    warnings.warn(CircurveWarning(*parts), stacklevel=level)
