"""Files: checked before a long training; models written with how they were trained, and read back; tables; pictures."""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from circurve.bounds import parse_json
from circurve.cli.options import STANDARD
from circurve.cli.safe_text import harmless_rows, visible
from circurve.cli.show import document
from circurve.errors import MissingPackageError, OptionError
from circurve.learning.parallel import worker
from circurve.model import Model
from circurve.persistence import read_metadata
from circurve.whole_files import replace_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "arrow_table",
    "cells",
    "check_folder",
    "check_plot",
    "check_report",
    "check_rows",
    "check_target",
    "csv_text",
    "read_training",
    "save_model",
    "save_plot",
    "write_csv",
    "write_rows",
]

ROWS = (".csv", ".tsv", ".parquet")
PICTURES = (".png", ".svg", ".pdf")
PAGES = (".html", ".htm")
"""The kinds of files that can be written, by their suffixes."""

MAX_WHOLE = 2**53
"""The largest number up to which a float stores every whole number."""

DOTS_PER_INCH = 200
"""The resolution of a picture made of pixels."""

TRAINING = "training"
"""The entry of a model file's own text that says, as JSON, how the model was trained."""

UNSAVED_FIELDS = ("command", "seconds", "device", "history")
"""Fields that are not saved, so that the same training gives the same file, and a long training no long file."""


def check_target(option: str, out: Path, sources: Iterable[str | Path | None]) -> None:
    """Refuse a file that could not be written later, or that is one of the `sources` of data."""
    if str(out) == STANDARD:
        raise OptionError(f"{option} -: this cannot be written to standard output; name a file")
    target = Path(os.path.realpath(out))
    folder = target.parent
    if not folder.is_dir():
        raise OptionError(f"{option} {out}: the folder {folder} {'is a file' if folder.exists() else 'does not exist'}")
    if target.is_dir():
        raise OptionError(f"{option} {out}: is a folder, not a file")
    if target.exists() and not target.is_file():
        raise OptionError(f"{option} {out}: is not a regular file")
    if any(source is not None and Path(os.path.realpath(source)) == target for source in sources):
        raise OptionError(
            f"{option} {out}: would overwrite a file that this command reads or writes; name another file"
        )
    _check_writable(option, out, folder)


def check_rows(option: str, out: str, sources: Iterable[str | Path | None]) -> None:
    """Refuse a file that rows could not be written to later; `-` is standard output."""
    if out == STANDARD:
        return
    _check_suffix(option, Path(out), ROWS, "; - is standard output")
    if Path(out).suffix.lower() == ".parquet" and find_spec("pyarrow") is None:
        cure = "pip install 'circurve[pyarrow]', or write .csv"
        raise MissingPackageError(f"{option} {out}: Parquet files need pyarrow: {cure}")
    check_target(option, Path(out), sources)


def check_plot(out: Path | None, sources: Iterable[str | Path | None]) -> None:
    """Refuse a picture that could not be drawn or written later; None is no picture."""
    if out is None:
        return
    _check_suffix("--plot", out, PICTURES)
    if find_spec("matplotlib") is None:
        raise MissingPackageError("--plot needs matplotlib: pip install 'circurve[plots]'")
    check_target("--plot", out, sources)


def check_report(out: Path | None, sources: Iterable[str | Path | None]) -> None:
    """Refuse a page that could not be written later; None is no page."""
    if out is not None:
        _check_suffix("--report", out, PAGES)
        check_target("--report", out, sources)


def _check_suffix(option: str, out: Path, known: Sequence[str], more: str = "") -> None:
    if out.suffix.lower() not in known:
        found = f"unknown kind of file {out.suffix!r}" if out.suffix else "the name has no suffix"
        raise OptionError(f"{option} {out}: {found}; use one of {', '.join(known)}{more}")


def check_folder(option: str, folder: Path) -> None:
    """Refuse a folder that could not be made or written to later; nothing is made yet."""
    nearest = next(place for place in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(place))
    if not nearest.is_dir():
        problem = "is a file, not a folder" if nearest == folder.absolute() else f"{nearest} is a file, not a folder"
        raise OptionError(f"{option} {folder}: {problem}")
    _check_writable(option, folder, nearest)


def _check_writable(option: str, given: Path, folder: Path) -> None:
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OptionError(f"{option} {given}: cannot write to the folder {folder}: {error.strerror or error}") from None


def save_model(path: Path, model: Model, training: Mapping[str, Any]) -> None:
    """Write the model, all or nothing, together with how it was trained; if there are several workers, only the first
    one writes."""
    if worker() > 0:
        return
    kept = {key: value for key, value in document(training).items() if key not in UNSAVED_FIELDS}
    model.save(path, {TRAINING: json.dumps(kept)})


def read_training(path: Path, trust: bool = False) -> dict[str, Any]:
    """How the model was trained, as far as its file says."""
    try:
        training = parse_json(read_metadata(path, trust).get(TRAINING, "{}"), path.stat().st_size, trust)
    except ValueError:
        return {}
    return training if isinstance(training, dict) else {}


def write_csv(path: Path, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table, all or nothing; an empty field for None."""
    if worker() > 0:
        return
    replace_file(path, csv_text(heads, rows).encode())


def write_rows(out: str, columns: Mapping[str, Any], named: bool = True) -> None:
    """Columns to a file that `check_rows` accepted, all or nothing, or as CSV to standard output.

    named: False writes text without a header. Columns that were read without names have none: a header of indices would
    be read back as a row of numbers.
    """
    if out.lower().endswith(".parquet"):
        replace_file(Path(out), _parquet(columns))
        return
    rows = zip(*(cells(values) for values in columns.values()), strict=True)
    text = csv_text(list(columns) if named else None, rows, "\t" if out.lower().endswith(".tsv") else ",")
    if out == STANDARD:
        sys.stdout.write(visible(text) if sys.stdout.isatty() else text)
    else:
        replace_file(Path(out), text.encode())


def cells(values: Any) -> list[Any]:
    """Values as they are written to a text file: dates in ISO form, 7 digits of other numbers, None if missing.

    Draws and means are computed in float32, which has no more digits; given values may have more digits, and keep them.
    """
    array = np.asarray(values)
    if array.dtype.kind == "M":
        days = array.astype("datetime64[D]")
        whole = bool(((array == days) | np.isnat(array)).all())
        texts = np.datetime_as_string(days if whole else array).tolist()
        return [None if text == "NaT" else text for text in texts]
    if array.dtype.kind == "f":
        return [None if np.isnan(value) else _shortest(value) for value in array.tolist()]
    return list(array.tolist())


def _shortest(value: float) -> float:
    """A whole number as such, a float32 as the shortest number that is read as the same one, any other as it is."""
    if value.is_integer() and abs(value) < MAX_WHOLE:
        return int(value)
    with np.errstate(over="ignore"):
        single = np.float32(value)
    return float(str(single)) if float(single) == value else value


def arrow_table(columns: Mapping[str, Any]) -> Any:
    """Columns as a table of pyarrow; NaN and None are missing."""
    import pyarrow

    return pyarrow.table({name: pyarrow.array(np.asarray(v), from_pandas=True) for name, v in columns.items()})


def _parquet(columns: Mapping[str, Any]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(arrow_table(columns), sink)
    return bytes(sink.getvalue().to_pybytes())


def save_plot(out: Path, draw: Callable[[], Figure]) -> None:
    """Write a picture, all or nothing, in the kind that its suffix says."""
    if worker() > 0:
        return
    kind, picture, fonts = out.suffix.lower().removeprefix("."), io.BytesIO(), logging.getLogger("matplotlib")
    level = fonts.level
    fonts.setLevel(logging.ERROR)  # a line for each font that is not installed does not help
    try:
        draw().savefig(picture, format=kind, dpi=DOTS_PER_INCH)
    finally:
        fonts.setLevel(level)
    replace_file(out, picture.getvalue())


def csv_text(heads: Sequence[str] | None, rows: Iterable[Sequence[object]], delimiter: str = ",") -> str:
    """A table as text, by default comma-separated values; an empty field for None, no header row for heads=None."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerows(harmless_rows(rows if heads is None else chain([heads], rows)))
    return text.getvalue()
