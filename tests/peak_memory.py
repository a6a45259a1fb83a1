"""The memory that a piece of code takes at its peak, in this process. Linux only.

`ru_maxrss` cannot tell: a process inherits the peak of the one that started it, and a peak from the past hides any
smaller one after it. The kernel's own peak can be forgotten and measured again.
"""

from __future__ import annotations

import ctypes
import gc
import os
from pathlib import Path

FOLDER = Path(__file__).parent


def environment() -> dict[str, str]:
    """Variables of a process whose memory is measured.

    What is freed goes back to the system at once. By default glibc keeps freed arrays for later, and how many of them
    depends on their order: the peak of one and the same call then differs by several MB from run to run.
    """
    search = os.pathsep.join([str(FOLDER), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": search, "MALLOC_MMAP_THRESHOLD_": str(128 << 10)}


def resident(field: str) -> int:
    """Bytes of "VmRSS", what is in memory now, or "VmHWM", the most since `start`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field))


def start(trim: bool = True) -> int:
    """Forget the peak so far. Returns what is in memory now; trim: after all that was freed has been given back."""
    if trim:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # what was freed would hide what is needed next
    Path("/proc/self/clear_refs").write_text("5")
    return resident("VmRSS")


def growth(before: int) -> int:
    """The most memory since `start` beyond what it returned."""
    return max(0, resident("VmHWM") - before)
