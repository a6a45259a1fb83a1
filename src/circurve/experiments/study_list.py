"""The studies of curvature by name: which runs each needs, and its report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from circurve.experiments import curvature_studies as specs
from circurve.experiments import study_report as reports
from circurve.experiments.records import Record
from circurve.experiments.spec import ReproduceOptions, Study
from circurve.experiments.table import Report

__all__ = ["STUDIES", "TableSpec"]


@dataclass(frozen=True)
class TableSpec:
    """One table of the paper, or beside it: the study that it needs, and what it says about the records."""

    study: Callable[[ReproduceOptions], Study]
    report: Callable[[Study, Sequence[Record]], Report]


def _plain(study: Callable[[str, ReproduceOptions], Study], name: str, title: str, about: str) -> TableSpec:
    return TableSpec(partial(study, name), partial(reports.report_plain, f"Study: {title}", about))


def _models(name: str, report: Callable[[Study, Sequence[Record]], Report]) -> TableSpec:
    return TableSpec(partial(specs.clean_study, name), report)


STUDIES = {
    "study-clean": _plain(specs.clean_study, "study-clean", "all rows, as they are", "All training rows, clean."),
    "study-scarce": _plain(
        specs.scarce_study, "study-scarce", "scarce data", "Small shares of the training rows, drawn by the seed."
    ),
    "study-corrupted": _plain(
        specs.corrupted_study,
        "study-corrupted",
        "corrupted training rows",
        f"In {specs.CORRUPTED_ROWS:.0%} of the training and validation rows, {specs.CORRUPTED_CELLS:.0%} of the cells "
        "have the value of another row of the same column; test rows are clean.",
    ),
    "study-selected": _plain(
        specs.selected_study,
        "study-selected",
        "training rows selected by a column",
        "Of the training and validation rows with the rarer value of the most balanced column, one in ten is left; "
        "test rows are as they were.",
    ),
    "study-test-noise": _models("study-test-noise", reports.report_test_noise),
    "study-units": _plain(
        specs.large_study, "study-units", "far too many units", "All training rows, clean; many units and few epochs."
    ),
    "study-ensembles": _models("study-ensembles", reports.report_ensembles),
    "study-stopping": _models("study-stopping", reports.report_stopping),
    "study-weights": _models("study-weights", reports.report_weights),
}
"""Those by the protocol `fair`; study-clean, -test-noise, -ensembles, -stopping and -weights share their runs."""
