"""How much memory of the machine is available, within the limits that containers and job schedulers set.

Also a pause of Python's search for garbage, and freed memory given back.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

__all__ = ["available_memory", "give_back", "without_collector"]

MEMBERSHIP = Path("/proc/self/cgroup")
"""Which control groups this process belongs to; only Linux has it."""

GROUPS = Path("/sys/fs/cgroup")
"""Where Linux shows control groups and their limits."""


@dataclass(frozen=True)
class _Files:
    """What a version of control groups calls its numbers."""

    folder: str
    limit: str
    usage: str
    reclaimable: str
    """The line of memory.stat that counts cached file content, which the kernel gives back when memory is short."""


NO_LIMIT = 1 << 62
"""Bytes. The first version of control groups states a number of about this size where there is no limit."""

FIRST = _Files("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
SECOND = _Files("", "memory.max", "memory.current", "inactive_file")


def available_memory() -> int:
    """Bytes that could be allocated now without swapping, on Linux, macOS and Windows.

    What the system calls available counts cached files as free. The limit of each control group of this process, and of
    the groups above it, may leave less.
    """
    return max(0, min([int(psutil.virtual_memory().available), *_left_in_groups()]))


def _left_in_groups() -> Iterator[int]:
    """What the limit of each group leaves; nothing where there are no groups, or no limits."""
    try:
        lines = MEMBERSHIP.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        files = FIRST if controllers else SECOND
        names = [name for name in path.split("/") if name not in ("", "..")]
        for depth in range(len(names) + 1):  # a container may see its own group as the topmost one
            left = _left(GROUPS.joinpath(files.folder, *names[:depth]), files)
            if left is not None:
                yield left


def _left(group: Path, files: _Files) -> int | None:
    """Limit minus usage, with cached files counted as free; None if there is no such group or no limit."""
    try:
        limit = (group / files.limit).read_text(encoding="utf-8").strip()
        if limit == "max" or int(limit) >= NO_LIMIT:
            return None
        usage = int((group / files.usage).read_text(encoding="utf-8"))
        stat = dict(line.split() for line in (group / "memory.stat").read_text(encoding="utf-8").splitlines())
        return int(limit) - usage + int(stat.get(files.reclaimable, 0))
    except (OSError, ValueError):
        return None


def give_back() -> None:
    """Return freed memory to the system, where the C library can: it keeps pages that larger buffers cannot use."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


@contextmanager
def without_collector() -> Iterator[None]:
    """Make many objects that all stay, without Python looking through them for garbage again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
