"""Ctrl-C while the command is still importing its modules, which takes seconds: one line, exit code 130.

This must be the first import of the package. In a program that only imports Circurve it changes nothing.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

__all__ = ["is_command", "leave"]

INTERRUPTED = 130


def is_command(arguments: Sequence[str], interpreter: Sequence[str]) -> bool:
    """Whether this process is the command `circurve`, or `python -m circurve`.

    arguments: `sys.argv`, whose first word is "-m" while Python looks for the module; interpreter: `sys.orig_argv`.
    """
    first = arguments[0] if arguments else ""
    if first == "-m":
        return "circurve" in interpreter[interpreter.index("-m") :][1:2] if "-m" in interpreter else False
    return os.path.basename(first).removesuffix(".exe").removesuffix("-script.py") == "circurve"


def leave(_: int, __: FrameType | None) -> None:
    """End the process with one line."""
    os.write(2, b"circurve: interrupted\n")
    os._exit(INTERRUPTED)  # an exception could be caught, or shown, by any of the modules that are being imported


if is_command(sys.argv, sys.orig_argv) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, leave)
