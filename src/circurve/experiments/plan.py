"""From a study to its fleets: all runs that share training rows, in one training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from circurve.data import Dataset
from circurve.errors import OptionError
from circurve.experiments.datasets import digest, load_study_data, training_rows
from circurve.experiments.records import identify
from circurve.experiments.spec import Setting, Study, describe_setting

__all__ = ["Fleet", "PlannedRun", "load_all", "plan_study"]

RESULTS_VERSION = 2
"""Raised with every change of the package that changes results: older records then no longer count as known."""

WEIGHTS_AT_ONCE = 100_000_000
MOST_RUNS = 256
"""A fleet has at most so many sum weights, and at most so many runs: a rule by size alone, the same on all machines."""


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
            facts = {
                "results": RESULTS_VERSION,
                "data": known,
                "fraction": fraction,
                "settings": describe_settings(study, epochs),
            }
            planned = _runs(study.settings, seeds, facts)
            most = study.max_runs or _most_runs(data, study.protocol.units)
            for start in range(0, len(planned), most):
                part = tuple(planned[start : start + most])
                yield Fleet(identify([run.id for run in part]), data, known, fraction, seeds[0], epochs, part)


def _runs(settings: Sequence[Setting], seeds: Sequence[int], facts: dict[str, Any]) -> list[PlannedRun]:
    """Each method with each seed, once; an id is the hash of all that determines a result: labels do not."""
    runs: dict[str, PlannedRun] = {}
    for setting in settings:
        for seed in seeds:
            name = identify({**facts, "method": describe_setting(setting), "seed": seed})
            labels = (*(runs[name].labels if name in runs else ()), setting.label)
            runs[name] = PlannedRun(name, tuple(dict.fromkeys(labels)), setting, seed)
    return list(runs.values())


def describe_settings(study: Study, epochs: int) -> dict[str, Any]:
    """The part of a record about training that is the same for all runs of a fleet."""
    protocol = study.protocol
    return {
        "structure": "hclt",
        "units": protocol.units,
        "epochs": epochs,
        "batch_size": protocol.batch_size,
        "step": protocol.step_name,
        "precision": "float32",
    }


def _most_runs(data: Dataset, units: int) -> int:
    weights = int(data.train.shape[1]) * units**2
    return min(MOST_RUNS, max(1, WEIGHTS_AT_ONCE // weights))
