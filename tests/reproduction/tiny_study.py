"""A study that takes a second: two small data sets, two shares of their rows, three methods, two seeds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from circurve import Gated, Global, Vanilla
from circurve.reproduction import PAPER_OWN, RecordFile, Setting, Study, run_study

Record = dict[str, Any]

TINY = replace(PAPER_OWN, seeds=(0, 1), units=3, epochs=4, small_epochs=4, batch_size=20)
SETTINGS = (Setting("vanilla", Vanilla()), Setting("global", Global(0.1)), Setting("gated", Gated(0.1)))


def write_data(folder: Path, names: tuple[str, ...] = ("first", "second")) -> tuple[str, ...]:
    """Small data sets as .npz files; their paths."""
    paths = []
    for number, name in enumerate(names):
        generator = np.random.default_rng(number)
        cause = generator.random((100, 1)) < 0.5
        rows = (generator.random((100, 5)) < np.where(cause, 0.8, 0.2)).astype(np.int64)
        path = folder / f"{name}.npz"
        np.savez(path, train=rows[:60], valid=rows[60:80], test=rows[80:])
        paths.append(str(path))
    return tuple(paths)


def tiny_study(folder: Path, **changes: Any) -> Study:
    """The study; its data lie in the folder."""
    study = Study("tiny", write_data(folder), SETTINGS, TINY, fractions=(0.5, 1.0), device="cpu")
    return replace(study, **changes)


def run(study: Study, out: Path) -> list[Record]:
    with RecordFile(out) as file:
        return run_study(study, file, command="tiny", shown=False)


def timeless(record: Record) -> Record:
    """A record without what differs from one run to the next."""
    fleet = {key: value for key, value in record["fleet"].items() if key != "seconds"}
    return {**{key: value for key, value in record.items() if key != "seconds"}, "fleet": fleet}
