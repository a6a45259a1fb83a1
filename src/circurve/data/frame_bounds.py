"""What a Parquet or Arrow file becomes in memory, by what its parts declare and before any of them is unpacked."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from mmap import mmap
from typing import Any

from circurve.bounds import check_expansion, check_seconds
from circurve.errors import DataError
from circurve.words import counted

__all__ = [
    "Declared",
    "arrow_parts",
    "block_bytes",
    "can_be_cut",
    "check_arrow",
    "check_blocks",
    "check_footer",
    "check_parquet",
    "check_table",
    "cost_of",
    "parquet_parts",
    "rows_bytes",
    "schema_bytes",
]

BYTES_PER_CELL = 20
"""A number as it is read, as a float64 in the table, and whether it is there."""

BYTES_PER_OBJECT = 90
"""A value of any other kind than numbers and text as an object of Python, with its place in a list."""

SECONDS_PER_TEXT_COLUMN = 2.4e-4
"""How long a column of text takes to become categories, however few rows it has."""

SECONDS_PER_COLUMN, SECONDS_PER_CHUNK = 3e-5, 9e-6
"""How long a column takes to become an array, and each of its pieces in a record batch: more than measured."""

PARQUET_SECONDS_PER_COLUMN, PARQUET_SECONDS_PER_CHUNK = 6e-5, 1.2e-5
"""The same for Parquet, where each column of each row group is described by itself."""

PARQUET_BYTES_PER_COLUMN = 5_000
"""What pyarrow's reader of Parquet files holds for each column, in addition."""

FOOTER_COPIES = 24
"""What the footer of a Parquet file takes once it is read, in multiples of its size: 21 were measured."""

TEXTS = ("string", "large_string", "dictionary")
"""How the names of pyarrow's types of text begin; a dictionary holds one, too."""

BYTES_PER_COLUMN = 4_000
"""A column's name, its type, its arrays and its codes, however few rows it has."""

MAX_CUT_VALUES = 1 << 27
"""Values of files whose row groups take too much and are read in pieces: this many take seconds."""

NOT_COMPRESSED = -1
MAGIC = b"ARROW1"
BLOCK_BYTES = 24
"""A place in the footer of an Arrow file: an offset, and two lengths."""


@dataclass(frozen=True)
class Declared:
    """What a part of a file (a row group, a record batch) says about itself."""

    rows: int
    unpacked: int
    """Bytes of its pages or buffers, once they are unpacked."""


def check_blocks(
    blocks: Sequence[Sequence[Declared]], schema: Any, size: int, trust: bool, in_pieces: bool = False
) -> None:
    """Refuse files that are read block by block, where a block takes too much, or a column of all rows does.

    schema: of the columns that are read. size: bytes of all files. in_pieces: whether the rows of a block can be read
    in pieces; its pages are unpacked anyway.
    """
    if any(min(part.rows, part.unpacked) < 0 for block in blocks for part in block):
        raise DataError("damaged: it declares a negative size")
    rows = sum(part.rows for block in blocks for part in block)
    if in_pieces:
        largest = max(2 * sum(part.unpacked for part in block) for block in blocks) + cost_of(schema, 1)
    else:
        largest = max(block_bytes(block, schema) for block in blocks)
    check_expansion(max(largest, BYTES_PER_CELL * rows), size, trust, DataError)


def can_be_cut(blocks: Sequence[Sequence[Declared]], schema: Any) -> bool:
    """Whether the rows of row groups that take too much may be read in pieces: not if that takes long, with more
    values than MAX_CUT_VALUES."""
    return len(schema) * sum(part.rows for block in blocks for part in block) <= MAX_CUT_VALUES


def rows_bytes(blocks: Sequence[Sequence[Declared]], schema: Any) -> int:
    """What all rows take as one table, without what columns take however few rows there are."""
    parts = [part for block in blocks for part in block]
    cells = cost_of(schema, sum(part.rows for part in parts)) - schema_bytes(schema)
    return 2 * sum(part.unpacked for part in parts) + cells


def block_bytes(block: Sequence[Declared], schema: Any) -> int:
    """What a block takes while it is read: unpacked, and as a table."""
    return 2 * sum(part.unpacked for part in block) + cost_of(schema, sum(part.rows for part in block))


def schema_bytes(schema: Any) -> int:
    """What the columns of a table take, however few rows it has."""
    return len(schema) * BYTES_PER_COLUMN


def parquet_parts(file: Any) -> list[Declared]:
    """The row groups of pyarrow's `ParquetFile`, by its footer."""
    groups = (file.metadata.row_group(number) for number in range(file.metadata.num_row_groups))
    return [Declared(group.num_rows, group.total_byte_size) for group in groups]


def arrow_parts(raw: mmap) -> list[Declared]:
    """The record batches of a mapped Arrow file, by their metadata; what all dictionaries take counts with each.

    Raises ValueError and errors of pyarrow for a damaged file. Buffers are not read.
    """
    dictionaries, batches = 0, list[tuple[int, int]]()
    for message in _messages(raw):
        reader = _Flatbuffer(bytes(message.metadata))
        header = reader.table(reader.root, 2)
        held = max(message.body.size, _unpacked(bytes(message.metadata), message.body))
        if message.type == "dictionary":
            dictionaries += held
        elif message.type == "record batch" and header is not None:
            batches.append((reader.scalar(header, 0, "<q") or 0, held))
    return [Declared(rows, held + dictionaries) for rows, held in batches]


def check_footer(raw: bytes, trust: bool) -> None:
    """Refuse a Parquet file whose footer, which is read as a whole, takes too much."""
    footer = int.from_bytes(raw[-8:-4], "little")
    check_expansion(FOOTER_COPIES * min(footer, len(raw)), len(raw), trust, DataError)


def check_parquet(file: Any, size: int, trust: bool) -> None:
    """Refuse a Parquet file (pyarrow's `ParquetFile`) whose pages or rows take too much.

    Pages of repeated values take a few bytes for any number of rows, so rows count in addition to bytes.
    """
    metadata = file.metadata
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    unpacked = sum(max(0, group.total_byte_size) for group in groups)  # to ask a column can end the process
    rows = max(metadata.num_rows, sum(group.num_rows for group in groups))
    schema = file.schema_arrow
    columns = metadata.num_columns  # those inside of structures, too
    needed = 2 * unpacked + cost_of(schema, rows) + PARQUET_BYTES_PER_COLUMN * columns
    check_expansion(needed, size, trust, DataError)
    _check_texts(schema, size, trust)
    seconds = columns * (PARQUET_SECONDS_PER_COLUMN + PARQUET_SECONDS_PER_CHUNK * len(groups))
    check_seconds(seconds, _columns_in_parts(columns, len(groups), "row groups"), size, trust, DataError)


def check_arrow(raw: bytes, trust: bool) -> None:
    """Refuse an Arrow file or stream whose compressed buffers unpack to too much.

    Each compressed buffer begins with its own length when unpacked (8 bytes), which the library allocates at once.
    """
    unpacked = 0
    for message in _messages(raw):
        if message.type in ("record batch", "dictionary") and message.body is not None:
            unpacked += _unpacked(bytes(message.metadata), message.body)
            check_expansion(2 * unpacked, len(raw), trust, DataError)


def _messages(raw: bytes | mmap) -> Iterator[Any]:
    """The messages of a stream; of a file those that its footer names, wherever they are in it."""
    import pyarrow as pa  # noqa: PLC0415 - optional, and slow to import
    from pyarrow import ipc  # noqa: PLC0415

    whole = pa.py_buffer(raw)
    if raw[: len(MAGIC)] != MAGIC:
        yield from ipc.MessageReader.open_stream(pa.BufferReader(whole))
        return
    end = len(raw) - len(MAGIC) - 4
    length = struct.unpack_from("<i", raw, end)[0] if end >= 0 else -1
    if not 0 < length <= end:
        raise ValueError("it has no footer")
    footer = _Flatbuffer(raw[end - length : end])
    for number in (2, 3):  # dictionaries, record batches
        for offset in footer.blocks(footer.root, number):
            if not 0 <= offset < len(raw):
                raise ValueError("its footer names a place outside of the file")
            yield ipc.read_message(pa.BufferReader(whole.slice(offset)))


def check_table(table: Any, size: int, trust: bool) -> None:
    """Refuse a table of pyarrow that takes too much once its columns are numbers and Python's texts."""
    check_expansion(table.get_total_buffer_size() + cost_of(table.schema, table.num_rows), size, trust, DataError)
    _check_texts(table.schema, size, trust)
    columns = table.num_columns
    pieces = table.column(0).num_chunks if columns else 0
    seconds = columns * (SECONDS_PER_COLUMN + SECONDS_PER_CHUNK * pieces)
    check_seconds(seconds, _columns_in_parts(columns, pieces, "record batches"), size, trust, DataError)


def _columns_in_parts(columns: int, parts: int, what: str) -> str:
    several = "column" if columns == 1 else counted(columns, "column")
    return several if parts <= 1 else f"{several} in {parts:,} {what}"


def _check_texts(schema: Any, size: int, trust: bool) -> None:
    texts = sum(str(kind).startswith(TEXTS) for kind in schema.types)
    check_seconds(SECONDS_PER_TEXT_COLUMN * texts, f"{counted(texts, 'column')} of text", size, trust, DataError)


def cost_of(schema: Any, rows: int) -> int:
    """The memory of a table with this many rows."""
    import pyarrow as pa  # noqa: PLC0415

    kinds = (
        pa.types.is_primitive,
        pa.types.is_null,
        pa.types.is_dictionary,
        pa.types.is_string,
        pa.types.is_large_string,
    )
    others = [kind for kind in schema.types if not any(is_one(kind) for is_one in kinds)]
    return rows * (len(schema) * BYTES_PER_CELL + len(others) * BYTES_PER_OBJECT) + schema_bytes(schema)


def _unpacked(metadata: bytes, body: Any) -> int:
    """The sum of the lengths that the compressed buffers of a record batch declare; 0 if it is not compressed.

    The metadata are a flatbuffer: a Message, its header a RecordBatch (or a DictionaryBatch that holds one).
    """
    reader = _Flatbuffer(metadata)
    header = reader.table(reader.root, 2)
    if header is not None and reader.scalar(reader.root, 1, "<B") == 2:  # a dictionary batch
        header = reader.table(header, 1)
    if header is None or reader.field(header, 3) is None:
        return 0
    total = 0
    for offset, length in reader.pairs(header, 2):
        if length >= 8 and 0 <= offset <= body.size - 8:
            declared = struct.unpack("<q", body.slice(offset, 8).to_pybytes())[0]
            total += length if declared == NOT_COMPRESSED else max(0, declared)
    return total


class _Flatbuffer:
    """Just enough of the format to find the buffers of a record batch: tables with numbered fields."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.root = self._at(0, "<I")

    def _at(self, place: int, kind: str) -> int:
        return int(struct.unpack_from(kind, self.content, place)[0])

    def field(self, table: int, number: int) -> int | None:
        """The place of a field of a table, None if it is not there."""
        names = table - self._at(table, "<i")
        slot = 4 + 2 * number
        offset = self._at(names + slot, "<H") if slot < self._at(names, "<H") else 0
        return table + offset if offset else None

    def scalar(self, table: int, number: int, kind: str) -> int | None:
        place = self.field(table, number)
        return None if place is None else self._at(place, kind)

    def table(self, table: int, number: int) -> int | None:
        """The place of a table within a table."""
        place = self.field(table, number)
        return None if place is None else place + self._at(place, "<I")

    def pairs(self, table: int, number: int) -> list[tuple[int, int]]:
        """A vector of pairs of 64-bit numbers."""
        place = self.table(table, number)
        if place is None:
            return []
        count = self._at(place, "<I")
        values = struct.unpack_from(f"<{2 * count}q", self.content, place + 4)
        return list(zip(values[::2], values[1::2], strict=True))

    def blocks(self, table: int, number: int) -> list[int]:
        """The offsets of a vector of places in a file."""
        place = self.table(table, number)
        return (
            [] if place is None else [self._at(place + 4 + BLOCK_BYTES * k, "<q") for k in range(self._at(place, "<I"))]
        )
