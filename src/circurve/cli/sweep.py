"""`circurve sweep`: methods, strengths and seeds in one fleet, compared by their means over seeds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import typer

from circurve.cli.commands.training import Sweep
from circurve.cli.ensemble import describe_members, describe_scores, print_members
from circurve.cli.failures import INTERRUPTED, NotSavedError
from circurve.cli.files import check_folder, check_plot, check_target, save_model, save_plot, write_csv
from circurve.cli.loading import SplitRecord, files_of
from circurve.cli.methods import build_methods, parse_gates, parse_methods, parse_mus
from circurve.cli.models import Shape
from circurve.cli.saving import elsewhere, how_to_continue, not_saved, place_for
from circurve.cli.show import NOTES, number, print_facts, print_json, print_table, progress, significant, wide
from circurve.cli.signals import hold_signals, release_signals
from circurve.cli.training import Job, describe_job, describe_runs, learned, load_for, missing_scores, train
from circurve.cli.workers import join_workers
from circurve.data import Dataset
from circurve.errors import CircurveError, OptionError
from circurve.learning import FitResult, FleetResult, Gated, Run, Vanilla
from circurve.learning.gates import top_fraction
from circurve.model import Model
from circurve.words import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["sweep"]

MEASURES = ("train_ll", "valid_ll", "test_ll", "dof", "sharpness")
COLUMNS = (
    *("method", "gate", "mu", "seed", *MEASURES, "epochs", "epoch", "stopped"),
    *("estimator", "ratio_floor", "gate_memory", "simplex", "penalty", "mu_scale", "pseudocount", "out"),
)
"""The columns of the table of runs."""

Mixed: TypeAlias = tuple[Model, dict[str, Any]]
"""The model of a mixture, and what the report says about it."""


def sweep(typed: Sweep) -> None:
    """Compare methods and strengths over several seeds, all trained at once."""
    join_workers()
    if typed.seeds < 1:
        raise OptionError(f"--seeds must be a whole number >= 1, not {typed.seeds}")
    names = parse_methods(typed.methods)
    regularised, mus = any(name.value != "vanilla" for name in names), parse_mus(typed.mu)
    chosen_gates = None if typed.gates is None else parse_gates(typed.gates)
    settings = build_methods(names, mus if regularised else None, chosen_gates, typed.method_options)
    runs = [Run(method, typed.training.seed + i) for method in settings for i in range(typed.seeds)]
    job = Job.of(Shape(typed.structure, typed.units, typed.leaves), runs, typed.training)
    held = typed.holding.held_out()
    source = typed.reading.source(typed.data, job.settings.memory_budget)
    files = (*files_of(source), held.valid, held.test)
    if typed.csv is not None:
        check_target("--csv", typed.csv, files)
    check_plot(typed.plot, (*files, typed.csv))
    if typed.plot is not None and not regularised:
        raise OptionError("--plot draws log-likelihoods by mu, and vanilla has no mu; add global or gated to --methods")
    if typed.out_dir is not None:
        check_folder("--out-dir", typed.out_dir)
    parts, record = load_for(job, source, held)
    if typed.ensemble and parts.valid is None:
        raise OptionError("--ensemble finds its weights on validation rows: pass --valid FILE or a share in --split")
    progress(
        f"{counted(len(settings), 'setting')} x {counted(typed.seeds, 'seed')} = {counted(len(runs), 'run')} at once"
    )
    outputs = Outputs(typed.csv, typed.out_dir, typed.plot, record, typed.ensemble, typed.training.overwrite)
    finish(job, parts, train(job, parts, typed.engine.value), outputs, typed.as_json)


@dataclass(frozen=True)
class Outputs:
    """What to write in addition to the report."""

    csv: Path | None
    folder: Path | None
    plot: Path | None
    split: SplitRecord | None = None
    """How a single table was split; the model files keep it."""

    ensemble: bool = False
    """Whether to mix all runs into one model."""

    overwrite: bool = False
    """Whether an interrupted sweep may replace existing models."""


def finish(job: Job, data: Dataset, results: FleetResult, outputs: Outputs, as_json: bool) -> None:
    """Write the files, print the report, and say how it ended; the report is printed even if a file cannot be
    written."""
    with hold_signals() as held:
        report, failure = _write(job, data, results, outputs)
    print_json(report) if as_json else _print(report)
    if failure is not None:
        raise failure if isinstance(failure, NotSavedError) else NotSavedError(str(failure)) from failure
    if held.came or NOTES in report or any(run["stopped"] == "interrupted" for run in report["runs"]):
        more = how_to_continue(job.settings.checkpoint)
        print(f"circurve: interrupted; the numbers are those of the models trained so far{more}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)


def _write(
    job: Job, data: Dataset, results: FleetResult, outputs: Outputs
) -> tuple[dict[str, Any], CircurveError | OSError | NotSavedError | None]:
    """The report, with the files that were written, and why the others were not."""
    shared = describe_job(job, data, outputs.split)
    described = describe_runs(results, data, job.settings.memory_budget)
    notes = list(dict.fromkeys(note for record in described for note in record.pop(NOTES, ())))
    records = [{**record, "name": results.name(number)} for number, record in enumerate(described)]
    failure: CircurveError | OSError | NotSavedError | None = None
    mixed: Mixed | None = None
    if outputs.ensemble:
        try:
            with release_signals():
                if notes:
                    raise KeyboardInterrupt
                mixed = _mixed(results, data)
                notes = mixed[1].pop(NOTES, [])
        except KeyboardInterrupt:
            notes = [*notes, missing_scores(["ensemble"])]
    try:
        if outputs.folder is not None:
            trained = Trained(results, records, mixed, shared)
            records, mixed = _saved_or_kept(outputs, trained, job.settings.checkpoint)
        if outputs.csv is not None:
            write_csv(outputs.csv, COLUMNS, ([record.get(column) for column in COLUMNS] for record in records))
        if outputs.plot is not None:
            save_plot(outputs.plot, lambda: _draw(results))
    except (CircurveError, OSError, NotSavedError) as error:
        failure, outputs = error, Outputs(None, None, None)
    seeds = list(dict.fromkeys(run.seed for run in job.runs))
    report = {
        "command": "sweep",
        **shared,
        "seeds": seeds,
        "settings": summarise([records[i : i + len(seeds)] for i in range(0, len(records), len(seeds))]),
        "runs": records,
        "ensemble": None if mixed is None else mixed[1],
        "parameters": results[0].model.circuit.describe().parameters,
        "seconds": round(results[0].seconds, 3),
        "device": str(results[0].model.device),
        "csv": None if outputs.csv is None else str(outputs.csv),
        "plot": None if outputs.plot is None else str(outputs.plot),
        "out_dir": None if outputs.folder is None else str(outputs.folder),
        **({NOTES: notes} if notes else {}),
    }
    return report, failure


@dataclass(frozen=True)
class Trained:
    """Everything that a sweep writes."""

    results: FleetResult
    records: list[dict[str, Any]]
    mixed: Mixed | None
    shared: dict[str, Any]

    def save(self, folder: Path, overwrite: bool) -> tuple[list[dict[str, Any]], Mixed | None]:
        """Write the models of all runs that learned something and did not fail; the records then say where they are."""
        folder.mkdir(parents=True, exist_ok=True)
        records = [
            {**record, "out": self._save(folder, result, record, overwrite) if learned(result) else None}
            for result, record in zip(self.results, self.records, strict=True)
        ]
        if self.mixed is None:
            return records, None
        model, about = self.mixed
        interrupted = any(result.stopped == "interrupted" for result in self.results)
        report = {**self.shared, **about, "stopped": "interrupted" if interrupted else "epochs"}
        out = place_for(folder / "ensemble.safetensors", {"epochs": 0, **report}, overwrite)
        save_model(out, model, report)
        return records, (model, {**about, "out": str(out)})

    def _save(self, folder: Path, result: FitResult, record: dict[str, Any], overwrite: bool) -> str:
        """Write the model of one run under a name that says what it is."""
        gate = "" if record["gate"] is None else f"-{record['gate'].replace(':', '_')}"
        strength = "" if record["mu"] is None else f"-mu{_exact(record['mu'])}"
        path = folder / f"{record['method']}{gate}{strength}-seed{record['seed']}.safetensors"
        report = {**self.shared, **record}
        out = place_for(path, report, overwrite)
        save_model(out, result.model, report)
        return str(out)


def _saved_or_kept(
    outputs: Outputs, trained: Trained, checkpoint: str | PathLike[str] | None
) -> tuple[list[dict[str, Any]], Mixed | None]:
    """Write all models to the folder; if that fails, to another one, with an error that names it."""
    assert outputs.folder is not None
    try:
        return trained.save(outputs.folder, outputs.overwrite)
    except (CircurveError, OSError) as error:
        kept = elsewhere(lambda folder: trained.save(folder, True))
        raise NotSavedError(not_saved(error, None if kept is None else str(kept), checkpoint)) from error


def _mixed(results: FleetResult, data: Dataset) -> Mixed:
    """The mixture of all runs, and the fields of its report."""
    made = results.ensemble(data.valid)
    return made.model, {**describe_members(made), **describe_scores(made.model, data), "out": None}


def _draw(results: FleetResult) -> Figure:
    """A plot by the share of penalised nodes if the gates differ only in that; otherwise a plot by mu."""
    from circurve.plots import node_selection, strengths

    methods = [result.run.method for result in results]
    penalised = [method for method in methods if not isinstance(method, Vanilla)]
    by_share = all(isinstance(m, Gated) and isinstance(m.gate, top_fraction) for m in penalised)
    one_mu = len({getattr(method, "mu", None) for method in penalised}) == 1
    compared = len(penalised) < len(methods) and results[0].test_ll is not None
    return node_selection(results) if by_share and one_mu and compared else strengths(results)


def summarise(groups: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Mean and standard deviation over the runs of each setting; `chosen` marks the best mu of a method and gate.

    Runs that failed are left out and counted in `failed`.
    """
    settings: list[dict[str, Any]] = []
    for group in groups:
        first = group[0]
        whole = [record for record in group if record.get("stopped") != "failed"]
        spread = {name: _spread([record[name] for record in whole]) for name in MEASURES}
        about = {name: first[name] for name in ("method", "gate", "mu")}
        settings.append({**about, **spread, "failed": len(group) - len(whole), "chosen": False})
    rivals: dict[tuple[str, str | None], list[dict[str, Any]]] = {}
    for setting in settings:
        rivals.setdefault((setting["method"], setting["gate"]), []).append(setting)
    for alike in rivals.values():
        scored = [setting for setting in alike if setting["valid_ll"]["mean"] is not None]
        if alike[0]["mu"] is not None and scored:
            max(scored, key=lambda setting: setting["valid_ll"]["mean"])["chosen"] = True
    return settings


def _spread(values: list[float | None]) -> dict[str, float | None]:
    """The mean, and the standard deviation with n - 1; None where they are not known or not numbers."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return {"mean": None, "std": None}
    deviates = len(known) > 1 and bool(np.isfinite(known).all())
    return {"mean": float(np.mean(known)), "std": float(np.std(known, ddof=1)) if deviates else None}


def _exact(number: float) -> str:
    """The shortest text that is this number and no other."""
    short = f"{number:g}"
    return short if float(short) == number else repr(number)


def _print(report: dict[str, Any]) -> None:
    settings = report["settings"]
    several = len({setting["gate"] for setting in settings} - {None}) > 1
    rows = [
        (
            setting["method"] + (f" {setting['gate']}" if several and setting["gate"] else ""),
            ("* " if setting["chosen"] else "") + ("-" if setting["mu"] is None else f"{setting['mu']:g}"),
            *(_cell(setting[name], lambda value: number(value, 3)) for name in MEASURES[:3]),
            _cell(setting["dof"], number),
            _cell(setting["sharpness"], lambda value: significant(value, 3)),
        )
        for setting in settings
    ]
    count = len(report["seeds"])
    seeds = "1 seed" if count == 1 else f"mean and standard deviation over {counted(count, 'seed')}"
    title = f"{report['dataset']}: {report['structure']}, {counted(report['units'], 'unit')}; {seeds}"
    print_table(("method", "mu", "train", "valid", "test", "DoF", "sharpness"), rows, title)
    mixed = report["ensemble"]
    if mixed is not None:
        print_members(mixed)
    together = counted(len(report["runs"]), "run")
    marked = any(setting["chosen"] for setting in settings)
    print_facts(
        {
            "*": "best mu of its method by mean validation log-likelihood" if marked else None,
            "failed": _failures(report["runs"]),
            "mixture": None if mixed is None else _mixture_in_words(mixed),
            "parameters": f"{report['parameters']:,}",
            "note": "; ".join(report.get(NOTES, ())) or None,
            "time": f"{report['seconds']:.1f} s on {report['device']} for {together} at once",
            "runs in": report["csv"],
            "models in": report["out_dir"],
            "picture": report["plot"],
        }
    )


def _mixture_in_words(mixed: dict[str, Any]) -> str:
    """`of 4 runs: train -2.1, valid -2.3, test -2.2; in folder/ensemble.safetensors`."""
    scores = ", ".join(
        f"{part} {number(mixed[f'{part}_ll'], 3)}"
        for part in ("train", "valid", "test")
        if mixed[f"{part}_ll"] is not None
    )
    saved = "not saved, because there is no --out-dir" if mixed["out"] is None else f"in {mixed['out']}"
    return f"of {len(mixed['members'])} runs: {scores}; {saved}"


def _failures(runs: list[dict[str, Any]]) -> str | None:
    """How many runs failed, and each of them by name; None if none did."""
    failed = [f"{run['name']} {run['failure']}" for run in runs if run["stopped"] == "failed"]
    if not failed:
        return None
    return f"{len(failed)} of {len(runs)} runs, left out of the means: {'; '.join(failed)}"


def _cell(spread: dict[str, float | None], shown: Callable[[float | None], str]) -> str:
    """A mean and its deviation side by side, or one below the other where the terminal is narrow."""
    mean, deviation = shown(spread["mean"]), shown(spread["std"])
    return mean if spread["std"] is None else f"{mean} ± {deviation}" if wide() else f"{mean}\n± {deviation}"
