"""The schema of a stream: the same as in memory, from a pass over its rows, or from a sample of batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from circurve.budget import Need
from circurve.data.entry import as_table
from circurve.data.found import Found
from circurve.data.found_in_stream import find_in_stream
from circurve.data.need import COLUMN_BYTES, OBJECT_BYTES
from circurve.data.scan import Columns, scan_columns
from circurve.data.stream import Stream, sample_rows, say_stream
from circurve.data.table import Table
from circurve.errors import OptionError
from circurve.inputs import Family
from circurve.schema import Column, Schema, nearest

__all__ = ["DROP", "SAMPLED", "StreamRules", "Types", "stream_schema"]

DROP = "drop"
SAMPLED = 100_000
"""Rows of a sample that is used instead of a stream."""

Types = Mapping[str | int, str | Family]
"""For some columns, by name or number, the family: its name, a family with its options, or "drop"."""


@dataclass(frozen=True)
class StreamRules:
    """How the columns of tables in memory are judged."""

    infer: Callable[..., Schema]
    """`infer_schema`."""

    of_ranges: Callable[[Columns, Table], Schema]
    """The schema of numbers without names."""

    of_column: Callable[[Found, str | Family | None], Column]
    """The column by its facts, and by what `types` says of it."""

    unseen_share: float


def stream_schema(stream: Table | Stream, types: Types, rules: StreamRules, memory_budget: int | None = None) -> Schema:
    """Columns of a file are read one by one, a block at a time; arrays, and batches without names, need a pass for
    ranges alone.

    Batches with names are judged by evenly spaced rows; one line says so. memory_budget: a column, or the sample, with
    what is computed from it, must fit; checked before any of it is read.
    """
    assert isinstance(stream, Stream)
    column = getattr(stream.reader, "column_pieces", None)
    if column is not None:
        _check(stream, max(stream.reader.sizes), 1, memory_budget)
        return _column_by_column(stream, column, types, rules)
    first = next(stream.pieces())
    if first.columns is None and first.codings is None and not types:
        return rules.of_ranges(scan_columns(stream, memory_budget=memory_budget), first)
    _check(stream, min(len(stream), SAMPLED), stream.shape[1], memory_budget)
    say_stream(stream, f"schema from {min(len(stream), SAMPLED):,} evenly spaced rows")
    return rules.infer(*sample_rows(stream, SAMPLED), types=types, unseen_share=rules.unseen_share)


def _check(stream: Stream, rows: int, width: int, memory_budget: int | None) -> None:
    parts = {"rows" if width > 1 else "a column of a block": rows * (OBJECT_BYTES * width + COLUMN_BYTES)}
    Need("infer_schema", parts, f"pass schema= for {stream.reader.name} instead").left(memory_budget)


def _column_by_column(
    stream: Stream, column: Callable[[str], Iterator[Table]], types: Types, rules: StreamRules
) -> Schema:
    names = stream.reader.columns or ()
    unknown = next((name for name in types if name not in names), None)
    if unknown is not None:
        raise OptionError(f"types: no column {unknown!r}{nearest(str(unknown), names)}")
    ignored = tuple(name for name in names if types.get(name) == DROP)
    found: list[Column] = []
    for number, name in ((number, name) for number, name in enumerate(names) if name not in ignored):
        told = types.get(name)

        def pieces(name: str = name) -> Iterator[Table]:
            return (as_table(piece, missing=stream.missing) for piece in column(name))

        column_found = find_in_stream(pieces, names, number, every_value=told == "categorical")
        found.append(rules.of_column(column_found, told))
    return Schema(tuple(found), ignored)
