"""What a call is going to allocate, checked before it does."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from circurve.errors import Argument, MemoryLimitError, OptionError
from circurve.host_memory import available_memory
from circurve.words import counted

__all__ = ["Need", "check_budget", "readable"]

UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")


@dataclass(frozen=True)
class Need:
    """Bytes that a call cannot do without, by what they are for."""

    what: str
    """What needs them, as messages open with it: `training`."""

    parts: Mapping[str, int]
    cure: str
    """What to change so that less is needed; a larger budget is proposed as well."""

    one_row: int = 0
    """Buffers for a single row, the fewest that can be computed at once. What is left includes them."""

    @property
    def total(self) -> int:
        """The sum of all parts, in bytes."""
        return sum(self.parts.values()) + self.one_row

    def left(self, memory_budget: int | None, free: Callable[[], int] = available_memory) -> int | None:
        """What a budget leaves for buffers, at least 1 byte; None without a budget.

        MemoryLimitError if the budget is too small, or, without a budget, the memory that is free.
        """
        check_budget(memory_budget)
        limit = free() if memory_budget is None else int(memory_budget)
        if self.total > limit:
            largest = sorted({**self.parts, "one row": self.one_row}.items(), key=lambda part: -part[1])
            listed = ", ".join(f"{name} {readable(size)}" for name, size in largest if size)
            head = f"{self.what} needs {readable(self.total)} ({listed}), but "
            if memory_budget is None:
                raise MemoryLimitError(f"{head}{readable(limit)} are free: {self.cure}")
            given, larger = Argument("memory_budget", limit), Argument("memory_budget", lead="a larger ")
            raise MemoryLimitError(head, given, f" is less: {self.cure}, or ", larger)
        return None if memory_budget is None else max(1, limit - self.total + self.one_row)


def check_budget(memory_budget: object) -> None:
    """Refuse anything but a positive number of bytes, or None."""
    whole = isinstance(memory_budget, int | np.integer) and not isinstance(memory_budget, bool)
    if memory_budget is not None and not (whole and memory_budget > 0):  # type: ignore[operator]
        raise OptionError(Argument("memory_budget"), f" must be a positive number of bytes, not {memory_budget!r}")


def readable(size: int) -> str:
    """`1.5 GB`, in powers of 1000."""
    power = min(len(UNITS) - 1, int(math.log(max(size, 1), 1000)))
    return counted(size, "byte") if power == 0 else f"{size / 1000**power:.3g} {UNITS[power]}"
