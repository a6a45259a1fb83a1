"""The bytes of a data file, unpacked where it is a .gz file."""

from __future__ import annotations

import zlib
from pathlib import Path

from circurve.bounds import inflate
from circurve.errors import DataError

__all__ = ["read_bytes", "unpacked", "unreadable"]


def read_bytes(path: Path, trust: bool = False) -> bytes:
    """The whole file, unpacked if it is a .gz file; DataError names it if it cannot be read or is empty."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None
    raw = unpacked(raw, path, trust) if path.suffix.lower() == ".gz" and raw else raw
    if not raw:
        raise DataError(f"{path}: the file is empty")
    return raw


def unpacked(raw: bytes, path: Path, trust: bool) -> bytes:
    """The content of a gzip file, as far as it may be for a file of that size."""
    try:
        return inflate(raw, trust, DataError)
    except DataError as error:
        raise DataError(f"{path}: ", *error.parts) from None
    except (EOFError, zlib.error) as error:
        raise DataError(f"{path}: not a .gz file, or damaged: {error}") from None


def unreadable(path: Path, error: OSError) -> DataError:
    """What to tell the user about a file that the system will not open."""
    if isinstance(error, FileNotFoundError):
        return DataError(f"{path}: no such file")
    if isinstance(error, IsADirectoryError):
        return DataError(f"{path}: is a directory, not a file")
    return DataError(f"{path}: cannot be read ({error.strerror or error})")
