"""From what users have to a `Stream`, or to a table where the data are in memory anyway."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader

from circurve.bounds import TRUST_HINT
from circurve.budget import check_budget
from circurve.data.array_files import mapped_npy
from circurve.data.entry import as_table
from circurve.data.frames import as_narwhals
from circurve.data.readers import BLOCK_ROWS, ArrayReader, ArrowReader, BatchReader, ParquetReader
from circurve.data.reading import Reader
from circurve.data.stream import BUFFER, Stream
from circurve.data.table import Table
from circurve.errors import DataError, OptionError

__all__ = ["as_source", "is_streamed", "open_stream"]

READERS: dict[str, type[ParquetReader | ArrowReader]] = {
    ".parquet": ParquetReader,
    ".arrow": ArrowReader,
    ".feather": ArrowReader,
}
"""The files that can be streamed, by their suffixes."""

ARRAY = ".npy"


def open_stream(  # noqa: PLR0913 - each parameter is an option
    source: Any,
    *,
    columns: Sequence[str] | None = None,
    block_rows: int | None = None,
    buffer: int = BUFFER,
    missing: int | None = None,
    trust: bool = False,
    memory_budget: int | None = None,
) -> Stream:
    """Data that stay where they are, for `fit`, `hclt`, `log_prob`, `curvature` and other places that take a table.

    Rows of arrays are shuffled as rows in memory are. Those of files are shuffled block by block (row groups, record
    batches): blocks in random order, then rows within windows of consecutive blocks. Batches of an iterable come in the
    order in which it gives them.

    Parameters
    ----------
    source : array, path, DataLoader, iterable of batches, or function that returns one
        A `numpy.memmap` or another array; an .npy file, which is mapped; a Parquet or Arrow file, or a folder of them;
        a torch `DataLoader`; batches. Everything except arrays is read again in each epoch.
    columns : sequence of str, optional
        Some of a file's columns.
    block_rows : int, optional
        Cut an array into blocks of this many rows and shuffle it like a file: a disk gives blocks faster than rows.
    buffer : int, default 256 MiB
        Bytes of rows in memory; a window is half of it.
    missing : int, optional
        A number that marks missing values, in addition to NaN.
    trust : bool, default False
        Also take files with a block that needs more than ten times their size in memory (and more than 256 MB). What
        blocks need is known from the file's metadata, before any of them is read. Row groups of a Parquet file need no
        trust where they can be read in pieces.
    memory_budget : int, optional
        Memory limit for rows, in bytes: the buffer takes at most half of it, and a row group of a Parquet file that
        does not fit is read in pieces. A record batch of an Arrow file that does not fit is an error.

    Returns
    -------
    Stream
        The rows, not read yet.

    Raises
    ------
    DataError
        If there is no such file, its blocks would take too much memory, or the source cannot be read more than once.

    Examples
    --------
    >>> import circurve as cc
    >>> data = cc.load_dataset("digits")
    >>> stream = cc.open_stream([data.train[:1000], data.train[1000:]])  # two batches
    >>> circuit = cc.hclt(data.train, units=4)
    >>> model = cc.fit(circuit, stream, epochs=2, valid=False).model
    >>> model.log_prob(stream).shape == (len(data.train),)
    True
    """
    if isinstance(source, Stream):
        raise OptionError("this is already a stream; pass it directly, without open_stream")
    if isinstance(buffer, bool) or not isinstance(buffer, int | np.integer) or buffer < 1:
        raise OptionError(f"buffer must be a positive number of bytes, not {buffer!r}")
    if block_rows is not None and (isinstance(block_rows, bool) or block_rows < 1):
        raise OptionError(f"block_rows must be a whole number >= 1, not {block_rows!r}")
    check_budget(memory_budget)
    if memory_budget is not None:
        buffer = max(1, min(buffer, memory_budget // 2))
    reader = _reader(source, columns, block_rows, {"trust": trust, "memory_budget": memory_budget})
    return Stream(reader, buffer=int(buffer), missing=missing)


def _reader(source: Any, columns: Sequence[str] | None, block_rows: int | None, bounds: dict[str, Any]) -> Reader:
    if isinstance(source, str | os.PathLike):
        path = Path(source).expanduser()
        if path.suffix.lower() != ARRAY or path.is_dir():
            return _file_reader(path, columns, bounds)
        source = mapped_npy(path)
    if columns is not None:
        raise OptionError("columns= is for Parquet and Arrow files; choose the columns of an array by indexing it")
    if isinstance(source, Tensor | list | tuple) and not _is_batches(source):
        source = np.asarray(source)
    if isinstance(source, np.ndarray):
        return ArrayReader(source, "rows" if block_rows is None else "blocks", block_rows or BLOCK_ROWS)
    if isinstance(source, Iterator):
        raise DataError(
            "an iterator can be read only once, but training reads its data in each epoch: pass a function that "
            "returns a new iterator, or an object whose __iter__ starts again"
        )
    name = type(source).__name__
    if isinstance(source, Iterable):
        return BatchReader(lambda: iter(source), name)
    if callable(source):
        return BatchReader(_maker(source), getattr(source, "__name__", name))
    raise DataError(f"a {name} cannot be streamed; see the documentation of open_stream for what can")


def _maker(make: Callable[[], Iterable[Any]]) -> Callable[[], Iterator[Any]]:
    return lambda: iter(make())


def _is_batches(source: Any) -> bool:
    """A list of tables, and not one table of lists."""
    return isinstance(source, list | tuple) and bool(source) and np.ndim(source[0]) >= 2


def _is_tables(source: Any) -> bool:
    """A list of arrays, tensors or frames with two dimensions each: batches, whose rows follow one another."""
    return isinstance(source, list | tuple) and bool(source) and len(getattr(source[0], "shape", ())) == 2


def _file_reader(path: Path, columns: Sequence[str] | None, bounds: dict[str, Any]) -> Reader:
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix.lower() in READERS)
        kinds = {READERS[file.suffix.lower()] for file in files}
        if len(kinds) != 1:
            found = "Parquet and Arrow files" if files else "no Parquet or Arrow files"
            raise DataError(f"{path}: holds {found}; a stream needs a folder with files of one kind")
        return kinds.pop()(files, columns, str(path), **bounds)
    if path.suffix.lower() not in READERS:
        known = ", ".join((*READERS, ARRAY))
        raise DataError(f"{path}: only {known} files and folders of them are streamed; load_data reads others")
    return READERS[path.suffix.lower()]([path], columns, str(path), **bounds)


def is_streamed(data: Any) -> bool:
    """Whether data are read piece by piece when they are given to `fit` and others without `open_stream`."""
    if isinstance(data, Stream | np.memmap | str | os.PathLike | DataLoader | Iterator) or _is_tables(data):
        return True
    if isinstance(data, Table | np.ndarray | Tensor | Mapping | Sequence) or hasattr(data, "__array__"):
        return False
    made = callable(data) and not hasattr(data, "__len__") and not hasattr(data, "columns")
    loops = isinstance(data, Iterable) and not hasattr(data, "toarray") and not hasattr(data, "columns")
    return (made or loops) and as_narwhals(data) is None


def as_source(data: Any, missing: int | None = None) -> Table | Stream:
    """A table in memory, or a stream for what `is_streamed`."""
    if not is_streamed(data):
        return as_table(data, missing=missing)
    stream = data if isinstance(data, Stream) else _opened(data)
    if missing is not None and stream.missing is not None:
        raise OptionError("missing= is given twice, in open_stream and as an argument; leave one out")
    return stream if missing is None else replace(stream, missing=missing)


def _opened(data: Any) -> Stream:
    try:
        return open_stream(data)
    except DataError as error:  # those who call `fit` with a path have no trust= to say
        raise DataError(*error.parts, *([" to open_stream"] if TRUST_HINT[-1] in error.parts else [])) from None
