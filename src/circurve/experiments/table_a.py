"""Table A: how much test NLL, degree of overfitting and sharpness improve over vanilla, by share of the data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from circurve.experiments.options import ReproduceOptions
from circurve.experiments.paper_numbers import IMPROVEMENTS
from circurve.experiments.provenance import choice_note, grid_notes, provenance
from circurve.experiments.spec import Study, make_study, standard_settings
from circurve.experiments.summary import Chosen, choose_all, spread
from circurve.experiments.table import Cell, Number, Report, Table
from circurve.experiments.table_b import chooses_more_than_mu, setting_text

__all__ = ["MEASURES", "improvement", "report_a", "study_a"]

FRACTIONS = tuple(IMPROVEMENTS)
METHODS = ("global", "gated")
MEASURES = ("test_nll", "dof", "sharpness")
CHOICES = ("mu", "gate", "pseudocount", "init")
COLUMNS = (
    *("dataset", "fraction", "label", *MEASURES, "dof_points", *CHOICES),
    *("vanilla_pseudocount", "vanilla_init", "seeds"),
)

Record = dict[str, Any]
Case = tuple[str, float, str]


def study_a(options: ReproduceOptions) -> Study:
    """Vanilla, global and gated from 1 % of the training rows to all of them."""
    return make_study("table-a", options, standard_settings(options), fractions=FRACTIONS)


def improvement(method: Chosen, vanilla: Chosen) -> dict[str, float]:
    """100 (vanilla - method) / vanilla for test NLL, DoF and sharpness: the mean over seeds of each seed's own change.

    `dof_points` is 100 (DoF of vanilla - DoF), in points of percent: DoF is itself a ratio, and close to zero with
    enough data, where its relative change says little.
    """
    changes = {}
    for measure, name in zip(MEASURES, ("test_ll", "dof", "sharpness"), strict=True):
        pairs = _pairs(method, vanilla, name)
        changes[measure] = _mean([100 * (b - a) / b if b else math.nan for a, b in pairs])
    changes["dof_points"] = _mean([100 * (b - a) for a, b in _pairs(method, vanilla, "dof")])
    return changes


def _pairs(method: Chosen, vanilla: Chosen, name: str) -> list[tuple[float, float]]:
    base = dict(zip(vanilla.seeds, vanilla.values(name), strict=True))
    return [(a, base[s]) for s, a in zip(method.seeds, method.values(name), strict=True) if s in base]


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return float(np.mean(known)) if known else math.nan


def report_a(study: Study, records: Sequence[Record]) -> Report:
    """The paper's table of mean improvements, with ours and a gated row for each of its rows."""
    chosen = {(item.dataset, item.fraction, item.label): item for item in choose_all(records)}
    found: dict[Case, dict[str, float]] = {
        case: improvement(item, chosen[case[0], case[1], "vanilla"])
        for case, item in chosen.items()
        if case[2] in METHODS and (case[0], case[1], "vanilla") in chosen
    }
    values = tuple(_values(case, changes, chosen) for case, changes in found.items())
    names = tuple(dict.fromkeys(case[0] for case in found))
    notes = (
        study.protocol.in_words(),
        "Improvement over vanilla in percent, 100 (vanilla - method) / vanilla: positive means a lower test NLL, a "
        "lower degree of overfitting, a flatter optimum. Mean ± standard deviation over data sets of each one's mean "
        "over seeds. DoF points: the difference of the degrees of overfitting themselves, in points of percent.",
        f"Ours: mean over {', '.join(names)}; the paper's: over its 20 data sets.",
        choice_note(study),
        *grid_notes(study),
        *_lagging(study),
        *provenance(records),
    )
    return Report(
        "table-a",
        "Table A: improvement over vanilla by share of the training data",
        (_main(study, found), _by_dataset(study, found, chosen)),
        notes,
        COLUMNS,
        values,
    )


def _lagging(study: Study) -> tuple[str, ...]:
    if study.protocol.choose_epoch == "last":
        return ()
    return (
        "DoF and sharpness of an epoch before the last are means over its batches, taken while the parameters moved: "
        "within a few percent those of the model at its end.",
    )


def _values(case: Case, changes: dict[str, float], chosen: dict[Case, Chosen]) -> Record:
    dataset, fraction, label = case
    vanilla = chosen[dataset, fraction, "vanilla"].method
    return {
        **{"dataset": dataset, "fraction": fraction, "label": label, **changes},
        **{name: chosen[case].method[name] for name in CHOICES},
        **{f"vanilla_{name}": vanilla[name] for name in ("pseudocount", "init")},
        "seeds": len(chosen[case].records),
    }


def _main(study: Study, found: dict[Case, dict[str, float]]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for fraction in study.fractions:
        for label in METHODS:
            over = [changes for case, changes in found.items() if case[1:] == (fraction, label)]
            paper = IMPROVEMENTS.get(fraction) if label == "global" else None
            cells: list[Cell] = [f"{fraction:.0%}", label]
            for place, measure in enumerate(MEASURES):
                cells += [_over([changes[measure] for changes in over]), "-" if paper is None else Number(paper[place])]
            rows.append((*cells, _over([changes["dof_points"] for changes in over])))
    heads = ("data", "method", "test NLL %", "paper", "DoF %", "paper", "sharpness %", "paper", "DoF points")
    return Table(heads, tuple(rows), text_columns=(0, 1))


def _over(values: Sequence[float]) -> Number:
    return Number.of(spread([value for value in values if math.isfinite(value)]))


def _by_dataset(study: Study, found: dict[Case, dict[str, float]], chosen: dict[Case, Chosen]) -> Table:
    more = chooses_more_than_mu(study)
    rows: list[tuple[Cell, ...]] = []
    for case, changes in found.items():
        method, vanilla = chosen[case].method, chosen[case[0], case[1], "vanilla"].method
        numbers = [Number(changes[measure]) for measure in (*MEASURES, "dof_points")]
        starts = (method["init"], vanilla["init"], f"{vanilla['pseudocount']:g}") if more else ()
        rows.append((case[0], f"{case[1]:.0%}", case[2], *numbers, setting_text(method), *starts))
    heads = ("data set", "data", "method", "test NLL %", "DoF %", "sharpness %", "DoF points", "mu")
    others = ("start", "vanilla's\nstart", "vanilla's\npseudocount") if more else ()
    return Table((*heads, *others), tuple(rows), "By data set", text_columns=(0, 1, 2))
