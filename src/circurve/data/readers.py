"""What a stream is read from: mapped arrays, Parquet and Arrow files, iterables of batches."""

from __future__ import annotations

import mmap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from circurve.bounds import TRUST_HINT, allowed_bytes
from circurve.budget import Need
from circurve.data.convert import Array, Names, about, native, refuse_repeated
from circurve.data.entry import as_table
from circurve.data.frame_bounds import (
    Declared,
    arrow_parts,
    block_bytes,
    can_be_cut,
    check_blocks,
    cost_of,
    parquet_parts,
    rows_bytes,
    schema_bytes,
)
from circurve.data.frame_types import common_schema
from circurve.data.opened import opened, reason_of
from circurve.data.row_groups import Group, GroupReading, merged, pieces_of
from circurve.data.table import Table, table_of
from circurve.errors import DataError, needs

__all__ = ["ArrayReader", "ArrowReader", "BatchReader", "FrameReader", "ParquetReader"]

BLOCK_ROWS = 1 << 16
"""Rows of a block of an array, and of small row groups that are read together."""

MAPPED = 5 << 28
"""Mapped bytes in memory, 1.25 GiB, beyond which those of a mapped array are given back to the system."""

PIECES_PER_BUDGET = 8
"""A block takes at most this part of a memory budget: some are in memory at a time, and one more is being read."""

READS_PER_CHECK = 64
"""The mapped bytes are counted each time after this many reads."""


class ArrayReader:
    """Rows of an array of numbers, which may be in a file (`numpy.memmap`)."""

    def __init__(self, array: Array, access: str = "rows", block_rows: int = BLOCK_ROWS) -> None:
        if array.ndim != 2 or not array.shape[0] or not array.shape[1]:
            raise DataError(f"data has shape {array.shape}, expected rows x columns")
        if array.dtype.kind not in "biuf":
            raise DataError(f"an array of {array.dtype} cannot be streamed; it must hold numbers")
        self.array, self.access, self.block_rows = array, access, block_rows
        self.columns: Names = None
        self.width = int(array.shape[1])
        self.name = str(getattr(array, "filename", None) or f"array of {array.dtype}")
        self._reads = 0

    @property
    def sizes(self) -> Sequence[int]:
        """Blocks of equal size but for the last one."""
        rows = len(self.array)
        whole, rest = divmod(rows, self.block_rows)
        return [self.block_rows] * whole + [rest] * (rest > 0)

    def read(self, block: int) -> Table:
        """A block, copied."""
        return self._table(np.array(self.array[block * self.block_rows : (block + 1) * self.block_rows]))

    def gather(self, rows: NDArray[np.int64] | slice) -> Table:
        """Rows by their numbers, copied."""
        return self._table(np.array(self.array[rows]))

    def _table(self, values: Array) -> Table:
        self._reads += 1
        if self._reads % READS_PER_CHECK == 0:
            _give_back(self.array)
        return table_of(native(values))


def _give_back(array: Array) -> None:
    """Let the system take mapped pages back, once there are many: they stay in its cache and count as free.

    Only where the mapping is shared with the file: a private one may hold changes.
    """
    mapped = getattr(array, "_mmap", None)
    if getattr(array, "mode", None) not in ("r", "r+") or not hasattr(mmap, "MADV_DONTNEED") or mapped is None:
        return
    if _resident_files() > MAPPED:
        mapped.madvise(mmap.MADV_DONTNEED)


def _resident_files() -> int:
    """Bytes of mapped files that are in memory; 0 where the system does not say."""
    try:
        with open("/proc/self/status") as file:
            return next((int(line.split()[1]) << 10 for line in file if line.startswith("RssFile")), 0)
    except OSError:
        return 0


class FrameReader(ABC):
    """Blocks of Parquet or Arrow files, one file after the other; small ones are read together."""

    access = "blocks"
    has_pieces = False
    """Whether some rows of a block can be read without the others."""

    smaller = "smaller record batches: pyarrow.feather.write_feather(table, path, chunksize=65536)"
    """What to write a file with whose blocks take too much memory."""

    def __init__(
        self,
        paths: Sequence[Path],
        columns: Sequence[str] | None,
        name: str,
        trust: bool = False,
        memory_budget: int | None = None,
    ) -> None:
        with needs("pyarrow", "streaming Parquet and Arrow files"):
            import_module("pyarrow")
        self.name, self.paths = name, tuple(paths)
        self.files = [self._open(path) for path in paths]
        names = [opened(path, partial(self._names, file)) for path, file in zip(paths, self.files, strict=True)]
        found = names[0]
        with about(paths[0]):
            refuse_repeated(found)
        for path, listed in zip(paths, names, strict=True):
            if listed != found:
                raise DataError(f"{path}: its columns differ from those of {paths[0]}")
        unknown = next((column for column in columns or () if column not in found), None)
        if unknown is not None:
            raise DataError(f"{name}: no column {unknown!r}; there are {', '.join(map(repr, found[:8]))}")
        self.columns: Names = tuple(found if columns is None else columns)
        self.width = len(self.columns)
        parts = [opened(path, partial(self._parts, file)) for path, file in zip(paths, self.files, strict=True)]
        groups = [(f, g, part.rows) for f, found in enumerate(parts) for g, part in enumerate(found)]
        self.blocks = merged(groups, BLOCK_ROWS)
        if not self.blocks:
            raise DataError(f"{name}: has no rows")
        blocks = [[parts[f][g] for f, g, _ in block] for block in self.blocks]
        schemas = [self._schema(file) for file in self.files]
        kept = self._kept = common_schema(schemas, paths, self.columns)
        size = sum(path.stat().st_size for path in paths)
        self.expands = not trust and rows_bytes(blocks, kept) > allowed_bytes(size)
        """Whether all rows together take more memory than files of this size may take."""

        try:
            check_blocks(blocks, kept, size, trust, self.has_pieces and can_be_cut(blocks, kept))
        except DataError as error:
            hint = [f": write it with {self.smaller}"] if TRUST_HINT[-1] in error.parts else []
            raise DataError(f"{name}: ", error.parts[0], *hint, *error.parts[1:]) from None
        self.first_rows: list[int | None] = [None] * len(self.blocks)
        """Of a block that is a piece of a row group, its first row in it; None for blocks that are read whole."""

        self.joined: list[int] | None = None
        """For each block the row group that it is a piece of; None where there are no pieces."""

        if memory_budget is None and not trust and max(block_bytes(b, kept) for b in blocks) > allowed_bytes(size):
            memory_budget = allowed_bytes(size)
        if memory_budget is not None:
            self._cut(blocks, kept, memory_budget)

    def _cut(self, blocks: Sequence[Sequence[Declared]], schema: Any, memory_budget: int) -> None:
        """MemoryLimitError if a block takes more than a budget; row groups of Parquet files are cut into pieces."""
        largest = max(block_bytes(block, schema) for block in blocks)
        Need(f"a block of {self.name}", {"rows": largest}, f"write it with {self.smaller}").left(memory_budget)

    @abstractmethod
    def _open(self, path: Path) -> Any:
        """The file, opened by pyarrow."""

    @abstractmethod
    def _schema(self, file: Any) -> Any:
        """The columns of an opened file."""

    @abstractmethod
    def _parts(self, file: Any, path: Path) -> Sequence[Declared]:
        """What the blocks of a file declare."""

    @abstractmethod
    def _frame(self, file: Any, groups: list[int], columns: list[str]) -> Any:
        """Some columns of some blocks."""

    def _names(self, file: Any, path: Path) -> list[str]:
        """The names of the columns of an opened file; they are text only if nothing is damaged."""
        return list(self._schema(file).names)

    @property
    def sizes(self) -> Sequence[int]:
        """Rows of each block."""
        return [sum(rows for _, _, rows in block) for block in self.blocks]

    def read(self, block: int) -> Table:
        """A block."""
        import pyarrow as pa  # noqa: PLC0415 - optional, and slow to import

        return frame_table(pa.concat_tables(self._frames(block, list(self.columns or ()))))

    def column_pieces(self, name: str) -> Iterator[Table]:
        """All rows of one column, a block at a time."""
        for block in range(len(self.blocks)):
            for frame in self._frames(block, [name]):
                yield as_table(frame)

    def _read_frames(self, block: int, columns: list[str]) -> list[Any]:
        """Some columns of a block, by file."""
        files = dict.fromkeys(file for file, _, _ in self.blocks[block])
        parts = {file: [g for f, g, _ in self.blocks[block] if f == file] for file in files}
        return [self._frame(self.files[file], groups, columns) for file, groups in parts.items()]

    def _frames(self, block: int, columns: list[str]) -> list[Any]:
        try:
            frames = self._read_frames(block, columns)
            for frame in frames:
                frame.validate(full=True)  # offsets and codes that point outside would end the process later
        except Exception as error:  # pyarrow has many kinds of errors for damaged files
            raise DataError(f"{self.name}: damaged: {reason_of(error)}") from None
        try:
            frames = [frame.cast(self._kept.empty_table().select(columns).schema) for frame in frames]
        except Exception as error:
            raise DataError(f"{self.name}: the files hold different types: {reason_of(error)}") from None
        if sum(map(len, frames)) != sum(rows for _, _, rows in self.blocks[block]):
            raise DataError(f"{self.name}: damaged: a block has another number of rows than it declares")
        return frames


class ParquetReader(FrameReader):
    """Row groups of Parquet files; with a budget, pieces of those that are large, one after the other."""

    smaller = "smaller row groups: pyarrow.parquet.write_table(table, path, row_group_size=65536)"
    has_pieces = True
    _reading: GroupReading | None = None
    """The row group whose pieces are being read."""

    def _cut(self, blocks: Sequence[Sequence[Declared]], schema: Any, memory_budget: int) -> None:
        one_row = cost_of(schema, 1)
        need = Need(f"a row of {self.name}", {"row": one_row}, "choose fewer columns with columns=")
        left = need.left(memory_budget) or 0
        most = left // PIECES_PER_BUDGET
        each = max(1, most // max(1, one_row - schema_bytes(schema)))
        cut, first_rows, joined = list[list[Group]](), list[int | None](), list[int]()
        for number, (block, declared) in enumerate(zip(self.blocks, blocks, strict=True)):
            for piece, at in pieces_of(block, each) if block_bytes(declared, schema) > most else [(block, None)]:
                cut.append(piece)
                first_rows.append(at)
                joined.append(number)
        self.blocks, self.first_rows = cut, first_rows
        self.joined = joined if len(cut) > len(blocks) else None

    def _read_frames(self, block: int, columns: list[str]) -> list[Any]:
        whole = self.first_rows[block] is None
        return super()._read_frames(block, columns) if whole else [self._piece(block, columns)]

    def _piece(self, block: int, columns: list[str]) -> Any:
        """The rows of a piece. Going on is cheap; another row group, or going back, starts at its beginning."""
        (file, group, rows), at = self.blocks[block][0], self.first_rows[block]
        assert at is not None
        reading = self._reading
        if reading is None or reading.of != (file, group, columns) or reading.at > at:
            batches = self.files[file].iter_batches(rows, row_groups=[group], columns=columns, use_threads=False)
            reading = self._reading = GroupReading((file, group, columns), batches)
        reading.skip(at - reading.at)
        return reading.take(rows).select(columns)

    def _open(self, path: Path) -> Any:
        from pyarrow import parquet  # noqa: PLC0415

        def open_file(place: Path) -> Any:
            most = place.stat().st_size + 1  # no list and no text of the footer can be longer than the file
            return parquet.ParquetFile(place, thrift_string_size_limit=most, thrift_container_size_limit=most)

        return opened(path, open_file)

    def _schema(self, file: Any) -> Any:
        return file.schema_arrow

    def _parts(self, file: Any, path: Path) -> Sequence[Declared]:
        return parquet_parts(file)

    def _frame(self, file: Any, groups: list[int], columns: list[str]) -> Any:
        return file.read_row_groups(groups, columns=columns).select(columns)


class ArrowReader(FrameReader):
    """Record batches of Arrow files (also Feather of version 2), which are mapped."""

    def _open(self, path: Path) -> Any:
        import pyarrow as pa  # noqa: PLC0415
        from pyarrow import ipc  # noqa: PLC0415

        return opened(path, lambda place: ipc.open_file(pa.memory_map(str(place))))

    def _schema(self, file: Any) -> Any:
        return file.schema

    def _parts(self, file: Any, path: Path) -> Sequence[Declared]:
        with path.open("rb") as content:
            return arrow_parts(mmap.mmap(content.fileno(), 0, access=mmap.ACCESS_READ))

    def _frame(self, file: Any, groups: list[int], columns: list[str]) -> Any:
        import pyarrow as pa  # noqa: PLC0415

        return pa.Table.from_batches([file.get_batch(number) for number in groups]).select(columns)


class BatchReader:
    """Batches of an iterable, in the order in which they come. They may come in another order in each pass."""

    access = "sequence"

    def __init__(self, make: Callable[[], Iterator[Any]], name: str) -> None:
        self.name, self._all = name, make
        self._iterator: Iterator[Any] | None = None
        self._next = 0
        self._sizes: list[int] | None = None
        first = next(self._make(), None)
        if first is None:
            raise DataError(f"{name}: has no rows")
        table = batch_table(first)
        self.columns, self.width = table.columns, table.shape[1]

    def _make(self) -> Iterator[Any]:
        """A new pass; batches without rows are left out."""
        return (batch for batch in self._all() if not _is_empty(batch))

    @property
    def sizes(self) -> Sequence[int]:
        """Rows of each batch; they are counted in a first pass."""
        if self._sizes is None:
            self._sizes = [len(batch_table(batch)) for batch in self._make()]
        return self._sizes

    def read(self, block: int) -> Table:
        """A batch; going back starts another pass."""
        if self._iterator is None or block < self._next:
            self._iterator, self._next = self._make(), 0
        while True:
            found = next(self._iterator, None)
            if found is None:
                self._iterator = None
                raise DataError(
                    f"{self.name}: this pass gave {self._next} batches, but the first one gave {len(self.sizes)}"
                )
            self._next += 1
            if self._next > block:
                break
        table = batch_table(found)
        if len(table) != self.sizes[block] or table.shape[1] != self.width:
            raise DataError(
                f"{self.name}: batch {block + 1} has shape {table.shape}, but in the first pass it had another shape"
            )
        return table


def _is_empty(batch: Any) -> bool:
    """No rows, as loaders and filters may give it."""
    if isinstance(batch, list | tuple) and batch and hasattr(batch[0], "ndim") and batch[0].ndim == 2:
        batch = batch[0]
    if isinstance(batch, Mapping):
        return all(hasattr(column, "__len__") and not len(column) for column in batch.values())
    shape = getattr(batch, "shape", None)
    return len(shape) == 2 and shape[0] == 0 if shape is not None else hasattr(batch, "__len__") and not len(batch)


def batch_table(batch: Any) -> Table:
    """A batch as a table; loaders put single tensors into lists."""
    if isinstance(batch, list | tuple) and batch and hasattr(batch[0], "ndim") and batch[0].ndim == 2:
        if len(batch) > 1:
            raise DataError("a batch has several tensors; return only the data, for example with collate_fn=")
        batch = batch[0]
    return as_table(batch)


def frame_table(frame: Any) -> Table:
    """A pyarrow table; columns of plain numbers without gaps go a shorter way."""
    import pyarrow as pa  # noqa: PLC0415

    kinds = frame.schema.types
    plain = all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in kinds)
    if not plain or any(column.null_count for column in frame.columns):
        return as_table(frame)
    dtype = np.result_type(*(kind.to_pandas_dtype() for kind in kinds))
    values = np.empty((frame.num_columns, frame.num_rows), dtype=dtype)
    for row, column in zip(values, frame.columns, strict=True):
        row[:] = column.to_numpy()
    return table_of(native(np.ascontiguousarray(values.T)), tuple(frame.column_names))
