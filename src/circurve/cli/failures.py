"""Errors, warnings and exit codes as the user sees them: one line each, on standard error."""

from __future__ import annotations

import errno
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO

import typer

from circurve.cli.safe_text import visible
from circurve.errors import (
    Argument,
    CircurveError,
    CircurveWarning,
    DataError,
    DownloadError,
    FileAccessError,
    FileFormatError,
    MemoryLimitError,
    OptionError,
    TrainingError,
    WorkerError,
)

__all__ = ["BAD_USE", "FAILED", "INTERRUPTED", "NO_SPACE", "NotSavedError", "Options", "one_line_warnings", "report"]

FAILED, BAD_USE, INTERRUPTED = 1, 2, 130

USAGE_ERROR = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "UsageError")
"""What typer raises for unknown options and similar mistakes; from click, or from typer's own copy of it."""

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
"""What the system answers if a disk is full, broken, or can no longer be written: nothing that was typed is wrong."""

BAD_USE_ERRORS = (USAGE_ERROR, OptionError, DataError, FileFormatError, FileAccessError, MemoryLimitError)


@dataclass(frozen=True)
class Options:
    """Options as they are typed, `--data-dir`, by their names in Python."""

    program: Mapping[str, str]
    """Those of all commands."""

    command: Mapping[str, str]
    """Those of the command that was typed."""


class NotSavedError(Exception):
    """The work was done, but its file could not be written: a failure while working, not bad use."""


def report(error: Exception, options: Options, debug: bool) -> int:
    """Print one line about the error, after the traceback if `debug`, and return the exit code."""
    if debug:
        traceback.print_exception(error)
    # a worker that otherwise prints nothing may be the only one left
    stream = sys.__stderr__ if isinstance(error, WorkerError) else sys.stderr
    print(f"circurve: error: {_message(error, options)}", file=stream)
    return BAD_USE if isinstance(error, BAD_USE_ERRORS) and not _is_disk_full(error) else FAILED


def _is_disk_full(error: Exception) -> bool:
    """Whether a file could not be written, whatever was typed."""
    cause = error.__cause__
    return isinstance(error, FileAccessError) and isinstance(cause, OSError) and cause.errno in NO_SPACE


@contextmanager
def one_line_warnings(options: Options) -> Iterator[None]:
    """A context in which each warning is printed as one line."""

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        print(f"circurve: warning: {_words(message, options)}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always", CircurveWarning)
        warnings.showwarning = show
        yield


def _message(error: Exception, options: Options) -> str:
    if isinstance(error, USAGE_ERROR):
        return _one_line(getattr(error, "format_message", error.__str__)())
    words = _words(error, options)
    if isinstance(error, (*BAD_USE_ERRORS, DownloadError, NotSavedError, TrainingError, WorkerError)):
        return words
    return f"{type(error).__name__}: {words} (--debug shows where)"


def _words(message: BaseException | str, options: Options) -> str:
    """The message in one line, with arguments as they are typed here."""
    if not isinstance(message, CircurveError | CircurveWarning):
        return _one_line(message)
    return _one_line("".join(_typed(part, options) if isinstance(part, Argument) else part for part in message.parts))


def _typed(argument: Argument, options: Options) -> str:
    """`--missing -1` for the argument `missing=-1`; as in Python, or nothing, where there is no such option.

    What has a lead is advice for the command that was typed; other arguments may be those of another command.
    """
    known = options.command if argument.lead else options.program
    option, value = known.get(argument.name), argument.value
    if option is None:
        return "" if argument.lead else str(argument)
    if isinstance(value, Mapping):
        value = ",".join(f"{key}={item}" for key, item in value.items())
    return f"{argument.lead}{option}" + ("" if value is None or value is True else f" {value}")


def _one_line(text: object) -> str:
    return visible(" ".join(str(text).split()))
