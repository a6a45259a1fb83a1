"""Sources of rows, tables and streams, in the order and coding of a schema; a stream is read once for that."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from circurve.data.align import MissingColumns, align, are_numbers, log_unseen, prepare
from circurve.data.convert import about
from circurve.data.open_stream import as_source, is_streamed
from circurve.data.slots import Binding
from circurve.data.source import RowSource
from circurve.data.stream import Stream
from circurve.data.table import Places, Table
from circurve.data.unseen import Unseen
from circurve.errors import CircurveWarning, DataError, OptionError
from circurve.graph import Circuit
from circurve.schema import Schema

__all__ = ["align_source", "log_unseen_rows", "prepare_source", "without_unseen"]

Encode = Callable[[Table], Table]
"""A table as it was read -> a checked table in the schema."""


def align_source(
    data: Any,
    schema: Schema,
    *,
    missing: int | None = None,
    unseen: Unseen = "impossible",
    missing_columns: MissingColumns = "error",
) -> Table | Stream:
    """What `align` does, for tables in memory and for streams."""
    source = as_source(data, missing)
    if not isinstance(source, Stream):
        return align(source, schema, unseen=unseen, missing_columns=missing_columns)
    if source.schema is not None and source.schema == schema:
        return source
    if source.chosen is not None and source.reader.access != "rows":  # blocks are checked whole
        every = replace(source, chosen=None, binding=None)
        whole = align_source(every, schema, unseen=unseen, missing_columns=missing_columns)
        assert isinstance(whole, Stream)
        return replace(whole, chosen=source.chosen)

    def encode(part: Table) -> Table:
        return align(part, schema, unseen=unseen, missing_columns=missing_columns)

    return _bound(source, schema, encode)


def prepare_source(  # noqa: PLR0913 - what comes with rows, and what to do with them
    data: Any,
    circuit: Circuit,
    what: str,
    *,
    schema: Schema | None = None,
    weights: Any = None,
    labels: Any = None,
    missing: int | None = None,
    unseen: Unseen = "error",
) -> Table | Stream:
    """What `prepare` does, for tables in memory and for streams."""
    if not is_streamed(data):
        row_options = {"weights": weights, "labels": labels, "missing": missing}
        return prepare(data, circuit, what, schema=schema, unseen=unseen, **row_options)
    if weights is not None or labels is not None or circuit.outputs > 1:
        raise OptionError(f"{what} data: a stream cannot have weights or labels; pass a table in memory to use them")
    with about(f"{what} data"):
        source = as_source(data, missing)
        names = None if are_numbers(source.columns, circuit) else source.columns
        wanted = schema or circuit.schema or Schema.of(circuit.families, names)
        stream = align_source(source, wanted, unseen=unseen)
        if stream.schema is None or stream.schema.families != circuit.families:
            raise DataError("the columns have other families than the variables of the circuit")
        if not stream.known_values:
            raise DataError("every value is missing")
    return stream


def log_unseen_rows(source: RowSource) -> Tensor | None:  # (N,) float64
    """What `log_unseen` gives, for tables in memory and for streams."""
    if isinstance(source, Table):
        return log_unseen(source)
    assert isinstance(source, Stream)
    binding = source.binding
    if binding is None or not (binding.impossible or any(column.unseen_share for column in binding.schema.columns)):
        return None
    parts = []
    for piece in source.pieces():
        found = log_unseen(piece)
        parts.append(torch.zeros(len(piece), dtype=torch.float64, device=source.device) if found is None else found)
    return torch.cat(parts)


def without_unseen(stream: Stream) -> Stream:
    """The same rows; values that were not seen in training count as missing, as `unseen="missing"` would have it."""
    binding = stream.binding
    if binding is None or not binding.impossible:
        return stream
    encode = binding.encode
    return stream.bound(replace(binding, impossible=False, encode=lambda part: replace(encode(part), impossible=None)))


def _bound(stream: Stream, schema: Schema, encode: Encode) -> Stream:
    """Read all rows once: what does not fit is an error or a warning now, and silent later."""
    raw = replace(stream, binding=None)
    rows, missing, impossible, known, dtype = 0, False, False, 0, torch.int8 if schema.discrete else torch.float64
    for piece in raw.pieces():
        places = Places("row", range(rows + 1, rows + len(piece) + 1))
        with warnings.catch_warnings():
            if impossible or missing:
                warnings.simplefilter("ignore", CircurveWarning)  # one warning is enough
            table = encode(replace(piece, places=places))
        rows += len(piece)
        missing |= table.observed is not None
        impossible |= table.impossible is not None
        known += table.known_values
        dtype = torch.promote_types(dtype, table.values.dtype)
    binding = Binding(schema, _silent(encode), missing, impossible, known, dtype)
    return stream.bound(binding)


def _silent(encode: Encode) -> Encode:
    def quiet(table: Table) -> Table:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CircurveWarning)
            return encode(table)

    return quiet
