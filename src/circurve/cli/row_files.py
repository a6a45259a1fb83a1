"""Rows that are written some at a time, to a file that is whole or not there, or to standard output."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from circurve.cli.files import arrow_table, cells, csv_text
from circurve.cli.options import STANDARD
from circurve.cli.safe_text import visible
from circurve.whole_files import replace_with

__all__ = ["write_pieces"]

Columns = Mapping[str, Any]


def write_pieces(out: str, pieces: Iterable[Columns], named: bool = True) -> None:
    """What `write_rows` writes for all columns at once, piece by piece; a single piece is in memory at a time."""
    if out.lower().endswith(".parquet"):
        replace_with(Path(out), lambda file: _write_parquet(file, pieces, Path(out).absolute().parent))
    elif out == STANDARD:
        for text in _texts(pieces, named, ","):
            sys.stdout.write(visible(text) if sys.stdout.isatty() else text)
    else:
        delimiter = "\t" if out.lower().endswith(".tsv") else ","
        replace_with(Path(out), lambda file: file.writelines(t.encode() for t in _texts(pieces, named, delimiter)))


def _texts(pieces: Iterable[Columns], named: bool, delimiter: str) -> Iterable[str]:
    for number, columns in enumerate(pieces):
        heads = list(columns) if named and number == 0 else None
        yield csv_text(heads, zip(*(cells(values) for values in columns.values()), strict=True), delimiter)


def _write_parquet(file: IO[bytes], pieces: Iterable[Columns], folder: Path) -> None:
    """A column may be whole in one piece and not in the next, so its type is known when all pieces are: until then they
    wait in a file without a name, in the folder of the result."""
    import pyarrow as pa
    from pyarrow import ipc, parquet

    with tempfile.TemporaryFile(dir=folder) as waiting:
        starts, schemas = [], []
        for columns in pieces:
            table = arrow_table(columns)
            starts.append(waiting.tell())
            schemas.append(table.schema)
            with ipc.new_stream(waiting, table.schema) as writer:
                writer.write_table(table)
        schema = pa.unify_schemas(list(dict.fromkeys(schemas)), promote_options="permissive")
        with parquet.ParquetWriter(file, schema) as writer:
            for start in starts:
                waiting.seek(start)
                writer.write_table(ipc.open_stream(waiting).read_all().cast(schema))
