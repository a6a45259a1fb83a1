"""Files opened by pyarrow, whose many kinds of errors for damaged files become one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from circurve.bounds import cut
from circurve.errors import DataError

__all__ = ["opened", "reason_of"]


def opened(path: Path, open_file: Callable[[Path], Any]) -> Any:
    """open_file(path); DataError with the path for whatever is wrong."""
    try:
        return open_file(path)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except Exception as error:  # pyarrow has many kinds of errors for damaged files
        raise DataError(f"{path}: cannot be read as a stream: {reason_of(error)}") from None


def reason_of(error: Exception) -> str:
    """The first line of a message, cut where it is long."""
    return cut(str(error).splitlines()[0]) if str(error) else type(error).__name__
