"""Data sets of a study: by name or path, always in three parts, with a hash that says which data they were."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from circurve.data import Dataset, Matrix, load_data, split_rows, take_fraction
from circurve.data.convert import Array
from circurve.graph import Circuit
from circurve.structures import hclt, infer_families

__all__ = ["StudyData", "circuit_for", "load_study_data"]

HELD_OUT = 0.1
"""The share of the rows that is held out for validation or test where there are no such rows."""


@dataclass(frozen=True, eq=False)
class StudyData:
    """A data set with validation and test rows, and the hash of its values."""

    data: Dataset
    valid: Array
    test: Array
    digest: str

    @property
    def name(self) -> str:
        """What records and tables call it."""
        return self.data.name

    def part(self, fraction: float, seed: int) -> Array:
        """A share of the training rows, at least one. For one seed, smaller shares are parts of larger ones."""
        train = self.data.train
        return train if fraction == 1 else take_fraction(train, fraction, seed)


def load_study_data(name_or_path: str, data_dir: Path | None) -> StudyData:
    """Load a data set; validation and test rows that it lacks are a tenth each of its rows, the same every time."""
    data = load_data(name_or_path, data_dir)
    shares = [HELD_OUT if part is None else 0.0 for part in (data.valid, data.test)]
    train, valid, test = data.train, data.valid, data.test
    if any(shares):
        train, held, tested = split_rows(data.train, shares[0], shares[1], seed=0)
        valid, test = held if valid is None else valid, tested if test is None else test
    assert valid is not None
    assert test is not None
    return StudyData(replace(data, train=train, valid=valid, test=test), valid, test, _digest((train, valid, test)))


def circuit_for(data: StudyData, train: Array, units: int) -> Circuit:
    """The hidden Chow-Liu tree of the training rows; its families also take the values of the other parts."""
    parts = (data.data.train, data.valid, data.test)
    families = infer_families(*(Matrix(part, data.data.columns) for part in parts))
    return hclt(Matrix(train, data.data.columns), units, families)


def _digest(parts: tuple[Array, ...]) -> str:
    """SHA-256 of shapes and values; whole numbers count the same in every integer type."""
    found = hashlib.sha256()
    for part in parts:
        kind = "<i8" if part.dtype.kind in "iub" else "<f8"
        found.update(f"{part.shape}{kind}".encode())
        found.update(np.ascontiguousarray(part, dtype=kind).data)
    return found.hexdigest()
