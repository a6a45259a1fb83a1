"""The program in a process of its own, forked from one that has imported it: on a terminal, or with a fault to meet."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from importlib import import_module
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from forked import CONTEXT

PATIENCE = 600

FAULTS = ("SIGKILL", "SIGTERM", "SIGHUP", "SIGINT", "full disk", "out of memory")


@contextmanager
def on_terminal(terminal: int, *words: str, ignored: Sequence[signal.Signals] = ()) -> Iterator[BaseProcess]:
    """The process of `circurve WORDS` with its streams on a terminal, in this folder; killed if it is left running.

    The signals in `ignored` do not reach it, as with nohup.
    """
    child = CONTEXT.Process(target=_on_terminal, args=(os.ttyname(terminal), Path.cwd(), words, tuple(ignored)))
    child.start()
    try:
        yield child
        child.join(PATIENCE)
    finally:
        child.kill()


def _on_terminal(terminal: str, folder: Path, words: Sequence[str], ignored: Sequence[signal.Signals]) -> None:
    _start_as_from_a_shell(folder, os.open(terminal, os.O_RDWR | os.O_NOCTTY))
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    _main(words)


def run(folder: Path, words: Sequence[str], fault: str | None = None, moment: int = 0, where: str = "write") -> int:
    """The exit code of `circurve WORDS`, which meets a fault at its n-th checkpoint; negative if a signal killed it."""
    child = CONTEXT.Process(target=_program, args=(folder, tuple(words), fault, moment, where))
    return _exit_code(child)


def _exit_code(child: BaseProcess) -> int:
    """That of a process that is started here and has to end."""
    child.start()
    child.join(PATIENCE)
    if child.exitcode is None:
        child.kill()
        raise AssertionError("the program did not end")
    return child.exitcode


def _program(folder: Path, words: Sequence[str], fault: str | None, moment: int, where: str) -> None:
    _start_as_from_a_shell(folder, os.open(folder / "stderr.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
    if fault is not None:
        _arm(fault, moment, where)
    _main(words)


def struck(folder: Path, words: Sequence[str], strikes: Sequence[tuple[str, str]]) -> int:
    """The exit code of `circurve WORDS`. Strikes: a signal and the function at whose first call it comes, in turn.

    A function is `module:name` or `module:Class.name`; each is only watched once the strike before it has come.
    """
    child = CONTEXT.Process(target=_struck, args=(folder, tuple(words), tuple(strikes)))
    return _exit_code(child)


def _struck(folder: Path, words: Sequence[str], strikes: Sequence[tuple[str, str]]) -> None:
    _start_as_from_a_shell(folder, os.open(folder / "stderr.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
    _arm_strikes(list(strikes))
    _main(words)


def _arm_strikes(strikes: list[tuple[str, str]]) -> None:
    if not strikes:
        return
    (name, place), *rest = strikes
    module, _, path = place.partition(":")
    *owners, last = path.split(".")
    owner = reduce(getattr, owners, import_module(module))
    function = getattr(owner, last)

    def striking(*arguments: Any, **options: Any) -> Any:
        setattr(owner, last, function)
        _arm_strikes(rest)
        os.kill(os.getpid(), getattr(signal, name))
        return function(*arguments, **options)

    setattr(owner, last, striking)


def _start_as_from_a_shell(folder: Path, output: int) -> None:
    """The folder, the signals, and where both streams go."""
    os.chdir(folder)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    for number in (1, 2):
        os.dup2(output, number)
    sys.stdout, sys.stderr = (os.fdopen(os.dup(number), "w", buffering=1) for number in (1, 2))


def _main(words: Sequence[str]) -> None:
    from circurve.cli.program import main

    sys.argv = ["circurve", *words]
    main()


def _arm(fault: str, moment: int, where: str) -> None:
    """Let a fault strike in the middle of writing the n-th checkpoint, or of the epoch after it."""
    from circurve.learning.checkpoints import Checkpoints
    from circurve.learning.steps import PlainSteps

    saved: list[int] = []
    save, fsync, e_step = Checkpoints.save, os.fsync, PlainSteps._e_step

    def counted(self: Any, state: Any) -> bool:
        saved.append(state.epoch)
        return save(self, state)

    def strike() -> None:
        if fault == "full disk":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if fault == "out of memory":
            raise MemoryError
        os.kill(os.getpid(), getattr(signal, fault))

    def failing(work: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any) -> Any:
            if len(saved) >= moment and (fault == "full disk" or len(saved) == moment):
                strike()
            return work(*arguments)

        return wrapped

    Checkpoints.save = counted  # type: ignore[method-assign]
    if where == "write":
        os.fsync = failing(fsync)
    else:
        PlainSteps._e_step = failing(e_step)  # type: ignore[method-assign]
