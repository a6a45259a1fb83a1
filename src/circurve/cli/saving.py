"""The file of a trained model: saved in another place if there is no space; an interrupted run replaces no finished
model."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from circurve.cli.failures import NotSavedError
from circurve.cli.files import read_training, save_model
from circurve.errors import CircurveError
from circurve.model import Model

__all__ = ["Target", "elsewhere", "how_to_continue", "not_saved", "place_for"]


def place_for(out: Path, report: Mapping[str, Any], overwrite: bool) -> Path:
    """Where a model is written: `out`, or NAME.interrupted.safetensors next to it.

    An interrupted run does not replace an existing model, unless that is an interrupted one with no more
    epochs, or `overwrite` is given.
    """
    if report["stopped"] != "interrupted" or overwrite or not out.exists():
        return out
    try:
        before = read_training(out)
    except CircurveError:  # not a model, but a file that somebody may need
        before = {}
    shorter = isinstance(before.get("epochs"), int) and before["epochs"] <= report["epochs"]
    if before.get("stopped") == "interrupted" and shorter:
        return out
    return out.with_name(f"{out.stem}.interrupted{out.suffix}")


@dataclass(frozen=True)
class Target:
    """The file of one model, and whether it may be overwritten."""

    out: Path | None
    overwrite: bool = False
    checkpoint: Path | None = None

    def save(self, model: Model, report: Mapping[str, Any]) -> Path | None:
        """Write a model and return where; None if there is no `out`. NotSavedError says where it is kept instead."""
        if self.out is None:
            return None
        out = place_for(self.out, report, self.overwrite)
        try:
            save_model(out, model, report)
        except (CircurveError, OSError) as error:
            kept = elsewhere(lambda folder: save_model(folder / out.name, model, report))
            where = None if kept is None else str(kept / out.name)
            raise NotSavedError(not_saved(error, where, self.checkpoint)) from error
        return out

    def in_words(self, what: str, written: Path | None, reason: str) -> str:
        """What was saved of an interrupted training; reason: why there is no file."""
        text = f"nothing was saved, {reason}" if written is None else f"{what} is saved in {written}"
        if written is not None and written != self.out:
            text += f", because {self.out} exists (--overwrite replaces it)"
        return text + how_to_continue(self.checkpoint)


def not_saved(error: Exception, kept: str | None, checkpoint: str | os.PathLike[str] | None) -> str:
    """What went wrong, and where the training is saved instead."""
    text = str(error)
    if kept is not None:
        text += f"; the trained model is saved in {kept}"
    return text + how_to_continue(checkpoint)


def how_to_continue(checkpoint: str | os.PathLike[str] | None) -> str:
    """The end of a message: how a training that ended early continues; empty without a folder for checkpoints."""
    if checkpoint is None:
        return ""
    if not any(Path(checkpoint).rglob("epoch-*.safetensors")):
        return f"; the folder {checkpoint} has no checkpoint yet, so the same command begins again"
    return f"; run the same command again to continue from the checkpoint {checkpoint}"


def elsewhere(write: Callable[[Path], object]) -> Path | None:
    """A new folder in which `write` succeeded, in the first place with enough space; None if there is none."""
    for place in (tempfile.gettempdir(), Path.home(), os.getcwd(), "/dev/shm"):
        folder: Path | None = None
        try:
            folder = Path(tempfile.mkdtemp(prefix="circurve-", dir=place))
            write(folder)
        except (CircurveError, OSError):
            if folder is not None:
                _remove(folder)
            continue
        return folder
    return None


def _remove(folder: Path) -> None:
    with suppress(OSError):
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
