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
    "MemoryLimitError",
    "MissingPackageError",
    "OptionError",
    "ParameterError",
    "StructureError",
    "TrainingError",
    "WorkerError",
    "needs",
    "warn_user",
]


@dataclass(frozen=True)
class Argument:
    """An argument that a message names: `missing=-1` in Python, `--missing -1` on the command line.

    Without a value, the name alone. lead: words in front of it, which are left out with it if there is no such
    argument.
    """

    name: str
    value: object = None
    lead: str = ""

    def __str__(self) -> str:
        return f"{self.lead}{self.name}{'' if self.value is None else f'={self.value!r}'}"


class CircurveError(Exception):
    """Base class of all errors that Circurve raises on purpose.

    Parameters
    ----------
    *parts : str or Argument
        The parts of the message; an `Argument` is written as `name=value` in Python and as `--name value` in a shell.

    Examples
    --------
    >>> import circurve as cc
    >>> try:
    ...     cc.hclt([[0, 1], [1, 1]], units=0)
    ... except cc.CircurveError as error:
    ...     print(error)
    units must be a whole number >= 1, not 0
    """

    def __init__(self, *parts: str | Argument) -> None:
        super().__init__("".join(map(str, parts)))
        self.parts = parts


class StructureError(CircurveError, ValueError):
    """A circuit that is not smooth, not decomposable, or not well formed; the message names the wrong nodes.

    Parameters
    ----------
    *parts : str or Argument
        The parts of the message; an `Argument` is written as `name=value` in Python and as `--name value` in a shell.

    Examples
    --------
    >>> import circurve as cc
    >>> rain = cc.Input(0, cc.Bernoulli(), name="rain")
    >>> cc.Circuit(cc.Product([rain, cc.Input(0, cc.Bernoulli(), name="also rain")], name="both"))
    StructureError: Product 'both': children Input 'rain' and Input 'also rain' share variables {0}
    """


class DataError(CircurveError, ValueError):
    """Data that do not fit: wrong columns, values out of range, nothing observed, unreadable.

    Parameters
    ----------
    *parts : str or Argument
        The parts of the message; an `Argument` is written as `name=value` in Python and as `--name value` in a shell.

    Examples
    --------
    >>> import circurve as cc
    >>> circuit = cc.mixture(2, components=2)  # two columns of zeros and ones
    >>> cc.fit(circuit, [[0, 1], [0, 3]], epochs=1)
    DataError: train data: column 2, row 2: value 3 does not fit Bernoulli(): 3 is not 0 or 1
    """


class ParameterError(CircurveError, ValueError):
    """Circuit parameters of the wrong shape or outside their range; the message names the node.

    Parameters
    ----------
    *parts : str or Argument
        The parts of the message; an `Argument` is written as `name=value` in Python and as `--name value` in a shell.

    Examples
    --------
    >>> import circurve as cc
    >>> rain = cc.Input(0, cc.Bernoulli(), name="rain")
    >>> cc.Model.from_parameters(cc.Circuit(rain), inputs={rain: [[1.2]]})
    ParameterError: Input 'rain': a probability is not between 0 and 1
    """


class OptionError(CircurveError, ValueError):
    """An option outside its range; the message names the option and the value.

    Parameters
    ----------
    *parts : str or Argument
        The parts of the message; an `Argument` is written as `name=value` in Python and as `--name value` in a shell.

    Examples
    --------
    >>> import circurve as cc
    >>> cc.Gated(mu=-1)
    OptionError: mu must be a finite number >= 0, not -1
    """


class MissingPackageError(OptionError, ImportError):
    """A feature needs a package that is not installed; the message names the extra to install.

    Parameters
    ----------
    *parts : str or Argument
        The parts of the message; an `Argument` is written as `name=value` in Python and as `--name value` in a shell.

    Examples
    --------
    >>> import circurve as cc
    >>> raise cc.MissingPackageError("circurve.plots needs matplotlib: pip install 'circurve[plots]'")
    MissingPackageError: circurve.plots needs matplotlib: pip install 'circurve[plots]'
    """


class MemoryLimitError(CircurveError, MemoryError):
    """More memory is needed than is free, or than the budget allows; the message says for what, and what to change.

    Parameters
    ----------
    *parts : str or Argument
        The parts of the message; an `Argument` is written as `name=value` in Python and as `--name value` in a shell.

    Examples
    --------
    >>> import circurve as cc
    >>> try:
    ...     cc.chow_liu_tree([[0, 1], [1, 1]], memory_budget=100)
    ... except cc.MemoryLimitError as error:
    ...     print(str(error).partition(":")[0])
    mutual information needs 1.12 kB (blocks 1.12 kB), but memory_budget=100 is less
    """


class TrainingError(CircurveError):
    """All runs of a training failed, because parameters, statistics or data are not finite; the message names the
    first.

    Parameters
    ----------
    message : str
        What went wrong.
    failures : tuple of (int, str), default ()
        For each run the epoch in which it failed, and why.

    Examples
    --------
    >>> import circurve as cc
    >>> try:
    ...     raise cc.TrainingError("all 2 runs failed", ((3, "a weight is NaN"), (5, "a weight is NaN")))
    ... except cc.TrainingError as error:
    ...     print([epoch for epoch, reason in error.failures])
    [3, 5]
    """

    def __init__(self, message: str, failures: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(message)
        self.failures = failures


class WorkerError(CircurveError, RuntimeError):
    """Another process of a data-parallel training is gone.

    Examples
    --------
    >>> import circurve as cc
    >>> issubclass(cc.WorkerError, RuntimeError)
    True
    """


class FileFormatError(CircurveError, ValueError):
    """A model or data file that is damaged, truncated, of another kind, or from a newer version.

    Parameters
    ----------
    *parts : str or Argument
        The parts of the message; an `Argument` is written as `name=value` in Python and as `--name value` in a shell.

    Examples
    --------
    >>> import os, tempfile
    >>> import circurve as cc
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "model.safetensors")
    >>> with open(path, "wb") as file:
    ...     _ = file.write(b"not a model")
    >>> try:
    ...     cc.load(path)
    ... except cc.FileFormatError as error:
    ...     print("cannot be read" if path in str(error) else error)
    cannot be read
    """


class FileAccessError(CircurveError, OSError):
    """A file that cannot be read or written: missing, not allowed, a folder, no space left; the message names the file.

    Parameters
    ----------
    *parts : str or Argument
        The parts of the message; an `Argument` is written as `name=value` in Python and as `--name value` in a shell.

    Examples
    --------
    >>> import circurve as cc
    >>> cc.load("no-such-model.safetensors")
    FileAccessError: cannot read no-such-model.safetensors: No such file or directory
    """


class DownloadError(CircurveError, OSError):
    """A file that could not be downloaded, or that arrived with the wrong content; the message names the address.

    Parameters
    ----------
    *parts : str or Argument
        The parts of the message; an `Argument` is written as `name=value` in Python and as `--name value` in a shell.

    Examples
    --------
    Data sets of the DEBD collection are downloaded on first use:

    >>> import circurve as cc
    >>> def load_or_explain(name):
    ...     try:
    ...         return cc.load_dataset(name)
    ...     except cc.DownloadError as error:
    ...         print(error)
    >>> load_or_explain("digits")  # built in: nothing to download
    <Dataset digits: 64 variables, rows: 1257 train, 270 valid, 270 test>
    """


class CircurveWarning(UserWarning):
    """Something was left out or changed, and the result is still valid.

    Parameters
    ----------
    *parts : str or Argument
        The parts of the message; an `Argument` is written as `name=value` in Python and as `--name value` in a shell.

    Examples
    --------
    Turn these warnings into errors, for instance in tests:

    >>> import warnings
    >>> import circurve as cc
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", cc.CircurveWarning)
    ...     cc.infer_families([[-1], [0], [1]])
    CircurveWarning: column 1: whole numbers from -1 on, taken as Gaussian; if -1 marks missing values, say missing=-1
    """

    def __init__(self, *parts: str | Argument) -> None:
        super().__init__("".join(map(str, parts)))
        self.parts = parts


@contextmanager
def needs(extra: str, feature: str) -> Iterator[None]:
    """A context in which importing a package that is not installed raises an error that says what to install:
    `circurve[extra]`."""
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
