"""All arrays of a safetensors file in one read: with thousands of them, the library takes longer, one by one.

A file begins with the length of its header (8 bytes, little-endian), then comes the header, JSON:

    {"weights.2": {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]}, ...}

Offsets count from the end of the header. `safetensors.safe_open` checks before that pieces lie side by side, fill the
file, and are as long as their shapes say; what is checked here holds off a file that changed since.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from circurve.bounds import parse_json
from circurve.errors import FileFormatError
from circurve.words import counted

__all__ = ["read_arrays"]

Array = NDArray[Any]

DTYPES: dict[str, tuple[np.dtype[Any], int]] = {
    "F32": (np.dtype("<f4"), 4),
    "F64": (np.dtype("<f8"), 8),
    "BOOL": (np.dtype("?"), 1),
    "I64": (np.dtype("<i8"), 8),
}
"""Names of number types in a file, and the bytes of one number."""


def read_arrays(path: str | PathLike[str], wanted: Mapping[str, Sequence[str]], trust: bool) -> dict[str, Array]:
    """The arrays of these names, each with one of the dtypes allowed for it, as views of one buffer.

    None may be missing, and no other may be in the file.
    """
    try:
        header, content = _read(path, trust)
        header.pop("__metadata__", None)
        _check_names(wanted, header)
        return _arrays(wanted, header, content)
    except FileFormatError:
        raise
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise FileFormatError(f"the header does not fit the file ({error})") from error


def _read(path: str | PathLike[str], trust: bool) -> tuple[dict[str, Any], bytearray]:
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        header: dict[str, Any] = parse_json(file.read(min(length, size)), size, trust)
        content = bytearray(max(0, size - 8 - length))
        file.readinto(content)
    return header, content


def _check_names(wanted: Mapping[str, Sequence[str]], header: Mapping[str, Any]) -> None:
    missing = wanted.keys() - header.keys()
    if missing:
        first = next(name for name in wanted if name in missing)
        raise FileFormatError(f"the tensor {first!r} is missing")
    if len(header) > len(wanted):
        raise FileFormatError(f"the tensor {min(header.keys() - wanted.keys())!r} belongs to no node")


def _arrays(wanted: Mapping[str, Sequence[str]], header: Mapping[str, Any], content: bytearray) -> dict[str, Array]:
    """All arrays; they can be written to, as torch demands of what it shares."""
    arrays: dict[str, Array] = {}
    view, size, native = np.ndarray, len(content), sys.byteorder == "little"
    for name, allowed in wanted.items():
        entry = header[name]
        dtype, (begin, end), shape = entry["dtype"], entry["data_offsets"], entry["shape"]
        if dtype not in allowed:
            raise FileFormatError(f"the tensor {name!r} has dtype {dtype}, expected {' or '.join(allowed)}")
        kind, width = DTYPES[dtype]
        if end > size or math.prod(shape) * width != end - begin:
            raise ValueError(f"the tensor {name!r} has {counted(end - begin, 'byte')} for shape {shape}")
        if native and begin % width == 0 and begin < end:
            arrays[name] = view(shape, kind, content, begin)
        else:
            flat = np.frombuffer(content[begin:end], kind)
            arrays[name] = flat.astype(kind.newbyteorder("=")).reshape(shape)
    return arrays
