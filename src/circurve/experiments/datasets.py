"""Data sets of a study: by name or path, always in three parts, with a hash that says which data they were."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from circurve.data import Dataset, Table, load_data, split_rows, take_fraction
from circurve.graph import Circuit
from circurve.structures import hclt, infer_families

__all__ = ["circuit_for", "digest", "load_study_data", "training_rows"]

HELD_OUT = 0.1
"""The share of the rows that is held out for validation or test where there are no such rows."""


def load_study_data(name_or_path: str, data_dir: Path | None) -> Dataset:
    """Load a data set; validation and test rows that it lacks are a tenth each of its rows, the same every time."""
    data = load_data(name_or_path, data_dir)
    shares = [HELD_OUT if part is None else 0.0 for part in (data.valid, data.test)]
    if not any(shares):
        return data
    train, held, tested = split_rows(data.train, shares[0], shares[1], seed=0)
    valid, test = held if data.valid is None else data.valid, tested if data.test is None else data.test
    return replace(data, train=train, valid=valid, test=test)


def training_rows(data: Dataset, fraction: float, seed: int) -> Table:
    """A share of the training rows, at least one. For one seed, smaller shares are parts of larger ones."""
    return data.train if fraction == 1 else take_fraction(data.train, fraction, seed)


def circuit_for(data: Dataset, train: Table, units: int) -> Circuit:
    """The hidden Chow-Liu tree of the training rows; its families also take the values of the other parts."""
    return hclt(train, units, infer_families(*_parts(data)))


def digest(data: Dataset) -> str:
    """SHA-256 of the shapes and values of all parts; whole numbers count the same in every integer type."""
    found = hashlib.sha256()
    for part in _parts(data):
        kind = "<i8" if part.dtype.kind in "iub" else "<f8"
        found.update(f"{part.shape}{kind}".encode())
        found.update(np.ascontiguousarray(part, dtype=kind).data)
    return found.hexdigest()


def _parts(data: Dataset) -> list[Table]:
    return [part for part in (data.train, data.valid, data.test) if part is not None]
