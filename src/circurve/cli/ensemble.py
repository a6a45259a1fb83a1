"""`circurve fit --ensemble` and `circurve sweep --ensemble`: mixtures of circuits and the tables of their members."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

import typer

from circurve.cli.failures import INTERRUPTED, NotSavedError
from circurve.cli.loading import SplitRecord, common_schema, parts_of
from circurve.cli.measures import degree_of_overfitting, log_likelihoods, sharpness
from circurve.cli.methods import describe_method
from circurve.cli.options import Structure
from circurve.cli.saving import Target
from circurve.cli.show import (
    NOTES,
    measured,
    number,
    print_facts,
    print_json,
    print_scores,
    print_table,
    progress,
    sizes,
)
from circurve.cli.signals import hold_signals, release_signals
from circurve.cli.training import Job, describe_job, missing_scores
from circurve.data import Dataset
from circurve.errors import OptionError
from circurve.learning import Ensemble, Vanilla, fit_ensemble
from circurve.learning.ensemble_options import EnsembleKeywords, split_options
from circurve.learning.members import plan_members
from circurve.learning.recipe import BEST_STEP
from circurve.model import Model
from circurve.words import counted

__all__ = [
    "EnsembleJob",
    "MixtureOptions",
    "check_ensemble",
    "check_rows",
    "describe_members",
    "describe_scores",
    "finish_ensemble",
    "print_members",
    "train_ensemble",
    "typed_options",
]

Parts: TypeAlias = tuple[Dataset, SplitRecord | None]
"""The data, and how they were split."""

OWN_DEFAULTS = ("epochs", "batch_size", "step_size", "pseudocount", "init")
"""Options whose defaults are those of `fit_ensemble`, unless they are typed."""


def typed_options(context: typer.Context) -> frozenset[str]:
    """The options of OWN_DEFAULTS that the user typed."""
    sources = {name: context.get_parameter_source(name) for name in OWN_DEFAULTS}
    return frozenset(name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE")


@dataclass(frozen=True)
class MixtureOptions:
    """Which members `fit --ensemble` trains, and how training continues on the mixture."""

    members: int
    units: tuple[int, ...]
    boosted: int
    joint_epochs: int

    def __post_init__(self) -> None:
        if self.members < 1:
            raise OptionError(f"--ensemble must be a whole number >= 1, not {self.members}")
        for name, value in (("--boosted", self.boosted), ("--joint-epochs", self.joint_epochs)):
            if value < 0:
                raise OptionError(f"{name} must be a whole number >= 0, not {value}")
        if self.boosted >= self.members:
            raise OptionError(f"--boosted {self.boosted} must be less than --ensemble {self.members}")


def check_ensemble(mixture: MixtureOptions, job: Job, plot: Path | None, units: str) -> None:
    """Refuse options that an ensemble does not have; units: as typed."""
    if units == "auto":
        raise OptionError("--units auto is for one circuit; with --ensemble list the numbers: --units 32,100")
    if len(mixture.units) > mixture.members:
        raise OptionError(f"--units lists {len(mixture.units)} numbers, but --ensemble is only {mixture.members}")
    if job.shape.structure is not Structure.hclt:
        raise OptionError(f"--ensemble mixes trees of --structure hclt; leave out --structure {job.shape.structure}")
    if not isinstance(job.runs[0].method, Vanilla):
        raise OptionError(
            "--ensemble trains its members by --method vanilla; for other methods use circurve sweep --ensemble"
        )
    if plot is not None or job.settings.track:
        raise OptionError("--plot and --track show the epochs of one run; leave them out with --ensemble")


def check_rows(mixture: MixtureOptions, data: Dataset) -> None:
    """Refuse options that need validation rows if there are none."""
    if data.valid is None and (mixture.boosted or mixture.joint_epochs):
        raise OptionError("--boosted and --joint-epochs need validation rows: pass --valid FILE or a share in --split")


@dataclass(frozen=True)
class EnsembleJob:
    """What `fit --ensemble` trains."""

    mixture: MixtureOptions
    job: Job
    typed: Collection[str]
    """The options whose defaults are not those of `fit_ensemble`."""

    def options(self) -> EnsembleKeywords:
        """The options of `fit_ensemble`; those that were not typed have its defaults."""
        run = self.job.runs[0]
        options: Any = dict(self.job.settings.options())
        for name in ("epochs", "batch_size", "step_size"):
            if name not in self.typed:
                del options[name]
        if "pseudocount" in self.typed:
            options["pseudocounts"] = run.method.pseudocount
        if "init" in self.typed:
            options["init"] = run.init
        return cast("EnsembleKeywords", {**asdict(self.mixture), "seed": run.seed, **options})


def train_ensemble(asked: EnsembleJob, data: Dataset) -> Ensemble:
    """`fit_ensemble` on the parts of a data set; without validation rows, weights are found by cross-validation."""
    settings = asked.job.settings
    progress(f"{sizes(data)}\n{counted(asked.mixture.members, 'member')}, {settings.device}, {settings.precision}")
    schema = data.train.schema or common_schema(data, {})
    valid = False if data.valid is None else data.valid
    return fit_ensemble(data.train, valid=valid, schema=schema, **asked.options())


def describe_scores(model: Model, data: Dataset, memory_budget: int | None = None) -> dict[str, Any]:
    """The log-likelihoods of a model on the parts of a data set, its sharpness and its degree of overfitting.

    A signal leaves out those that are not known yet, and `notes` says so.
    """
    parts, means, trace = parts_of(data), dict[str, float](), None
    missing: list[str] = []
    try:
        with release_signals():
            for part, table in parts.items():
                means[part] = float(log_likelihoods(model, table, part, memory_budget).mean())
            trace = sharpness(model, data.train, memory_budget)
    except KeyboardInterrupt:
        missing = [*(f"{part}_ll" for part in parts if part not in means), "sharpness"]
    train, valid, test = (means.get(part) for part in ("train", "valid", "test"))
    return {
        "train_ll": train,
        "valid_ll": valid,
        "test_ll": test,
        "sharpness": trace,
        "dof": degree_of_overfitting(train, valid),
        **({NOTES: [missing_scores(missing)]} if missing else {}),
    }


def describe_members(made: Ensemble) -> dict[str, Any]:
    """The fields of a report about the members of a mixture."""
    return {
        "weighting": made.weighting,
        "held_out_ll": made.valid_ll,
        "members": [asdict(member) for member in made.members],
        "left_out": list(made.left_out),
    }


def describe_ensemble(asked: EnsembleJob, parts: Parts, made: Ensemble) -> dict[str, Any]:
    """All fields of the report of `fit --ensemble` but `seconds` and `out`.

    `units` and `pseudocount` list what the members have; `epochs` is that of the member that was trained longest. The
    members have their own, and the epoch whose parameters each has: the mixture as a whole has none.
    """
    (data, split), job = parts, asked.job
    plans = plan_members(split_options(asked.options())[0])
    own = [plans[member.run] for member in made.members]
    members = [
        {**asdict(member), "units": plan.units, "pseudocount": plan.run.method.pseudocount, "seed": plan.run.seed}
        for member, plan in zip(made.members, own, strict=True)
    ]
    scores = describe_scores(made.model, data, job.settings.memory_budget)
    chosen = {name: value for name, value in asdict(asked.mixture).items() if name != "members"}
    falling = {} if "step_size" in asked.typed else {"step_size": f"cosine:{BEST_STEP.start:g}:{BEST_STEP.end:g}"}
    return {
        "command": "fit",
        **describe_job(job, data, split),
        **falling,
        **describe_method(job.runs[0].method),
        **{name: sorted({member[name] for member in members}) for name in ("units", "pseudocount")},
        "seed": job.runs[0].seed,
        "epochs": max(member.epochs or 0 for member in made.members),
        "epoch": None,
        **scores,
        "stopped": "interrupted" if NOTES in scores else made.stopped,
        "failure": None,
        "ensemble": {**describe_members(made), "members": members, **chosen},
        "parameters": made.model.circuit.describe().parameters,
        "device": str(made.model.device),
        "plot": None,
    }


def finish_ensemble(asked: EnsembleJob, parts: Parts, target: Target, as_json: bool) -> None:
    """Train, write the model, print the report, and say how it ended."""
    started = time.perf_counter()
    made = train_ensemble(asked, parts[0])
    out, failure = None, None
    with hold_signals() as held:
        report = describe_ensemble(asked, parts, made)
        report["seconds"] = round(time.perf_counter() - started, 3)
        try:
            out = target.save(made.model, report)
        except NotSavedError as error:
            failure = error
    report["out"] = None if out is None else str(out)
    print_json(report) if as_json else _print(report)
    if failure is not None:
        raise failure
    if held.came or report["stopped"] == "interrupted":
        kept = target.in_words("the mixture trained so far", out, "there is no --out")
        print(f"circurve: interrupted; {kept}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)


def print_members(ensemble: Mapping[str, Any]) -> None:
    """One row for each member of a mixture."""
    rows = [
        (member["name"], f"{member['weight']:.3f}", number(member["valid_ll"]), number(member["adds"]))
        for member in ensemble["members"]
    ]
    print_table(
        ("member", "weight", "valid", "adds"),
        rows,
        "members; adds: log-likelihood that the mixture loses without the member",
    )


def _print(report: dict[str, Any]) -> None:
    print_members(report["ensemble"])
    units = ", ".join(str(size) for size in report["units"])
    title = f"{report['dataset']}: mixture of {len(report['ensemble']['members'])} hclt, {units} units"
    print_scores(title, report)
    left = len(report["ensemble"]["left_out"])
    print_facts(
        {
            **measured(report),
            "left out": f"{counted(left, 'member')} of negligible weight" if left else None,
            "held-out rows": number(report["ensemble"]["held_out_ll"]) if report["valid_ll"] is None else None,
            "time": f"{report['seconds']:.1f} s on {report['device']}",
            "saved in": report["out"],
        }
    )
