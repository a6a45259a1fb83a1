"""Data frames in Parquet, Arrow and Feather files, by pyarrow or polars."""

from __future__ import annotations

import io
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from circurve.bounds import cut
from circurve.data.arrow import arrow_name
from circurve.data.frame_bounds import check_arrow, check_footer, check_parquet, check_table
from circurve.errors import DataError

__all__ = ["read_frame_file"]

MIN_THREADED = 1_000
"""Rows of a Parquet file that several threads read: with fewer rows, they take longer to begin than to read."""


def read_frame_file(path: Path, raw: bytes, trust: bool = False) -> tuple[Any, str]:
    """The data frame in a Parquet, Arrow or Feather file, and the name of the library that read it."""
    name = next((name for name in ("pyarrow", "polars") if find_spec(name) is not None), None)
    if name is None:
        raise DataError(f"{path}: Parquet and Arrow files need pyarrow or polars: pip install 'circurve[pyarrow]'")
    try:
        return (_by_pyarrow(raw, trust), arrow_name()) if name == "pyarrow" else _by_polars(raw)
    except DataError as error:
        raise DataError(f"{path}: ", *error.parts) from None
    except Exception as error:  # both libraries have many kinds of errors for damaged files
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{path}: not a Parquet or Arrow file, or damaged: {cut(reason)}") from None


def _by_pyarrow(raw: bytes, trust: bool) -> Any:
    """A table of pyarrow, once what it declares is found to fit; text in dictionaries, which repeat no characters."""
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import feather, ipc, parquet  # noqa: PLC0415

    source = pa.BufferReader(raw)
    if raw.startswith(b"PAR1"):
        check_footer(raw, trust)
        limits = {"thrift_string_size_limit": len(raw) + 1, "thrift_container_size_limit": len(raw) + 1}
        file = parquet.ParquetFile(source, **limits)
        check_parquet(file, len(raw), trust)
        schema = file.schema_arrow
        texts = [schema.names[v] for v, kind in enumerate(schema.types) if pa.types.is_string(kind)]
        if texts:
            file = parquet.ParquetFile(source, read_dictionary=texts, **limits)
        table = file.read(use_threads=file.metadata.num_rows > MIN_THREADED)
        table.validate(full=True)
        return table
    if not raw.startswith(b"FEA1"):
        check_arrow(raw, trust)
    read = feather.read_table if raw.startswith((b"ARROW1", b"FEA1")) else lambda s: ipc.open_stream(s).read_all()
    table = read(source)
    table.validate(full=True)  # offsets and codes that point outside would end the process later
    check_table(table, len(raw), trust)
    return table


def _by_polars(raw: bytes) -> tuple[Any, str]:
    import polars  # noqa: PLC0415

    read = polars.read_parquet if raw.startswith(b"PAR1") else polars.read_ipc
    return read(io.BytesIO(raw)), f"polars {polars.__version__}"
