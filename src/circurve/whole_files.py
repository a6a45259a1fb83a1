"""Files that are written whole or not at all, what becomes of those that a killed process left half-written, and locks.

A file is written as `.circurve-HOST-PID-TOKEN.tmp` and then renamed. HOST is a short hash of the machine's name, since
two machines that share a disk may use the same process number.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import shutil
import socket
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from os import PathLike
from typing import IO

from circurve.errors import FileAccessError

__all__ = [
    "LOCK_NAME",
    "MAX_AGE",
    "clean_leftovers",
    "lock_file",
    "reason_of",
    "refuse_special",
    "replace_file",
    "replace_with",
    "temporary_name",
]

MAX_AGE = 24 * 3600.0
"""Seconds after which a temporary file is a leftover, whoever wrote it: none is written for so long."""

LOCK_NAME = ".lock"
"""The file in a folder that the one process which writes there has locked. It stays; the lock ends with the process."""

TAKEN = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK)
"""What systems answer if another process has the lock. Anything else means a file system without locks."""

PATTERN = re.compile(r"\.circurve-(?:([0-9a-f]{6})-(\d+)-)?[0-9a-f]{16}\.tmp")


def temporary_name() -> str:
    """A new name for a temporary file of this process."""
    return f".circurve-{_host()}-{os.getpid()}-{secrets.token_hex(8)}.tmp"


def clean_leftovers(folder: str | os.PathLike[str]) -> int:
    """Remove what dead processes of this machine left in a folder, and what is older than MAX_AGE; returns how many.

    What cannot be removed stays.
    """
    removed = 0
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            found = PATTERN.fullmatch(entry.name)
            if found is None:
                continue
            with suppress(OSError):
                own, age = found[1] == _host(), time.time() - entry.stat(follow_symlinks=False).st_mtime
                if age > MAX_AGE or (own and not _is_alive(int(found[2]))):
                    os.unlink(entry.path)
                    removed += 1
    return removed


def _host() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:6]


def _is_alive(process: int) -> bool:
    """Whether a process of this number exists; True where that cannot be known."""
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def replace_file(path: str | PathLike[str], content: bytes) -> None:
    """Write a file next to the target, then rename it to the target; a link is followed, and its target replaced.

    Leftovers of processes that were killed while they wrote to the same folder are removed first.
    """
    replace_with(path, lambda file: file.write(content))


def replace_with(path: str | PathLike[str], write: Callable[[IO[bytes]], object]) -> None:
    """What `replace_file` does, with a function that writes to the open file in place of the content."""
    try:
        target = os.path.realpath(path)
        refuse_special(target)
        clean_leftovers(os.path.dirname(target))
        temporary = os.path.join(os.path.dirname(target), temporary_name())
        try:
            with open(temporary, "xb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            with suppress(OSError):  # no file yet, or a file system without modes
                shutil.copymode(target, temporary)
            os.replace(temporary, target)
        except BaseException:  # also an interrupt from the keyboard
            with suppress(OSError):
                os.unlink(temporary)
            raise
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        raise FileAccessError(f"cannot write {os.fspath(path)}: {reason_of(error)}") from error


def refuse_special(path: str) -> None:
    """Raise OSError for anything that exists but is not a plain file: renaming over /dev/null would destroy it."""
    if os.path.isdir(path):
        raise IsADirectoryError("it is a folder")
    if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError("it is not a regular file")


def reason_of(error: OSError | ValueError) -> str:
    """What the system says, without the number of the error and the path."""
    return getattr(error, "strerror", None) or str(error)


def lock_file(number: int) -> bool:
    """Lock an open file until it is closed or the process ends, however it ends; False if another process has it."""
    try:
        if sys.platform == "win32":
            import msvcrt  # noqa: PLC0415 - only there

            msvcrt.locking(number, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl  # noqa: PLC0415 - not on Windows

            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in TAKEN
    return True
