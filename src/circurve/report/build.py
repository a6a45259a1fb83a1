"""`report`: a model and data in, one self-contained page out."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any

import numpy as np
import torch

from circurve._version import __version__
from circurve.budget import Need
from circurve.curvature import Curvature
from circurve.curvature import curvature as measure
from circurve.data import Stream, Table
from circurve.data.need import check_data
from circurve.errors import DataError, OptionError
from circurve.learning.checks import check_choice
from circurve.learning.history import FitResult, FleetResult
from circurve.learning.local_curvature import ESTIMATORS
from circurve.learning.methods import describe
from circurve.model import Model
from circurve.queries.target import Target
from circurve.report.columns import column_infos
from circurve.report.conditionals import CHUNK, conditionals
from circurve.report.explorer import explorer, sum_labels
from circurve.report.findings import Evidence, Score, conclude
from circurve.report.marginals import Marginals, marginals
from circurve.report.page import render
from circurve.report.playground import small_circuit, small_enough
from circurve.report.record import Conditionals, Finding, Page, SmallCircuit, Tile
from circurve.report.states import table_bytes
from circurve.report.surprises import Scored, surprises
from circurve.report.training import Histories, training_runs
from circurve.whole_files import replace_file
from circurve.words import counted

__all__ = ["Report", "ReportOptions", "conclusion", "report"]

SCORE_BYTES, PARAMETER_BYTES, PAGE_BYTES = 40, 56, 16 << 20
"""What a row's scores take, a parameter (in float64, in the sums of the curvature, on the page), and the text."""


@dataclass(frozen=True)
class ReportOptions:
    """How a page is made."""

    title: str | None = None
    """The heading; by default it says how many columns the model has."""

    estimator: str = "geometric"
    """The local curvature t that is shown: geometric cannot be made up by edges of weight near zero."""

    part: str = "training"
    """What the rows are: "training", "validation", "test", or "" if it is not known. Only training rows are compared
    with validation rows."""

    surprising_rows: int = 10
    max_parameters: int = 300_000
    """The page computes conditional distributions itself for circuits of at most this many numbers."""

    max_weights: int = 120_000
    """Weights of sums that the page can list; of larger circuits it has the largest weights of the nodes that add most
    to the trace."""

    def __post_init__(self) -> None:
        check_choice("estimator", self.estimator, ESTIMATORS)
        for name in ("surprising_rows", "max_parameters", "max_weights"):
            value: object = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise OptionError(f"{name} must be a whole number >= 0, not {value!r}")


@dataclass(frozen=True, repr=False)
class Report:
    """A page: its data, and the HTML text made from them."""

    page: Page
    html: str = field(repr=False)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The three most important things to know about the model."""
        return self.page.findings

    def save(self, path: str | PathLike[str]) -> None:
        """Write the page to one file, all or nothing.

        Parameters
        ----------
        path : str or path
            An .html file; one that exists is replaced.

        Raises
        ------
        FileAccessError
            If the file cannot be written.
        """
        replace_file(path, self.html.encode("utf-8"))

    def __repr__(self) -> str:
        return f"<Report: {self.page.title}, {len(self.html) / 1e6:.1f} MB>"

    def _repr_html_(self) -> str:
        listed = "".join(f"<li><b>{html.escape(f.headline)}</b> {html.escape(f.text)}</li>" for f in self.findings)
        return f"<p><b>{html.escape(self.page.title)}</b>: save(path) writes the whole page.</p><ul>{listed}</ul>"


def report(  # noqa: PLR0913 - each parameter is an option
    model: Model | FitResult,
    data: Any,
    path: str | PathLike[str] | None = None,
    *,
    valid: Any = None,
    history: Histories | None = None,
    options: ReportOptions | None = None,
    memory_budget: int | None = None,
) -> Report:
    """A page to look at: one self-contained HTML file about a model, which needs no network.

    It opens with the three most important things to know, in words, and continues with training curves, an explorer of
    the circuit's curvature, every column's distribution against the data, conditional distributions, and the most
    surprising rows.

    Parameters
    ----------
    model : Model or FitResult
        What to report on. A FitResult also brings its training curves.
    data : array, data frame or Table
        The rows to measure, in any form that `Model.log_prob` takes; best the training rows.
    path : path, optional
        Where to write the page. Without it, call `save` of what is returned.
    valid : array, data frame or Table, optional
        Validation rows, to see whether the model overfits. Of a FitResult that set some rows of `data` aside in
        training, these are taken.
    history : FitResult or FleetResult, optional
        Training curves to show in place of the model's own, such as those of all runs of a fleet.
    options : ReportOptions, optional
        Title, estimator of t, limits on what the page holds.
    memory_budget : int, optional
        Memory limit for data, measurements and page, in bytes; checked before memory is allocated.

    Returns
    -------
    Report
        With the text (`html`), the data (`page`) and the conclusion (`findings`).

    Raises
    ------
    OptionError
        If the model has several outputs, or an option is out of range.
    DataError
        If the data do not fit the model, or no row has a probability above zero.

    Examples
    --------
    >>> import circurve as cc
    >>> digits = cc.load_dataset("digits")
    >>> result = cc.fit(cc.hclt(digits.train, 4), digits.train, valid=digits.valid, epochs=2)
    >>> page = cc.report(result, digits.train, valid=digits.valid)
    >>> [finding.kind for finding in page.findings]
    ['fit', 'sharpness', 'advice']
    """
    chosen = options or ReportOptions()
    check_data("report", memory_budget, data, *(() if valid is None else (valid,)))
    subject = _subject(model, data, valid, history)
    found = make_page(subject, chosen, report_need(subject).left(memory_budget))
    made = Report(found, render(found))
    if path is not None:
        made.save(path)
    return made


@dataclass(frozen=True)
class _Subject:
    """What a page is about, with data in the model's schema."""

    model: Model
    data: Table
    valid: Table | None
    result: FitResult | None
    history: Histories | None


def _subject(given: Model | FitResult, data: Any, valid: Any, history: Histories | None) -> _Subject:
    if isinstance(given, FleetResult):
        raise OptionError("report is about one model: pass one result of the fleet, such as fleet.best()")
    if not isinstance(given, Model | FitResult):
        raise OptionError(f"report takes a Model or a FitResult, not {type(given).__name__}")
    if not isinstance(history, FitResult | FleetResult | None):
        raise OptionError(f"history must be a FitResult or a FleetResult, not {type(history).__name__}")
    result = given if isinstance(given, FitResult) else None
    model = result.model if result is not None else given
    assert isinstance(model, Model)
    if model.circuit.outputs != 1:
        raise OptionError(f"report needs a model with one output; this one has {model.circuit.outputs}")
    table = model.align(data, unseen="missing")
    held = None if valid is None else model.align(valid, unseen="missing")
    if held is None and result is not None and len(result.rows.get("valid", ())):
        kept, aside = result.rows["train"], result.rows["valid"]
        if len(table) == len(kept) + len(aside):
            table, held = table.rows(kept), table.rows(aside)
    if not len(table):
        raise DataError("report data: there are no rows")
    return _Subject(model, table, held, result, history if history is not None else result)


def conclusion(
    model: Model,
    curv: Curvature,
    data: Table | Stream,
    *,
    valid: Table | Stream | None = None,
    options: ReportOptions | None = None,
    memory_budget: int | None = None,
) -> tuple[Finding, ...]:
    """The findings of `report` alone, for a curvature that was measured on the rows of `data`."""
    chosen = options or ReportOptions()
    shown = curv.with_local(chosen.estimator)
    scored = _scored(model, data, valid, chosen.part, memory_budget)
    return conclude(_evidence(model, scored, curv, shown, chosen.part))


def report_need(subject: _Subject) -> Need:
    """The data, their scores, the parameters in float64, the sums of the curvature, and the text of the page."""
    model, rows = subject.model, len(subject.data) + (0 if subject.valid is None else len(subject.valid))
    tables = [subject.data, *([] if subject.valid is None else [subject.valid])]
    parts = {
        "data": sum(table.nbytes for table in tables),
        "scores": SCORE_BYTES * rows,
        "parameters": PARAMETER_BYTES * model.program.parameters,
        "page": PAGE_BYTES,
        "tables over states": table_bytes(model),
    }
    return Need("report", parts, "pass fewer rows", CHUNK * model.backend.bytes_per_sample(True))


def make_page(subject: _Subject, options: ReportOptions, memory_budget: int | None = None) -> Page:
    """All numbers of a page; memory_budget: bytes for the buffers of its measurements."""
    model = subject.model
    scored = _scored(model, subject.data, subject.valid, options.part, memory_budget)
    curv = measure(model, subject.data) if memory_budget is None else _curvature(subject, memory_budget)
    shown = curv.with_local(options.estimator)
    exact = model.params.to(dtype=torch.float64)
    target = replace(Target.of(model.program, exact), memory_budget=memory_budget)
    compared = marginals(model, target, subject.data)
    return Page(
        title=options.title or f"Model of {model.circuit.variables:,} columns",
        about=_about(subject, options.part),
        version=__version__,
        columns=column_infos(model, target),
        tiles=_tiles(subject, scored, shown),
        findings=conclude(_with_training(_evidence(model, scored, curv, shown, options.part), subject.result)),
        training=training_runs(subject.history),
        explorer=explorer(model, curv, options.estimator, options.max_weights),
        marginals=compared.found,
        playground=_playground(model, compared, subject.data, options.max_parameters),
        surprises=surprises(model, {_part_name(name): part for name, part in scored.items()}, options.surprising_rows),
        notes=_notes(subject),
    )


def _curvature(subject: _Subject, memory_budget: int) -> Curvature:
    """The curvature, whose data and sums the need of the page has counted already."""
    counted = subject.data.nbytes + PARAMETER_BYTES * subject.model.program.parameters
    return measure(subject.model, subject.data, memory_budget=memory_budget + counted)


def _scored(
    model: Model, data: Table | Stream, valid: Table | Stream | None, part: str, memory_budget: int | None = None
) -> dict[str, Scored]:
    """The measured rows first, then validation rows, unless these are the measured ones."""
    tables = {part: data}
    if valid is not None and part != "validation":
        tables["validation"] = valid
    return {
        name: Scored(table, np.asarray(_log_prob(model, table, memory_budget), dtype=np.float64))
        for name, table in tables.items()
    }


def _log_prob(model: Model, table: Table | Stream, memory_budget: int | None) -> Any:  # (N,)
    """The scores; the need of the page has counted the data and result of a table already."""
    if memory_budget is None or isinstance(table, Stream):
        return model.log_prob(table, memory_budget=memory_budget)
    counted = 8 * len(table) * (len(model.schema) + model.circuit.outputs)
    return model.log_prob(table, memory_budget=memory_budget + counted)


def _part_name(part: str) -> str:
    return f"{part} rows" if part else "rows"


def _playground(model: Model, compared: Marginals, table: Table, limit: int) -> SmallCircuit | Conditionals:
    if small_enough(model, compared.target, limit):
        return small_circuit(model, compared)
    return conditionals(model, table)


def score_of(scored: Scored) -> Score:
    """The mean of the rows of probability above zero."""
    rows = len(scored.possible)
    return Score(scored.mean, scored.standard_error, rows, len(scored.log_prob) - rows)


def _evidence(model: Model, scored: dict[str, Scored], curv: Curvature, shown: Curvature, part: str) -> Evidence:
    held = scored.get("validation") if part == "training" else None
    return Evidence(
        part=part,
        measured=score_of(scored[part]),
        held_out=None if held is None else score_of(held),
        discrete=model.schema.discrete,
        curvature=shown,
        floor_share=curv.floor_share,
        labels=sum_labels(model),
    )


def _with_training(evidence: Evidence, result: FitResult | None) -> Evidence:
    return evidence if result is None else replace(evidence, history=result.history, epoch=result.epoch)


def _about(subject: _Subject, part: str) -> str:
    """What this model is, in one or two sentences."""
    circuit, model = subject.model.circuit, subject.model
    kinds = [type(family).__name__ for family in circuit.families]
    families = _listed([f"{kinds.count(kind):,} {kind}" for kind in dict.fromkeys(kinds)])
    counts = circuit.describe()
    sums = f"{counted(counts.sum_units, 'sum node')} in {counted(len(model.program.sums), 'layer')}"
    first = (
        f"A probabilistic circuit over {counted(circuit.variables, 'column')} ({families}) with {sums} and "
        f"{counted(counts.parameters, 'parameter')}, measured on {len(subject.data):,} {part} rows."
    ).replace("  ", " ")
    if subject.result is None:
        return first
    run, epochs = subject.result.run, len(subject.result.history)
    kept = "" if subject.result.epoch == epochs else f" (parameters of epoch {subject.result.epoch:,})"
    return f"{first} Trained by EM ({describe(run.method)}) for {counted(epochs, 'epoch')}{kept} with seed {run.seed}."


def _listed(words: Sequence[str]) -> str:
    shown = [*words[:3], *(["others"] if len(words) > 3 else [])]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def _tiles(subject: _Subject, scored: dict[str, Scored], curv: Curvature) -> tuple[Tile, ...]:
    counts = subject.model.circuit.describe()
    tiles = [
        Tile(f"{name or 'measured'} score", f"{part.mean:,.2f}".replace("-", "−"), "mean log-likelihood, nats")
        for name, part in scored.items()
    ]
    if len(curv):
        tiles.append(Tile("sharpness", f"{curv.trace:,.4g}", "mean trace of the Hessian"))
    tiles += [
        Tile("rows", f"{len(subject.data):,}", "measured"),
        Tile("sum nodes", f"{counts.sum_units:,}", f"{counted(counts.sum_depth, 'level')} deep"),
        Tile("parameters", f"{counts.parameters:,}", counted(counts.edges, "weight")),
    ]
    return tuple(tiles)


def _notes(subject: _Subject) -> tuple[str, ...]:
    notes = []
    if subject.data.observed is not None:
        share = 1 - float(subject.data.observed.float().mean())
        notes.append(
            f"{share:.1%} of the cells are missing, or hold values that were not seen in training; the model sums "
            f"them out."
        )
    return tuple(notes)
