"""Model files: checked before hours are spent, written with how the model was trained, and read back."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from circurve.cli.show import document
from circurve.engine.parameters import by_node
from circurve.errors import OptionError
from circurve.model import Model
from circurve.persistence import read_metadata, write_model

__all__ = ["check_target", "read_training", "save_model"]

TRAINING = "training"
"""The entry of a model file's own text that says, as JSON, how the model was trained."""

PASSING = ("command", "seconds", "device")
"""What is not kept: the same training gives the same file."""


def check_target(out: Path, sources: Iterable[str | Path | None]) -> None:
    """Refuse a file that could not be written later, or that is one of the `sources` of data."""
    target = Path(os.path.realpath(out))
    folder = target.parent
    if not folder.is_dir():
        raise OptionError(f"--out {out}: the folder {folder} {'is a file' if folder.exists() else 'does not exist'}")
    if target.is_dir():
        raise OptionError(f"--out {out}: is a folder, not a file")
    if target.exists() and not target.is_file():
        raise OptionError(f"--out {out}: is not a regular file")
    if any(source is not None and Path(os.path.realpath(source)) == target for source in sources):
        raise OptionError(f"--out {out}: would overwrite the data")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OptionError(f"--out {out}: cannot write to the folder {folder}: {error.strerror or error}") from None


def save_model(path: Path, model: Model, training: Mapping[str, Any]) -> None:
    """Write the model, all or nothing, with how it was trained beside it."""
    kept = {key: value for key, value in document(training).items() if key not in PASSING}
    extra = {TRAINING: json.dumps(kept)}
    write_model(path, model.circuit, by_node(model.program, model.params), extra)


def read_training(path: Path) -> dict[str, Any]:
    """How the model was trained, as far as its file says."""
    try:
        training = json.loads(read_metadata(path).get(TRAINING, "{}"))
    except json.JSONDecodeError:
        return {}
    return training if isinstance(training, dict) else {}
