"""Errors, warnings and exit codes as the user sees them: one line each, on standard error."""

from __future__ import annotations

import re
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import typer

from circurve.errors import (
    CircurveWarning,
    DataError,
    DownloadError,
    FileAccessError,
    FileFormatError,
    OptionError,
    TrainingError,
    WorkerError,
)

__all__ = ["BAD_USE", "FAILED", "INTERRUPTED", "NotSavedError", "one_line_warnings", "report"]

FAILED, BAD_USE, INTERRUPTED = 1, 2, 130

USAGE_ERROR = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "UsageError")
"""What typer raises for unknown options and the like; from click, or from typer's own copy of it."""

BAD_USE_ERRORS = (USAGE_ERROR, OptionError, DataError, FileFormatError, FileAccessError)

ON_THE_COMMAND_LINE = {
    "say missing=-1": "say --missing -1",
    "pass missing=-1": "pass --missing -1",
    "pass unseen='missing'": "pass --unseen missing",
    "missing_columns='missing' takes its values as missing": "add an empty column of that name if it is unknown",
    "say header=True": "say --header",
    "data_dir='DEBD' (--data-dir DEBD)": "--data-dir DEBD",
    "without data_dir": "without --data-dir",
    "give it as data_dir": "give it as --data-dir",
    ": Value error, ": ": ",
}
"""What is said for Python, and what it is called here."""

TYPES = re.compile(r"types=\{'?([^{}']*)'?: '(\w+)'\}")
"""The types of a column, as Python takes them."""

OPTIONS = re.compile(
    r"^(epochs|batch_size|patience|tolerance|seed|pseudocount|gate_memory|ratio_floor|device|checkpoint_every)"
    r" (?=must )"
)
"""An option at the beginning of a message, by its name in Python."""


class NotSavedError(Exception):
    """The work was done, but its file could not be written: a failure while working, not bad use."""


def report(error: Exception, debug: bool) -> int:
    """Print one line about the error, after the traceback if `debug`, and return the exit code."""
    if debug:
        traceback.print_exception(error)
    # a worker that is silent otherwise may be the only one left
    stream = sys.__stderr__ if isinstance(error, WorkerError) else sys.stderr
    print(f"circurve: error: {_message(error)}", file=stream)
    return BAD_USE if isinstance(error, BAD_USE_ERRORS) else FAILED


@contextmanager
def one_line_warnings() -> Iterator[None]:
    """Within it, each warning is one line."""

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        print(f"circurve: warning: {_one_line(message)}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always", CircurveWarning)
        warnings.showwarning = show
        yield


def _message(error: Exception) -> str:
    if isinstance(error, USAGE_ERROR):
        return _one_line(getattr(error, "format_message", error.__str__)())
    if isinstance(error, (*BAD_USE_ERRORS, DownloadError, NotSavedError, TrainingError, WorkerError)):
        return _one_line(error)
    return f"{type(error).__name__}: {_one_line(error)} (--debug shows where)"


def _one_line(text: object) -> str:
    line = " ".join(str(text).split())
    for python, here in ON_THE_COMMAND_LINE.items():
        line = line.replace(python, here)
    line = TYPES.sub(r"--types \1=\2", line)
    line = OPTIONS.sub(lambda found: f"--{found[1].replace('_', '-')} ", line)
    line = re.sub(r"^checkpoint (?=\S+( belongs|:) )", "--checkpoint ", line)
    return f"--data-dir {line.removeprefix('data_dir ')}" if line.startswith("data_dir ") else line
