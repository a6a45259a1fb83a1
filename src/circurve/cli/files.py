"""Files: checked before hours are spent, models written with how they were trained, and read back; tables."""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from circurve.cli.show import document
from circurve.errors import OptionError
from circurve.model import Model
from circurve.persistence import read_metadata, replace_file

__all__ = ["check_folder", "check_target", "csv_text", "read_training", "save_model", "write_csv"]

TRAINING = "training"
"""The entry of a model file's own text that says, as JSON, how the model was trained."""

PASSING = ("command", "seconds", "device", "history")
"""What is not kept: the same training gives the same file, and a long one no long file."""


def check_target(option: str, out: Path, sources: Iterable[str | Path | None]) -> None:
    """Refuse a file that could not be written later, or that is one of the `sources` of data."""
    target = Path(os.path.realpath(out))
    folder = target.parent
    if not folder.is_dir():
        raise OptionError(f"{option} {out}: the folder {folder} {'is a file' if folder.exists() else 'does not exist'}")
    if target.is_dir():
        raise OptionError(f"{option} {out}: is a folder, not a file")
    if target.exists() and not target.is_file():
        raise OptionError(f"{option} {out}: is not a regular file")
    if any(source is not None and Path(os.path.realpath(source)) == target for source in sources):
        raise OptionError(f"{option} {out}: would overwrite the data")
    _check_writable(option, out, folder)


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
    """Write the model, all or nothing, with how it was trained beside it."""
    kept = {key: value for key, value in document(training).items() if key not in PASSING}
    model.save(path, {TRAINING: json.dumps(kept)})


def read_training(path: Path) -> dict[str, Any]:
    """How the model was trained, as far as its file says."""
    try:
        training = json.loads(read_metadata(path).get(TRAINING, "{}"))
    except json.JSONDecodeError:
        return {}
    return training if isinstance(training, dict) else {}


def write_csv(path: Path, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table, all or nothing; an empty field for None."""
    replace_file(path, csv_text(heads, rows).encode())


def csv_text(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table as comma-separated values; an empty field for None."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows(rows)
    return text.getvalue()
