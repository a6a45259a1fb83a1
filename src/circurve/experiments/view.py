"""Records of a study, found among others by what they say of themselves: no data are needed for that."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from circurve.experiments.options import ReproduceOptions
from circurve.experiments.outputs import TABLES
from circurve.experiments.records import FILE_NAME, identify, read_records
from circurve.experiments.spec import Study, describe_setting, describe_use
from circurve.experiments.summary import Chosen, choose_all
from circurve.experiments.table import Report

__all__ = ["Shelf", "records_of"]

Record = dict[str, Any]


def records_of(study: Study, records: Iterable[Record]) -> list[Record]:
    """The records of a study under its own labels, in the order of its settings; those it lacks are just not there."""
    labels: dict[str, list[str]] = {}
    for setting in study.settings:
        labels.setdefault(identify(describe_setting(setting)), []).append(setting.label)
    order = {label: place for place, label in enumerate(study.labels)}
    found = [
        record | describe_use(study, label)
        for record in records
        if _fits(study, record)
        for label in dict.fromkeys(labels.get(identify(record["method"]), ()))
    ]
    return sorted(found, key=lambda r: (study.datasets.index(r["dataset"]), r["fraction"], order[r["label"]]))


def _fits(study: Study, record: Record) -> bool:
    protocol, settings = study.protocol, record["settings"]
    trained = tuple(settings[name] for name in ("units", "batch_size", "step", "epochs"))
    epochs = protocol.epochs_for(settings["rows"])
    wanted = (protocol.units, protocol.batch_size, protocol.step_name, epochs)
    return (
        record["dataset"] in study.datasets
        and record["fraction"] in study.fractions
        and record["seed"] in study.seeds
        and trained == wanted
    )


@dataclass(frozen=True, eq=False)
class Shelf:
    """All records of one protocol, and the tables that were made of them."""

    records: tuple[Record, ...]
    options: Mapping[str, ReproduceOptions]
    """Table -> the options it was made with."""

    @classmethod
    def load(cls, folder: Path) -> Shelf:
        """What `circurve reproduce --out FOLDER` left there; the records may be compressed since."""
        records = [record for ending in ("", ".gz") for record in read_records(folder / f"{FILE_NAME}{ending}")]
        paths = {table: folder / f"{table}.json" for table in TABLES}
        return cls(tuple(records), {table: _options(path) for table, path in paths.items() if path.exists()})

    def study(self, table: str) -> Study:
        """The study of a table that was made."""
        return TABLES[table].study(self.options[table])

    def of_table(self, table: str) -> list[Record]:
        """The records of a table; none if it was not made."""
        return records_of(self.study(table), self.records) if table in self.options else []

    def report(self, table: str) -> Report | None:
        """A table, or None if it was not made."""
        records = self.of_table(table)
        return TABLES[table].report(self.study(table), records) if records else None

    def chosen(self, table: str, fraction: float = 1.0) -> dict[str, dict[str, Chosen]]:
        """Data set -> label -> what validation chose."""
        found: dict[str, dict[str, Chosen]] = {}
        for item in choose_all(self.of_table(table)):
            if item.fraction == fraction:
                found.setdefault(item.dataset, {})[item.label] = item
        return found


def _options(path: Path) -> ReproduceOptions:
    stored: Record = json.loads(path.read_text())["options"]
    options: Record = {name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()}
    return ReproduceOptions(**options)
