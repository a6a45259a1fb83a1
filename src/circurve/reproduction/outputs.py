"""`reproduce`: from the name of a table or figure to its files, with all training it needs; and reading them back."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from circurve.data import Dataset
from circurve.errors import OptionError, needs
from circurve.reproduction.comparisons import (
    BASELINES_FILE,
    IMPROVEMENTS,
    LEAD_COLUMNS,
    SHARES,
    baseline_records,
    with_baseline,
)
from circurve.reproduction.leaderboard import FILE as LEADERBOARD_FILE
from circurve.reproduction.leaderboard import LEADERBOARD, check_options, leaderboard_records
from circurve.reproduction.leaderboard_report import draw_leaderboard, findings, leaderboard_lines, leaderboard_report
from circurve.reproduction.plan import (
    MEASURED_SETTINGS,
    describe,
    describe_environment,
    describe_settings,
    load_all,
    provenance,
)
from circurve.reproduction.records import FILE_NAME, Record, RecordFile, RunRecord, as_run, identify, read_records
from circurve.reproduction.runner import run_study
from circurve.reproduction.spec import (
    FAIR,
    PAPER,
    PROTOCOLS,
    RECORD_PROTOCOL,
    ReproduceOptions,
    Study,
    describe_setting,
    describe_use,
)
from circurve.reproduction.study_report import STUDIES, TableSpec
from circurve.reproduction.summary import Chosen, choose_rows
from circurve.reproduction.table import FORMATS, Report
from circurve.reproduction.table_estimators import report_estimators, study_estimators
from circurve.reproduction.table_pseudocounts import report_pseudocounts, study_pseudocounts
from circurve.reproduction.tables import paper_study, report_a, report_b
from circurve.reproduction.tables_beyond import report_d, report_readings, study_d, study_readings
from circurve.whole_files import replace_file

if TYPE_CHECKING:
    from circurve.reproduction.figures import FigureSpec

__all__ = [
    "ALL",
    "ALL_STUDIES",
    "FIGURE_NAMES",
    "PAPER_TABLES",
    "TABLES",
    "FigureOutput",
    "Outputs",
    "Shelf",
    "reproduce",
    "targets_of",
    "usual_protocol",
]


PAPER_TABLES = {
    "table-a": TableSpec(partial(paper_study, "table-a", tuple(IMPROVEMENTS)), report_a),
    "table-b": TableSpec(partial(paper_study, "table-b", (1.0,)), report_b),
    "table-c": TableSpec(partial(paper_study, "table-c", SHARES), report_b),
    "table-d": TableSpec(study_d, report_d),
    "estimators": TableSpec(study_estimators, report_estimators),
}
MORE_TABLES = {
    "pseudocounts": TableSpec(study_pseudocounts, report_pseudocounts),
    "readings": TableSpec(study_readings, report_readings),
}
TABLES = {**PAPER_TABLES, **MORE_TABLES, **STUDIES}
FIGURE_NAMES = tuple(f"fig-{number}" for number in range(1, 8))
ALL, ALL_STUDIES = "all", "studies"


@dataclass(frozen=True)
class FigureOutput:
    """A figure that was drawn."""

    name: str
    title: str
    reading: str
    findings: tuple[str, ...]
    """What was measured, in sentences."""

    notes: tuple[str, ...]
    """How it came about."""


@dataclass(frozen=True)
class Outputs:
    """The results of a reproduction."""

    reports: list[Report] = field(default_factory=list)
    figures: list[FigureOutput] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)


def targets_of(names: Sequence[str]) -> tuple[str, ...]:
    """The tables and figures of these names, each once; `all` is every one of the paper, `studies` every study."""
    several = {ALL: (*PAPER_TABLES, *FIGURE_NAMES), ALL_STUDIES: tuple(STUDIES)}
    known = (*TABLES, *FIGURE_NAMES, *several, LEADERBOARD)
    for name in names:
        if name not in known:
            raise OptionError(f"no table or figure '{name}'; there are {', '.join(known)}")
    if LEADERBOARD in names and set(names) != {LEADERBOARD}:
        raise OptionError(f"{LEADERBOARD} has its own protocol: run it in a separate call")
    return tuple(dict.fromkeys(name for given in names for name in several.get(given, (given,))))


def usual_protocol(targets: Sequence[str]) -> str:
    """The protocol of targets where none is named."""
    if LEADERBOARD in targets:
        return RECORD_PROTOCOL
    return FAIR.name if all(name in STUDIES for name in targets) else PAPER.name


def reproduce(
    targets: Sequence[str],
    options: ReproduceOptions,
    *,
    resume: bool = False,
    command: str | None = None,
    tell: Callable[[Report | FigureOutput], None] = lambda _: None,
    progress: Callable[[str], None] = lambda _: None,
) -> Outputs:
    """Train what is needed and write the files of each table and figure into `options.out`.

    resume: continue with the records in the folder; without it, a folder with records is refused. tell: called with
    each table and figure as soon as its files are written. progress: called with a line of text from time to time.
    """
    targets = targets_of(targets)
    if targets == (LEADERBOARD,):
        return _leaderboard(options, resume=resume, command=command, tell=tell, progress=progress)
    if options.protocol == RECORD_PROTOCOL:
        raise OptionError(
            f"protocol {RECORD_PROTOCOL} is only for {LEADERBOARD}; for {targets[0]} use {', '.join(PROTOCOLS)}"
        )
    outputs = Outputs()
    known = [] if resume else read_records(options.out / FILE_NAME)
    if known:
        raise _occupied(options.out, known, targets)
    data: dict[str, Dataset] = {}
    for name in targets:  # load all data before any training, so that a missing file is not found hours later
        study = (TABLES[name] if name in TABLES else _figure_spec(name)).study(options)
        data |= {} if study is None else load_all(study, data)
    with RecordFile(options.out) as file:
        file.check_complete()
        work = _Work(options, file, command, progress, data)
        for name in targets:
            output: Report | FigureOutput
            if name in TABLES:
                output, contents = _table(name, work)
                outputs.reports.append(output)
            else:
                output, contents = _figure(name, work)
                outputs.figures.append(output)
            for ending, content in contents.items():
                outputs.files.append(options.out / f"{name}.{ending}")
                replace_file(outputs.files[-1], content)
            tell(output)
    return outputs


def _leaderboard(
    options: ReproduceOptions,
    *,
    resume: bool,
    command: str | None,
    tell: Callable[[Report | FigureOutput], None],
    progress: Callable[[str], None],
) -> Outputs:
    """Train what is needed and write table and figure of the leaderboard."""
    with needs("plots", "a figure"):
        from circurve.reproduction.figures import figure_files  # noqa: PLC0415 - matplotlib is slow to import

    check_options(options)
    known = [] if resume else read_records(options.out / LEADERBOARD_FILE)
    if known:
        raise _occupied(options.out, known, (LEADERBOARD,))
    with RecordFile(options.out, LEADERBOARD_FILE) as file:
        records = leaderboard_records(options, file, command=command, progress=progress)
    report, lines = leaderboard_report(records), leaderboard_lines(records)
    contents = {ending: render(report).encode() for ending, render in FORMATS.items()}
    contents |= {"json": _document({**_about(report, options, records), "findings": findings(lines)})}
    contents |= figure_files(draw_leaderboard(lines), {"Title": report.title, "Description": report.title})
    outputs = Outputs(reports=[report])
    for ending, content in contents.items():
        outputs.files.append(options.out / f"{LEADERBOARD}.{ending}")
        replace_file(outputs.files[-1], content)
    tell(report)
    return outputs


def _occupied(folder: Path, records: Sequence[Record], targets: Sequence[str]) -> OptionError:
    there = sorted({record["study"] for record in records})
    found = f"{folder} holds {len(records)} runs of {', '.join(there)}"
    if set(there) <= set(targets):
        return OptionError(f"{found}: add --resume to continue them, or name another folder with --out")
    return OptionError(f"{found}: name another folder with --out, or add --resume to keep them and add to them")


@dataclass(frozen=True)
class _Work:
    """What all tables and figures of one call share."""

    options: ReproduceOptions
    file: RecordFile
    command: str | None
    progress: Callable[[str], None]
    data: dict[str, Dataset]

    def run(self, study: Study) -> list[RunRecord]:
        return run_study(study, self.file, command=self.command, data=self.data, engine=self.options.engine)


def _table(name: str, work: _Work) -> tuple[Report, dict[str, bytes]]:
    study = TABLES[name].study(work.options)
    records = work.run(study)
    report = TABLES[name].report(study, records)
    if name in LEAD_COLUMNS:
        with RecordFile(work.options.out, BASELINES_FILE) as file:
            report = with_baseline(report, baseline_records(study, load_all(study, work.data), file))
    files = {ending: render(report).encode() for ending, render in FORMATS.items()}
    return report, {**files, "json": _document(_about(report, work.options, records))}


def _about(report: Report, options: ReproduceOptions, records: Sequence[Mapping[str, Any]]) -> Record:
    """The table as plain values, with the options from which `Shelf` makes its study again."""
    kept = {name: getattr(options, name) for name in ("protocol", "epochs", "mu", "gate", "units", "quick")}
    names = tuple(dict.fromkeys(record["dataset"] for record in records))
    seeds = tuple(sorted({record["seed"] for record in records}))
    return {
        "name": report.name,
        "title": report.title,
        "options": {**kept, "datasets": names, "seeds": seeds},
        **({"findings": report.findings} if report.findings else {}),
        "notes": report.notes,
        "values": [{key: _plain(value) for key, value in row.items()} for row in report.values],
    }


def _plain(value: object) -> object:
    """JSON has neither NaN nor infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _document(about: Record) -> bytes:
    return (json.dumps(about, allow_nan=False) + "\n").encode()


def _figure_spec(name: str) -> FigureSpec:
    with needs("plots", f"{name}, a figure,"):
        from circurve.reproduction.figures import FIGURES  # noqa: PLC0415 - matplotlib is slow to import

    return FIGURES[name]


def _figure(name: str, work: _Work) -> tuple[FigureOutput, dict[str, bytes]]:
    spec = _figure_spec(name)
    study = spec.study(work.options)
    records = [] if study is None else work.run(study)
    data = spec.data(work.options, records, work.progress)
    words = [] if study is None else [study.protocol.in_words()]
    origin = provenance(records) if records else describe(describe_environment(work.command, work.options.device))
    output = FigureOutput(name, spec.title, spec.reading, tuple(data.get("notes", ())), (*words, *origin))
    return output, {**spec.files(data), "json": _document({**asdict(output), "data": data})}


def records_of(study: Study, records: Iterable[RunRecord]) -> list[RunRecord]:
    """The records of a study under its own labels, in the order of its settings; missing ones are left out.

    They are found by the fields of the records themselves: no data are needed for that.
    """
    labels: dict[str, list[str]] = {}
    for setting in study.settings:
        labels.setdefault(identify(describe_setting(setting)), []).append(setting.label)
    order = {label: place for place, label in enumerate(study.labels)}
    found = [
        as_run({**record, **describe_use(study, label)})
        for record in records
        if _fits(study, record)
        for label in dict.fromkeys(labels.get(identify(record["method"]), ()))
    ]
    return sorted(found, key=lambda r: (study.datasets.index(r["dataset"]), r["fraction"], order[r["label"]]))


def _fits(study: Study, record: RunRecord) -> bool:
    settings = record["settings"]
    wanted = describe_settings(study, study.protocol.epochs_for(settings["rows"]))
    named = {name: value for name, value in settings.items() if name not in MEASURED_SETTINGS}
    return (
        record["dataset"] in study.datasets
        and record["fraction"] in study.fractions
        and record["seed"] in study.seeds
        and named == wanted
    )


@dataclass(frozen=True, eq=False)
class Shelf:
    """All records of one protocol, and the tables that were made of them."""

    records: tuple[RunRecord, ...]
    options: Mapping[str, ReproduceOptions]
    """Table -> the options it was made with."""

    baselines: tuple[Record, ...] = ()

    @classmethod
    def load(cls, folder: Path) -> Shelf:
        """What `circurve reproduce --out FOLDER` left there; the records may be compressed since."""
        records = [record for ending in ("", ".gz") for record in read_records(folder / f"{FILE_NAME}{ending}")]
        options: dict[str, ReproduceOptions] = {}
        for table in TABLES:
            path = folder / f"{table}.json"
            if path.exists():
                stored: Record = json.loads(path.read_text(encoding="utf-8"))["options"]
                stored |= {name: tuple(value) for name, value in stored.items() if isinstance(value, list)}
                options[table] = ReproduceOptions(**stored)
        return cls(tuple(map(as_run, records)), options, tuple(read_records(folder / BASELINES_FILE)))

    def study(self, table: str) -> Study:
        """The study of a table that was made."""
        return TABLES[table].study(self.options[table])

    def of_table(self, table: str) -> list[RunRecord]:
        """The records of a table; none if it was not made."""
        return records_of(self.study(table), self.records) if table in self.options else []

    def report(self, table: str) -> Report | None:
        """A table, or None if it was not made."""
        records = self.of_table(table)
        return with_baseline(TABLES[table].report(self.study(table), records), self.baselines) if records else None

    def chosen(self, table: str, fraction: float = 1.0) -> dict[str, dict[str, Chosen]]:
        """Data set -> label -> what validation chose."""
        return choose_rows(self.of_table(table), fraction)
