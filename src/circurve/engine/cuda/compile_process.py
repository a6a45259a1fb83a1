"""A process that compiles kernels, as seen by the one that needs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["CompileProcess", "Order", "Toolchain"]

Order = tuple[str, str, str]
"""A kernel to compile: its module, its name, and how it is specialised, as Triton's hooks describe it."""


@dataclass(frozen=True)
class Toolchain:
    """What a process needs to know of this one's Triton to compile exactly as it would."""

    target: dict[str, Any]
    """The GPU, as the fields of Triton's record."""

    launcher: type
    """The class of launchers on this GPU."""

    key: str
    """The hash of Triton itself, a part of all keys in its cache."""


WORKER = Path(__file__).with_name("compile_worker.py")

MAX_SECONDS = 120
"""Kernels that take longer are compiled by the process that needs them."""


class CompileProcess:
    """Starts at once and imports Triton, then compiles each order as it comes. Use it in a `with` statement."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @classmethod
    def start(cls, cache: str) -> CompileProcess | None:
        """A process with this folder as Triton's cache; None where there is no fork, or no Python to run.

        (A program with Python inside has another executable, or none.)
        """
        if not hasattr(os, "fork") or "python" not in Path(sys.executable or "").name.lower():
            return None
        command = [sys.executable, str(WORKER), json.dumps(sys.path)]
        environment = {**os.environ, "TRITON_CACHE_DIR": cache}
        silent = subprocess.DEVNULL  # the process that needs a kernel compiles it again, and shows what is wrong
        pipe = subprocess.PIPE
        try:
            return cls(subprocess.Popen(command, stdin=pipe, stdout=silent, stderr=silent, env=environment, text=True))
        except OSError:
            return None

    def __enter__(self) -> CompileProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._close()

    def use(self, triton: Toolchain) -> None:
        """Compile as this Triton would: to be said before the first order."""
        self._write(
            {
                "target": triton.target,
                "launcher": (triton.launcher.__module__, triton.launcher.__qualname__),
                "triton_key": triton.key,
                # One round is enough then. (16 and 32 processes on 16 cores were equally fast.)
                "processes": 2 * (os.cpu_count() or 1),
            }
        )

    def order(self, kernel: Order) -> None:
        """Compile a kernel into the cache, next to those that were ordered before."""
        self._write(kernel)

    def finish(self) -> None:
        """Wait for all kernels. Those that it could not compile are compiled by the process that needs them."""
        self._close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(MAX_SECONDS)

    def _write(self, message: object) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended: the kernel is compiled by the process that needs it
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()

    def _close(self) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
