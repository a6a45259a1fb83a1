"""Signals that end the program: Ctrl-C, the end of a session, the end by the system. All of them save the current
state.

The exit code is 128 plus the number of the signal, as shells count: 130 after Ctrl-C, 143 after SIGTERM and 129 after
SIGHUP.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import TypeAlias

from circurve import early

__all__ = [
    "exit_code",
    "hold_signals",
    "ignore_signals",
    "leave_at_once",
    "listen",
    "release_signals",
    "without_signals",
]

Action: TypeAlias = Callable[[int, FrameType | None], object] | signal.Handlers

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
"""Windows has no SIGHUP."""


def _known() -> list[signal.Signals]:
    return [getattr(signal, name) for name in NAMES if hasattr(signal, name)]


def listen() -> Sequence[int]:
    """From now on these signals raise KeyboardInterrupt; returns a list to which received signals are added.

    A signal that the parent process lets us ignore, as nohup does with SIGHUP, stays ignored.
    """
    handler = Handler([number for number in (1, 2) if _is_terminal(number)])
    for known in _known():
        if signal.getsignal(known) is not signal.SIG_IGN:
            signal.signal(known, handler)
    return handler.received


@dataclass
class Held:
    """Whether a signal came that waits."""

    came: bool = False


@dataclass(eq=False)
class Handler:
    """Notes a signal and raises KeyboardInterrupt, unless signals are held."""

    terminals: Sequence[int]
    received: list[int] = field(default_factory=list)
    held: Held | None = None

    def __call__(self, number: int, _: FrameType | None) -> None:
        self.received.append(number)
        if number == getattr(signal, "SIGHUP", None):
            _leave_terminal(self.terminals)
        if self.held is None:
            raise KeyboardInterrupt
        self.held.came = True


@contextmanager
def hold_signals() -> Iterator[Held]:
    """A context between a training and the end of writing its files: no signal ends it early.

    It gives a record that says whether one came. Where `listen` was not called, it has no effect.
    """
    held, handler = Held(), _handler()
    if handler is not None:
        handler.held = held
    try:
        yield held
    finally:
        if handler is not None:
            handler.held = None


@contextmanager
def release_signals() -> Iterator[None]:
    """A context inside `hold_signals`, for scores that are worth less than the model: a signal raises again.

    One that came before raises at once.
    """
    handler = _handler()
    held = None if handler is None else handler.held
    if handler is None or held is None:
        yield
        return
    try:
        handler.held = None
        if held.came:
            raise KeyboardInterrupt
        yield
    finally:
        handler.held = held


def _handler() -> Handler | None:
    """That of `listen`; None where it was not called."""
    current = (signal.getsignal(known) for known in _known())
    return next((handler for handler in current if isinstance(handler, Handler)), None)


@contextmanager
def leave_at_once() -> Iterator[None]:
    """A context for imports, which take seconds: signals end the process at once, Ctrl-C with one line.

    An exception could be caught, or shown, by any of the modules that are being imported. Nothing changes where
    `listen` was not called.
    """
    with _replaced(lambda known: early.leave if known == signal.SIGINT else signal.SIG_DFL):
        yield


@contextmanager
def without_signals() -> Iterator[None]:
    """A context for the last message: no signal breaks it off. Nothing changes where `listen` was not called."""
    with _replaced(lambda _: signal.SIG_IGN):
        yield


@contextmanager
def _replaced(other: Callable[[signal.Signals], Action]) -> Iterator[None]:
    """A context in which signals that `listen` handles are handled by `other(signal)`."""
    handlers = {known: signal.getsignal(known) for known in _known()}
    ours = {known: handler for known, handler in handlers.items() if isinstance(handler, Handler)}
    for known in ours:
        signal.signal(known, other(known))
    try:
        yield
    finally:
        for known, handler in ours.items():
            signal.signal(known, handler)


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
    """The terminal is gone, and writing to it would be an error: discard the output instead."""
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for number in terminals:
            os.dup2(nowhere, number)
        os.close(nowhere)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
