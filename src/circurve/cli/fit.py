"""`circurve fit`: train a model, report its log-likelihoods, write its file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from circurve.cli.commands.training import Fit
from circurve.cli.ensemble import (
    EnsembleJob,
    MixtureOptions,
    check_ensemble,
    check_rows,
    finish_ensemble,
    typed_options,
)
from circurve.cli.failures import INTERRUPTED, NotSavedError
from circurve.cli.files import check_plot, check_report, check_target, save_plot
from circurve.cli.loading import SplitRecord, files_of
from circurve.cli.methods import (
    build_methods,
    describe_method,
    method_label,
    parse_gate,
    parse_mu,
)
from circurve.cli.models import WITHOUT_UNITS, Shape
from circurve.cli.parse import parse_units
from circurve.cli.saving import Target
from circurve.cli.show import NOTES, measured, number, print_facts, print_json, print_scores, print_table, significant
from circurve.cli.signals import hold_signals, release_signals
from circurve.cli.training import (
    SCORES,
    STOPPED,
    Job,
    Sized,
    describe_job,
    describe_run,
    known,
    load_for,
    train,
    train_sizes,
)
from circurve.cli.workers import join_workers
from circurve.data import Dataset, is_streamed
from circurve.errors import CircurveError, OptionError
from circurve.learning import FitResult, Run
from circurve.learning.units import Tried
from circurve.words import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["fit"]

SHOWN_EPOCHS = 12
"""How many epochs of the history the table shows at most."""


HISTORY = "history; train and sharpness are means over batches, each before its M-step"


def fit(typed: Fit) -> None:
    """Train a model on a data set or a file."""
    join_workers()
    mus = None if typed.mu is None else [parse_mu(typed.mu)]
    gates = None if typed.gate is None else [parse_gate(typed.gate)]
    run = Run(
        build_methods([typed.method], mus, gates, typed.method_options)[0], typed.training.seed, init=typed.init.value
    )
    sizes = parse_units(typed.units)
    job = Job.of([Shape(typed.structure, size, typed.leaves) for size in sizes][-1], [run], typed.training, typed.track)
    held = typed.holding.held_out()
    source = typed.reading.source(typed.data, job.settings.memory_budget)
    files = (*files_of(source), held.valid, held.test)
    if typed.out is not None:
        check_target("--out", typed.out, files)
    check_plot(typed.plot, (*files, typed.out))
    check_report(typed.report, (*files, typed.out, typed.plot))
    if typed.plot is not None and typed.training.epochs == 0:
        raise OptionError("--plot draws log-likelihoods by epoch, but --epochs 0 has no epoch; use --epochs 1 or more")
    mixture = (
        None if typed.ensemble is None else MixtureOptions(typed.ensemble, sizes, typed.boosted, typed.joint_epochs)
    )
    if mixture is not None:
        check_ensemble(mixture, job, typed.plot, typed.units)
        if typed.report is not None:
            raise OptionError(
                "--report shows the training of one run; with --ensemble write the model with --out, then "
                "circurve curvature MODEL DATA --report FILE"
            )
    elif typed.boosted or typed.joint_epochs:
        raise OptionError("--boosted and --joint-epochs are for mixtures: add --ensemble N, or leave them out")
    elif len(sizes) > 1 and typed.structure in WITHOUT_UNITS:
        raise OptionError(f"--units has no effect with --structure {typed.structure}; leave it out")
    parts, record = load_for(job, source, held, 1 if mixture is not None else len(sizes))
    if is_streamed(parts.train) and mixture is not None:
        raise OptionError("--ensemble resamples rows, which must be in memory; it cannot read a stream")
    if is_streamed(parts.train) and typed.report is not None:
        raise OptionError("--report draws all rows, which must be in memory; it cannot read a stream")
    target = Target(typed.out, typed.training.overwrite, typed.training.checkpoint)
    if mixture is not None:
        check_rows(mixture, parts)
    if typed.out is None:
        print("circurve: warning: no --out FILE, so the model will not be saved", file=sys.stderr)
    if mixture is not None:
        return finish_ensemble(
            EnsembleJob(mixture, job, typed_options(typed.context)), (parts, record), target, typed.as_json
        )
    sized = train_sizes(job, sizes, parts) if len(sizes) > 1 else Sized(job, train(job, parts)[0], ())
    with hold_signals() as signals:
        facts = describe(sized.job, parts, sized.result, record)
        if sized.path:
            facts["units_path"] = [_size(tried, sized.job.shape.units) for tried in sized.path]
        page = None if typed.report is None else partial(_write_page, sized.result, parts, typed.report)
        written = write(sized.result, facts, Outputs(target, typed.plot, typed.report, page))
    finish(written, target, signals.came, typed.as_json)


@dataclass(frozen=True)
class Outputs:
    """The files to write; None for a file that was not requested."""

    model: Target
    plot: Path | None
    report: Path | None = None
    write_page: Callable[[], object] | None = field(default=None, compare=False)


def describe(job: Job, data: Dataset, result: FitResult, split: SplitRecord | None = None) -> dict[str, Any]:
    """All fields of the report except `out`; `path` if mu or the gate was chosen, `history` if it was requested."""
    report = {
        "command": "fit",
        **describe_job(job, data, split),
        **describe_run(result, data, job.settings.memory_budget),
        "parameters": result.model.circuit.describe().parameters,
        "seconds": round(result.seconds, 3),
        "device": str(result.model.device),
    }
    if result.path:
        report["path"] = [_candidate(candidate, result) for candidate in result.path]
    if job.settings.track:
        report["history"] = [{**asdict(record), "dof": record.dof} for record in result.history]
    return report


@dataclass(frozen=True)
class Written:
    """The report with the files that were written, and the first error of those that were not."""

    report: dict[str, Any]
    failure: Exception | None
    learned: bool
    """Whether a step was made; an earlier model is better than an untrained one."""


def write(result: FitResult, report: dict[str, Any], outputs: Outputs) -> Written:
    """Write the files of a training. A signal only stops the page of the report."""
    learned = report["stopped"] != "interrupted" or result.epoch > 0
    if not learned:
        outputs = Outputs(replace(outputs.model, out=None), None)
    out, plot, page, failures = None, outputs.plot, outputs.report, list[Exception]()
    try:
        out = outputs.model.save(result.model, report)
    except NotSavedError as error:
        failures = [error]
    try:
        if plot is not None:
            save_plot(plot, lambda: _draw(result, f"{report['dataset']}: {method_label(report)}"))
    except (CircurveError, OSError) as error:
        plot, failures = None, [*failures, error]
    try:
        if outputs.write_page is not None and NOTES in report:  # what it would show is not known
            page = None
        elif outputs.write_page is not None:
            with release_signals():
                outputs.write_page()
    except (CircurveError, OSError) as error:
        page, failures = None, [*failures, error]
    except KeyboardInterrupt:
        page, report = None, {**report, "stopped": "interrupted"}
    files = {"out": out, "plot": plot, "report": page}
    report = {**report, **{name: None if path is None else str(path) for name, path in files.items()}}
    return Written(report, next(iter(failures), None), learned)


def finish(written: Written, target: Target, interrupted: bool, as_json: bool) -> None:
    """Print the report, and say how the training ended; interrupted: by a signal while files were written."""
    report, learned = written.report, written.learned
    print_json(report) if as_json else _print(report)
    if written.failure is not None:
        raise NotSavedError(str(written.failure)) from written.failure
    if interrupted or report["stopped"] == "interrupted":
        out, reason = report["out"], "there is no --out" if learned else "because no step of the training was complete"
        kept = target.in_words("the model trained so far", None if out is None else Path(out), reason)
        epochs = counted(report["epochs"], "complete epoch")
        print(f"circurve: interrupted after {epochs}; {kept}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)


def _write_page(result: FitResult, data: Dataset, path: Path) -> None:
    from circurve.report import ReportOptions, report

    report(result, data.train, path, valid=data.valid, options=ReportOptions(title=data.name))


def _draw(result: FitResult, title: str) -> Figure:
    from circurve.plots import training_curves

    return training_curves({title: result})


def _candidate(candidate: FitResult, chosen: FitResult) -> dict[str, Any]:
    method = describe_method(candidate.run.method)
    return {
        **{name: method[name] for name in ("mu", "gate")},
        **{name: None if candidate.failed else known(getattr(candidate, name)) for name in SCORES},
        "epoch": candidate.epoch,
        "chosen": candidate.model is chosen.model,
        "stopped": candidate.stopped,
    }


def _size(tried: Tried, chosen: int) -> dict[str, Any]:
    """One of several numbers of units; its scores are None if it failed."""
    scores = {name: known(getattr(tried.best, name, None)) for name in SCORES}
    epoch = None if tried.best is None else tried.best.epoch
    return {"units": tried.units, **scores, "epoch": epoch, "chosen": tried.units == chosen}


def _print_sizes(path: list[dict[str, Any]]) -> None:
    rows = [
        (
            "*" if size["chosen"] else "",
            f"{size['units']}",
            number(size["valid_ll"]),
            number(size["test_ll"]),
            "failed" if size["epoch"] is None else f"{size['epoch']}",
        )
        for size in path
    ]
    print_table(("", "units", "valid", "test", "epoch"), rows, "units; * is the best by validation log-likelihood")


def _print(report: dict[str, Any]) -> None:
    if "units_path" in report:
        _print_sizes(report["units_path"])
    if "history" in report:
        _print_history(report["history"])
    if "path" in report:
        _print_path(report["path"])
    title = f"{report['dataset']}: {report['structure']}, {counted(report['units'], 'unit')}, {method_label(report)}"
    print_scores(title, report)
    print_facts(
        {
            **measured(report),
            "epochs": _epochs(report),
            "time": f"{report['seconds']:.1f} s on {report['device']}",
            "saved in": report["out"],
            "picture": report["plot"],
            "page": report["report"],
        }
    )


def _epochs(report: dict[str, Any]) -> str:
    """How many epochs are complete, why there are no more, and which one the model is of."""
    partial = ", which is not complete" if report["epoch"] > report["epochs"] else ""
    stopped = STOPPED[report["stopped"]]
    return f"{report['epochs']:,} ({stopped}), model of epoch {report['epoch']:,}{partial}"


def _print_path(path: list[dict[str, Any]]) -> None:
    """The candidates for mu and the gate, with a mark at the one that was taken."""
    gated = any(candidate["gate"] for candidate in path)
    rows = [
        (
            "*" if candidate["chosen"] else "",
            f"{candidate['mu']:g}",
            *((candidate["gate"],) if gated else ()),
            number(candidate["valid_ll"]),
            number(candidate["test_ll"]),
            "failed" if candidate["stopped"] == "failed" else f"{candidate['epoch']}",
        )
        for candidate in path
    ]
    heads = ("", "mu", *(("gate",) if gated else ()), "valid", "test", "epoch")
    print_table(heads, rows, "candidates; * is the best by validation log-likelihood", texts=["gate"])


def _print_history(history: list[dict[str, Any]]) -> None:
    """About a dozen epochs, evenly spread, with the last; `gate` is the median gate, `> 1/2` the share above a half."""
    gated = any(record["gates"] for record in history)
    every = max(1, -(-len(history) // SHOWN_EPOCHS))
    rows = [
        (
            f"{record['epoch']}",
            *(number(record[key], 3) for key in ("train_ll", "valid_ll", "test_ll")),
            number(record["dof"]),
            significant(record["sharpness"]),
            *((significant(record["gates"]["median"], 2), f"{record['gates']['above_half']:.1%}") if gated else ()),
        )
        for record in history[::-1][::every][::-1]
    ]
    heads = ("epoch", "train", "valid", "test", "DoF", "sharpness", *(("gate", "> 1/2") if gated else ()))
    print_table(heads, rows, HISTORY)
