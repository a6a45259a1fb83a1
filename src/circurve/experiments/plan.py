"""From a study to its data and its fleets: all runs that share training rows, in one training."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from circurve.data import Dataset, Table, load_data, split_rows, take_fraction
from circurve.errors import OptionError
from circurve.experiments.records import Record, identify
from circurve.experiments.spec import Setting, Study, describe_setting
from circurve.graph import Circuit
from circurve.learning.fleet_size import runs_at_once
from circurve.structures import hclt, infer_families
from circurve.structures.hclt import Leaves

__all__ = ["Fleet", "PlannedRun", "circuit_for", "digest", "load_all", "load_study_data", "plan_study", "training_rows"]

HELD_OUT = 0.1
"""The share of the rows that is held out for validation or test where there are no such rows."""

MEASURED_SETTINGS = ("rows", "variables", "parameters")
"""What the settings of a record hold beside those of the study."""

RESULTS_VERSION = 2
"""Raised with every change of the package that changes results: older records then no longer count as known."""


@dataclass(frozen=True)
class PlannedRun:
    """One training to come, or done already."""

    id: str
    labels: tuple[str, ...]
    """One, unless the study lists the method under several."""

    setting: Setting
    seed: int


@dataclass(frozen=True, eq=False)
class Fleet:
    """Runs that are trained side by side, on the same rows."""

    key: str
    """The hash of its runs' ids: which runs a run was trained with."""

    data: Dataset
    digest: str
    """The hash of the data."""

    fraction: float
    rows_seed: int
    """The seed that chose the rows; of no effect if the fraction is 1."""

    epochs: int
    runs: tuple[PlannedRun, ...]

    @property
    def rows(self) -> int:
        """How many rows it is trained on."""
        return len(training_rows(self.data, self.fraction, self.rows_seed))

    @property
    def name(self) -> str:
        """What the display calls it."""
        return self.data.name if self.fraction == 1 else f"{self.data.name} {self.fraction:.0%}, seed {self.rows_seed}"

    def cost(self, runs: int) -> float:
        """Proportional to the arithmetic of training so many of its runs with one circuit size."""
        return float(runs * self.epochs * self.rows * self.data.train.shape[1])


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


def circuit_for(data: Dataset, train: Table, units: int, leaves: Leaves = "own") -> Circuit:
    """The hidden Chow-Liu tree of the training rows; its families also take the values of the other parts."""
    return hclt(train, units, infer_families(*_parts(data)), leaves=leaves)


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


def load_all(study: Study, known: Mapping[str, Dataset] | None = None) -> dict[str, Dataset]:
    """The data sets of a study as it names them; `known` ones are not loaded again."""
    known = known or {}
    return {name: known[name] if name in known else load_study_data(name, study.data_dir) for name in study.datasets}


def plan_study(study: Study, known: Mapping[str, Dataset] | None = None) -> list[Fleet]:
    """All fleets of a study, in the order of training; all data are loaded first, so that gaps show at once.

    With all training rows, all seeds are in one fleet; a share of them is drawn by the seed, and so each seed has a
    fleet of its own.
    """
    loaded = list(load_all(study, known).values())
    if study.variant is not None:
        loaded = [study.variant.change(data) for data in loaded]
    for data in loaded:
        if sum(other.name == data.name for other in loaded) > 1:
            raise OptionError(f"datasets: two of them are called '{data.name}'; records go by that name")
    return [fleet for data in loaded for fleet in _plan_dataset(study, data)]


def _plan_dataset(study: Study, data: Dataset) -> Iterator[Fleet]:
    known = digest(data)
    for fraction in study.fractions:
        groups = [study.seeds] if fraction == 1 else [(seed,) for seed in study.seeds]
        for seeds in groups:
            epochs = study.protocol.epochs_for(len(training_rows(data, fraction, seeds[0])))
            facts = {"results": RESULTS_VERSION, "data": known, "fraction": fraction}
            planned = _runs(study.settings, seeds, {**facts, "settings": describe_settings(study, epochs)})
            weights = int(data.train.shape[1]) * study.protocol.units**2
            most = study.max_runs or runs_at_once(weights)
            if study.probe is not None:  # ensembles need all runs of a label in one fleet
                of_label = -(-len(planned) // len(study.labels))
                most = max(1, most // of_label) * of_label
            for start in range(0, len(planned), most):
                part = tuple(planned[start : start + most])
                yield Fleet(identify([run.id for run in part]), data, known, fraction, seeds[0], epochs, part)


def _runs(settings: Sequence[Setting], seeds: Sequence[int], facts: Record) -> list[PlannedRun]:
    """Each method with each seed, once; an id is the hash of all that determines a result: labels do not."""
    runs: dict[str, PlannedRun] = {}
    for setting in settings:
        for seed in seeds:
            name = identify({**facts, "method": describe_setting(setting), "seed": seed})
            labels = (*(runs[name].labels if name in runs else ()), setting.label)
            runs[name] = PlannedRun(name, tuple(dict.fromkeys(labels)), setting, seed)
    return list(runs.values())


def describe_settings(study: Study, epochs: int) -> Record:
    """The part of a record about training that is the same for all runs of a fleet.

    It enters the ids of runs: what older records do not have is named only where it is not the usual one.
    """
    protocol = study.protocol
    shape: Record = {"structure": "hclt", "units": protocol.units}
    shape |= {} if protocol.leaves == "own" else {"leaves": protocol.leaves}
    shape |= {} if study.variant is None else {"variant": study.variant.name}
    shape |= {} if study.probe is None else {"probe": study.probe.name}
    shape |= {} if study.anatomy else {"anatomy": False}
    steps = {"epochs": epochs, "batch_size": protocol.batch_size, "step": protocol.step_name}
    return {**shape, **steps, "precision": "float32"}
