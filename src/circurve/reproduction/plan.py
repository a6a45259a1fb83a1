"""From a study to its data and its fleets: all runs that share training rows, in one training.

And where numbers come from: command, data, seeds, versions and hardware, without names or paths of the machine.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from circurve._version import __version__
from circurve.data import Dataset, Table, load_data, split_rows, take_fraction
from circurve.data.catalogue import is_debd
from circurve.errors import OptionError
from circurve.graph import Circuit
from circurve.learning import Gated, Vanilla
from circurve.learning.fleet_size import runs_at_once
from circurve.learning.gates import gate_name
from circurve.model import as_device
from circurve.reproduction.records import Record, identify, is_failed
from circurve.reproduction.spec import Setting, Study, describe_setting
from circurve.structures import hclt, infer_families
from circurve.structures.hclt import Leaves

__all__ = [
    "Fleet",
    "PlannedRun",
    "choice_note",
    "circuit_for",
    "describe",
    "describe_data",
    "describe_environment",
    "digest",
    "grid_notes",
    "load_all",
    "load_study_data",
    "plan_study",
    "portable_command",
    "provenance",
    "training_rows",
]

HELD_OUT = 0.1
"""The share of the rows that is held out for validation or test where there are no such rows."""

MEASURED_SETTINGS = ("rows", "variables", "parameters")
"""What the settings of a record contain in addition to those of the study."""

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
        """Proportional to the arithmetic of training this many of its runs with one circuit size."""
        return float(runs * self.epochs * self.rows * self.data.train.shape[1])


def load_study_data(name_or_path: str, data_dir: Path | None, memory_budget: int | None = None) -> Dataset:
    """Load a data set; validation and test rows that it lacks are a tenth each of its rows, the same every time."""
    data = load_data(name_or_path, data_dir, memory_budget=memory_budget)
    shares = [HELD_OUT if part is None else 0.0 for part in (data.valid, data.test)]
    if not any(shares):
        return data
    train, held, tested = split_rows(data.train, shares[0], shares[1], seed=0)
    valid, test = held if data.valid is None else data.valid, tested if data.test is None else data.test
    return replace(data, train=train, valid=valid, test=test)


def training_rows(data: Dataset, fraction: float, seed: int) -> Table:
    """A share of the training rows, at least one. For one seed, smaller shares are parts of larger ones."""
    return data.train if fraction == 1 else take_fraction(data.train, fraction, seed)


def circuit_for(
    data: Dataset, train: Table, units: int, leaves: Leaves = "own", memory_budget: int | None = None
) -> Circuit:
    """The hidden Chow-Liu tree of the training rows; its families also take the values of the other parts."""
    families = infer_families(*_parts(data), memory_budget=memory_budget)
    return hclt(train, units, families, leaves=leaves, memory_budget=memory_budget)


def digest(data: Dataset) -> str:
    """SHA-256 of the shapes and values of all parts; whole numbers count the same in every integer type."""
    found = hashlib.sha256()
    for part in _parts(data):
        kind = "<i8" if part.dtype.kind in "iub" else "<f8"
        found.update(f"{part.shape}{kind}".encode())
        found.update(np.ascontiguousarray(part, dtype=kind).data)
    return found.hexdigest()


def describe_data(data: Dataset, known: str) -> Record:
    """What a record says about its data: their hash, and whether they are those of DEBD's files."""
    return {"data_hash": known, "debd": is_debd(data)}


def _parts(data: Dataset) -> list[Table]:
    return [part for part in (data.train, data.valid, data.test) if part is not None]


def load_all(study: Study, known: Mapping[str, Dataset] | None = None) -> dict[str, Dataset]:
    """The data sets of a study as it names them; `known` ones are not loaded again."""
    found, budget = dict(known or {}), study.memory_budget
    for name in study.datasets:
        if name not in found:
            found[name] = load_study_data(name, study.data_dir, budget)
    return {name: found[name] for name in study.datasets}


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
            raise OptionError(
                f"datasets: two of them have the name '{data.name}', and records are stored by name; rename one of them"
            )
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
            most = study.max_runs or runs_at_once(weights, study.memory_budget)
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


def describe_environment(command: str | None, device: str) -> Record:
    """Everything about the machine and the software that a result should say."""
    return {
        "command": command,
        "version": __version__,
        "commit": _commit(),
        "hardware": _hardware(str(as_device(device))),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def portable_command(words: Sequence[str]) -> str:
    """A command line as one string; of absolute paths only the last part is kept, because the rest has no meaning on
    other machines."""
    return " ".join(Path(word).name if os.path.isabs(word) else word for word in words)


@lru_cache
def _commit() -> str | None:
    """The commit of a source checkout, with + if files of the package were changed; None for an installed package."""
    package = Path(__file__).resolve().parents[1]
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    head = _git(package, "rev-parse", "--short=12", "HEAD")
    return head if head is None or not _git(package, "status", "--porcelain", "--", ".") else f"{head}+"


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


@lru_cache
def _hardware(device: str) -> str:
    if device.startswith("cuda"):
        return str(torch.cuda.get_device_name(device))
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = [f"model name: {platform.processor()}"] if platform.processor() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    threads = torch.get_num_threads()
    return f"{names[0] if names else platform.machine()}, {threads} thread{'s' if threads > 1 else ''}"


def provenance(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Everything that is needed to run it again, from the records themselves."""
    hashes = {record["dataset"]: record["environment"]["data_hash"] for record in records}
    timed = [record for record in records if record["seconds"] is not None]
    lines = [
        f"Seeds: {', '.join(str(seed) for seed in sorted({record['seed'] for record in records}))}.",
        f"Data (SHA-256): {', '.join(f'{name} {digest[:12]}' for name, digest in hashes.items())}.",
        f"Training time: {sum(record['seconds'] for record in timed):,.0f} s for {len(timed):,} runs.",
    ]
    if len(timed) < len(records):
        lines.append(f"Times of {len(records) - len(timed):,} interrupted runs, which were continued, are not known.")
    failed = [_failed_run(record) for record in records if is_failed(record)]
    left_out = f"{len(failed):,} of {len(records):,} runs failed in training and are left out: {'; '.join(failed)}."
    return [*([left_out] if failed else []), *describe(*(record["environment"] for record in records)), *lines]


def _failed_run(record: Mapping[str, Any]) -> str:
    """`dna, gated with mu 0.1, seed 3, in epoch 12: Sum 'root': a parameter is not finite`."""
    mu, share = record["method"]["mu"], record["fraction"]
    strength = "" if mu is None else f" with mu {mu:g}" if isinstance(mu, int | float) else f" with mu {mu}"
    rows = "" if share == 1 else f" {share:.0%}"
    failure = record["failure"]
    where = f"{record['dataset']}{rows}, {record['label']}{strength}, seed {record['seed']}"
    return f"{where}, in epoch {failure['epoch']}: {failure['reason']}"


def describe(*environments: Record) -> list[str]:
    """Command, hardware and software, each different one once."""
    lines = {
        "Command": [f"`{e['command']}`" for e in environments if e["command"]],
        "Hardware": [e["hardware"] for e in environments],
        "Software": [_software(e) for e in environments],
    }
    return [f"{name}: {'; '.join(dict.fromkeys(texts))}." for name, texts in lines.items() if texts]


def choice_note(study: Study) -> str:
    """How mu and whatever else competes was chosen."""
    epoch = "" if study.protocol.choose_epoch == "last" else " at each run's best epoch"
    starts = "starts, " if len(study.starts) > 1 else ""
    return (
        f"Of several strengths mu (and {starts}pseudocounts or gates) the one with the best mean validation "
        f"log-likelihood over seeds{epoch} is taken, for each data set and method on its own; test rows play no part."
    )


def grid_notes(study: Study) -> list[str]:
    """What validation chose from, for each method with a choice."""
    found: dict[str, list[str]] = {}
    for label in study.labels:
        settings = [setting for setting in study.settings if setting.label == label]
        if len(settings) > 1:
            found.setdefault(_grid(settings), []).append(label)
    return [f"{', '.join(labels)}: {grid}." for grid, labels in found.items()]


def _grid(settings: Sequence[Setting]) -> str:
    """`mu of 0.01, 0.1, from a random or prototypes start`; a start or gate that all of them have is left out."""
    methods = [setting.method for setting in settings]
    values = dict.fromkeys(m.pseudocount if isinstance(m, Vanilla) else m.mu for m in methods)
    gates = dict.fromkeys(gate_name(m.gate) for m in methods if isinstance(m, Gated))
    starts = dict.fromkeys(setting.init for setting in settings)
    text = f"{'pseudocounts' if isinstance(methods[0], Vanilla) else 'mu'} of {', '.join(f'{v:g}' for v in values)}"
    text += f", gated by {' or '.join(gates)}" if len(gates) > 1 else ""
    added = dict.fromkeys(m.pseudocount for m in methods if not isinstance(m, Vanilla))
    text += f", with a pseudocount of {' or '.join(f'{v:g}' for v in added)}" if any(added) else ""
    return text + (f", from a {' or '.join(starts)} start" if len(starts) > 1 else "")


def _software(environment: Record) -> str:
    commit = f" ({environment['commit']})" if environment["commit"] else ""
    return f"circurve {environment['version']}{commit}, torch {environment['torch']}, Python {environment['python']}"
