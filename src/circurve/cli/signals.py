"""Signals that end the program: Ctrl-C, the end of a session, the end by the system. All of them save the current
state.

The exit code is 128 plus the number of the signal, as shells count: 130 after Ctrl-C, 143 after SIGTERM and 129 after
SIGHUP.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType

__all__ = ["exit_code", "ignore_signals", "listen"]

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
"""Windows has no SIGHUP."""


def _known() -> list[signal.Signals]:
    return [getattr(signal, name) for name in NAMES if hasattr(signal, name)]


def listen() -> Sequence[int]:
    """From now on these signals raise KeyboardInterrupt; returns a list that is filled with those that came.

    A signal that the parent process lets us ignore, as nohup does with SIGHUP, stays ignored.
    """
    received: list[int] = []
    terminals = [number for number in (1, 2) if _is_terminal(number)]

    def handle(number: int, _: FrameType | None) -> None:
        received.append(number)
        if number == getattr(signal, "SIGHUP", None):
            _leave_terminal(terminals)
        raise KeyboardInterrupt

    for known in _known():
        if signal.getsignal(known) is not signal.SIG_IGN:
            signal.signal(known, handle)
    return received


def ignore_signals() -> None:
    """Ignore the signals at the very end, when everything is saved, so that none of them prints a traceback."""
    for known in _known():
        with suppress(ValueError, OSError):
            signal.signal(known, signal.SIG_IGN)


def exit_code(code: object, interrupted: int, received: Sequence[int]) -> object:
    """The code of the last signal for a program that was interrupted, else its own."""
    return 128 + received[-1] if code == interrupted and received else code


def _is_terminal(number: int) -> bool:
    try:
        return os.isatty(number)
    except OSError:
        return False


def _leave_terminal(terminals: Sequence[int]) -> None:
    """The terminal is gone, and to write to it would be an error: write to nowhere instead."""
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for number in terminals:
            os.dup2(nowhere, number)
        os.close(nowhere)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
