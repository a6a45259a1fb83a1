"""Temporary files beside their targets: how they are called, and what becomes of those that a killed process left.

A file is written as `.circurve-HOST-PID-TOKEN.tmp` and then renamed. HOST is a short hash of the machine's name, since
two machines that share a disk may use the same process number.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import socket
import time
from contextlib import suppress

__all__ = ["MAX_AGE", "clean_leftovers", "temporary_name"]

MAX_AGE = 24 * 3600.0
"""Seconds after which a temporary file is a leftover, whoever wrote it: none is written for so long."""

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
