"""Claims about fit: who scores how on test rows, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from circurve.experiments.claim import (
    BEST_EPOCH,
    CLEAR,
    KEPT,
    LAST_EPOCH,
    OPENINGS,
    SMOOTHED_OPENINGS,
    Claim,
    Rows,
    Shelves,
    gap,
    judge,
    listed,
    mean,
    mixed_starts,
    rows_with,
    signed,
)
from circurve.experiments.compare import paired, verdict
from circurve.experiments.paper_numbers import LABELS, TEST_LL, paper_test_ll
from circurve.experiments.summary import Chosen, choose_all, spread
from circurve.experiments.table_a import improvement
from circurve.experiments.table_b import p_text
from circurve.experiments.table_d import SMOOTHED

__all__ = [
    "best_reaches_the_paper",
    "early_stopping_wins",
    "exact_updates_help",
    "gated_beats_global",
    "gated_helps_small_sets",
    "gated_keeps_the_fit",
    "global_underfits",
    "low_data_helps",
    "low_data_helps_beside_stopping",
    "penalties_beat_smoothing",
    "smaller_strengths_rescue_global",
    "tables_of_the_paper_agree",
    "vanilla_matches",
    "weakly_gated_keeps_the_fit",
    "weakly_gated_keeps_the_fit_beside_smoothing",
]

LARGE, SMALL = ("nltcs", "plants", "baudio"), ("dna", "bbc")
CLOSE = 0.1
"""Nats: near the paper."""

ROUNDING = 0.005
"""Nats: the paper prints two digits."""

PAPER_GRID = 0.01
"""The smallest strength that the paper tries."""

STRONG = f"with strengths from {PAPER_GRID:g} up, as in the paper"
WEAK = f"with strengths below {PAPER_GRID:g} to choose from"
WEAK_TABLES = {"paper": "table-d", "best": "table-b"}
"""Protocol -> the table whose grid begins below the paper's."""

PLAIN_OPENINGS = {"paper": LAST_EPOCH, "best": f"{BEST_EPOCH} and vanilla not smoothed"}
"""Protocol -> how a comparison with the vanilla of Table D begins."""

Record = dict[str, Any]


def vanilla_matches(shelves: Shelves) -> Claim | None:
    """Our baseline is the paper's."""
    rows = rows_with(shelves, "paper", "table-b", "vanilla")
    gaps = {}
    for name, row in rows.items():
        paper = paper_test_ll(name, "vanilla")
        if paper is not None:
            gaps[name] = mean(row["vanilla"]) - paper.mean
    answers = [abs(gap) <= CLOSE for name, gap in gaps.items() if name in LARGE]
    if not answers:
        return None
    told = listed([f"{name} {signed(gap)}" for name, gap in gaps.items()])
    return Claim(
        f"Vanilla EM by the protocol `paper` comes within {CLOSE:g} nats of the paper's vanilla column on "
        f"{listed([name for name in LARGE if name in gaps])}.",
        judge(answers),
        f"Ours minus the paper's: {told}.",
    )


def best_reaches_the_paper(shelves: Shelves) -> Claim | None:
    """What a practitioner would do is no worse than anything the paper prints."""
    told, answers = [], []
    for name, row in rows_with(shelves, "best", "table-b", "vanilla").items():
        papers = [found.mean for label in LABELS if (found := paper_test_ll(name, label)) is not None]
        if papers:
            chosen = max(row, key=lambda label: mean(row[label], "valid_ll"))
            ours = mean(row[chosen])
            answers.append(ours >= max(papers) - ROUNDING)
            told.append(f"{name} {ours:.2f} ({chosen}) against {max(papers):.2f}")
    if not answers:
        return None
    return Claim(
        "By the protocol `best`, the method that validation chooses is at or above all of the paper's three columns.",
        judge(answers),
        f"Test log-likelihood: {listed(told)}.",
    )


def gated_keeps_the_fit(shelves: Shelves, protocol: str) -> Claim | None:
    """Gating does not cost fit where there is enough data."""
    return _keeps_the_fit(_strong_rows(shelves, protocol), f"{SMOOTHED_OPENINGS[protocol]}, {STRONG}")


def weakly_gated_keeps_the_fit(shelves: Shelves, protocol: str) -> Claim | None:
    """The same with the strengths of Table D, where vanilla is not smoothed and all start alike."""
    return _keeps_the_fit(rows_with(shelves, protocol, "table-d"), f"{PLAIN_OPENINGS[protocol]}, {WEAK}")


def weakly_gated_keeps_the_fit_beside_smoothing(shelves: Shelves) -> Claim | None:
    """The same once more, where vanilla may be smoothed and the start is chosen too."""
    return _keeps_the_fit(rows_with(shelves, "best", "table-b"), f"{SMOOTHED_OPENINGS['best']}, {WEAK}")


def _keeps_the_fit(rows: Rows, opening: str) -> Claim | None:
    rows = {n: r for n, r in rows.items() if n in LARGE and {"vanilla", "gated"} <= r.keys()}
    if not rows:
        return None
    gaps = {name: gap(row, "gated", "vanilla") for name, row in rows.items()}
    told = listed([f"{name} {signed(gap, 3)}" for name, gap in gaps.items()])
    return Claim(
        f"{opening}, gated is at or above vanilla minus {KEPT:g} nats on {listed(list(rows))}.",
        judge([gap >= -KEPT for gap in gaps.values()]),
        f"Gated minus vanilla: {told}.{mixed_starts(rows, 'vanilla', 'gated')}",
    )


def gated_helps_small_sets(shelves: Shelves, protocol: str) -> Claim | None:
    """Gating helps where vanilla overfits, as long as nothing else stops it."""
    rows = {n: r for n, r in rows_with(shelves, protocol, "table-b", "vanilla", "gated").items() if n in SMALL}
    if not rows:
        return None
    found = {name: paired(row["gated"], row["vanilla"]) for name, row in rows.items()}
    told = [f"{n} {signed(f.mean)} (p {p_text(f.p)})" for n, f in found.items()]
    return Claim(
        f"{SMOOTHED_OPENINGS[protocol]}, gated is clearly (by {CLEAR:g} nats and more) above vanilla on the small sets "
        f"{listed(list(rows))}.",
        judge([f.mean >= CLEAR and (f.p is None or f.p < 0.05) for f in found.values()]),
        f"Gated minus vanilla: {listed(told)}.{mixed_starts(rows, 'vanilla', 'gated')}",
    )


def global_underfits(shelves: Shelves, protocol: str) -> Claim | None:
    """The penalty on all nodes lowers train and test likelihood alike."""
    rows = {
        n: r for n, r in _strong_rows(shelves, protocol).items() if n not in SMALL and {"vanilla", "global"} <= r.keys()
    }
    if not rows:
        return None
    gaps = {n: [mean(r["global"], s) - mean(r["vanilla"], s) for s in ("train_ll", "test_ll")] for n, r in rows.items()}
    told = listed([f"{n} {signed(train)} / {signed(test)}" for n, (train, test) in gaps.items()])
    return Claim(
        f"{SMOOTHED_OPENINGS[protocol]}, global underfits {STRONG}: on sets that are not small it is below vanilla in "
        "training and in test likelihood.",
        judge(
            [
                train < 0 and test < 0 and verdict(rows[n]["global"].spread(), rows[n]["vanilla"].spread()) == "loss"
                for n, (train, test) in gaps.items()
            ]
        ),
        f"Global minus vanilla, train / test: {told}.{mixed_starts(rows, 'vanilla', 'global')}",
    )


def smaller_strengths_rescue_global(shelves: Shelves, protocol: str) -> Claim | None:
    """How much of the underfitting is the grid's."""
    records = shelves[protocol].of_table(WEAK_TABLES[protocol]) if protocol in shelves else []
    before, after = _losses(_strong(records)), _losses(records)
    names = [name for name, loss in before.items() if loss < -KEPT]  # elsewhere there is nothing to explain
    if not names:
        return None
    chosen = _by_dataset(choose_all(records))
    told = [f"{n} {signed(before[n])} to {signed(after[n])} (mu {chosen[n]['global'].method['mu']:g})" for n in names]
    return Claim(
        f"{SMOOTHED_OPENINGS[protocol]}, much of global's underfitting is the grid: {WEAK}, at least half of its "
        "loss against vanilla is gone.",
        judge([after[n] >= before[n] / 2 for n in names]),
        f"Global minus vanilla, from {PAPER_GRID:g} up and with all strengths: {listed(told)}."
        f"{_same_start(records, {n: chosen[n] for n in names})}",
    )


def _losses(records: Sequence[Record]) -> dict[str, float]:
    """Global minus vanilla by data set, each as validation chooses it."""
    rows = _by_dataset(choose_all(records))
    return {n: gap(row, "global", "vanilla") for n, row in rows.items() if {"global", "vanilla"} <= row.keys()}


def _same_start(records: Sequence[Record], rows: Rows) -> str:
    """Where starts differ: which ones, and the losses with the start that validation chose for vanilla."""
    mixed = mixed_starts(rows, "vanilla", "global")
    if not mixed:
        return ""
    starts = {name: row["vanilla"].method["init"] for name, row in rows.items()}
    differ = {name for name, row in rows.items() if row["global"].method["init"] != starts[name]}
    same = [r for r in records if r["dataset"] in differ and r["method"]["init"] == starts[r["dataset"]]]
    before, after = _losses(_strong(same)), _losses(same)
    told = [f"{name} {signed(before[name])} to {signed(after[name])}" for name in after if name in before]
    return f"{mixed} With vanilla's start for both: {listed(told)}."


def _strong(records: Sequence[Record]) -> list[Record]:
    """Those without a penalty, or with one no weaker than the paper's."""
    return [r for r in records if r["method"]["mu"] is None or r["method"]["mu"] >= PAPER_GRID]


def _strong_rows(shelves: Shelves, protocol: str) -> Rows:
    """Table B, if validation has no weaker penalties than the paper's to choose from."""
    return _by_dataset(choose_all(_strong(shelves[protocol].of_table("table-b")))) if protocol in shelves else {}


def _by_dataset(chosen: Sequence[Chosen]) -> dict[str, dict[str, Chosen]]:
    found: dict[str, dict[str, Chosen]] = {}
    for item in chosen:
        found.setdefault(item.dataset, {})[item.label] = item
    return found


def gated_beats_global(shelves: Shelves, protocol: str) -> Claim | None:
    """The paper's comparison of its two regularisers."""
    rows = rows_with(shelves, protocol, "table-b", "global", "gated")
    if not rows:
        return None
    found = {name: verdict(row["gated"].spread(), row["global"].spread()) for name, row in rows.items()}
    told = [f"{name} {signed(gap(rows[name], 'gated', 'global'))}" for name in rows]
    return Claim(
        f"{OPENINGS[protocol]}, gated is above global.",
        judge([result == "win" for result in found.values()]),
        f"Gated minus global: {listed(told)}.{mixed_starts(rows, 'global', 'gated')}",
    )


def early_stopping_wins(shelves: Shelves) -> Claim | None:
    """The epoch chosen by validation, without any penalty, against all of the paper's columns."""
    rows = rows_with(shelves, "paper", "table-b", "vanilla")
    told, answers = [], []
    for name, row in rows.items():
        printed = [p.mean for label in LABELS if (p := paper_test_ll(name, label)) is not None]
        ours = [mean(chosen) for label, chosen in row.items() if label in LABELS]
        rivals = [*printed, *ours]
        stopped = spread([record["best"]["test_ll"] for record in row["vanilla"].records]).mean
        answers.append(stopped >= max(rivals) - 0.01)
        told.append(f"{name} {stopped:.2f} against {max(rivals):.2f}")
    if not rows:
        return None
    return Claim(
        "By the protocol `paper`, vanilla stopped at its best epoch by validation is at or above every column of Table "
        "B, ours and the paper's (within 0.01).",
        judge(answers),
        f"Vanilla at its best epoch, against the best last epoch of all columns: {listed(told)}.",
    )


def penalties_beat_smoothing(shelves: Shelves, protocol: str) -> Claim | None:
    """Trace regularisation acts much like smoothing: is it more than that?"""
    rows = rows_with(shelves, protocol, "table-d", SMOOTHED, "gated", "global")
    if not rows:
        return None
    told, answers = [], []
    for name, row in rows.items():
        best = max(("global", "gated"), key=lambda label: mean(row[label], "valid_ll"))
        answers.append(verdict(row[best].spread(), row[SMOOTHED].spread()) == "win")
        told.append(f"{name} {signed(gap(row, best, SMOOTHED))} ({best})")
    return Claim(
        f"{OPENINGS[protocol]}, the better of global and gated (by validation) beats plain EM with the best of several "
        "pseudocounts.",
        judge(answers),
        f"Penalty minus smoothing: {listed(told)}.",
    )


def exact_updates_help(shelves: Shelves, protocol: str) -> Claim | None:
    """Solving the paper's own objective, instead of its surrogate."""
    rows = rows_with(shelves, protocol, "table-d", "gated", "gated-exact-both")
    if not rows:
        return None
    told, answers = [], []
    for name, row in rows.items():
        labels = [label for label in row if "-exact-" in label]
        best = max(labels, key=lambda label: mean(row[label], "valid_ll"))
        plain = max((label for label in ("global", "gated") if label in row), key=lambda x: mean(row[x], "valid_ll"))
        answers.append(verdict(row[best].spread(), row[plain].spread()) == "win")
        told.append(f"{name} {signed(gap(row, best, plain))} ({best})")
    return Claim(
        f"{OPENINGS[protocol]}, exact penalty or exact simplex beat the surrogate with plain normalisation.",
        judge(answers),
        f"Best exact variant minus best surrogate, both by validation: {listed(told)}.",
    )


def low_data_helps(shelves: Shelves) -> Claim | None:
    """Table A's trend."""
    means = _improvements(shelves, "paper", "global")
    if len(means) < 2:
        return None
    low, high = min(means), max(means)
    return Claim(
        f"{LAST_EPOCH}, global lowers the test NLL when data are scarce ({low:.0%}) and raises it with all data "
        f"({high:.0%}).",
        judge([means[low] > 0, means[high] < 0]),
        f"Mean improvement of the test NLL: {_by_share(means)}.",
    )


def low_data_helps_beside_stopping(shelves: Shelves) -> Claim | None:
    """The same, once vanilla may be smoothed and the epoch is chosen by validation too."""
    found = {label: _improvements(shelves, "best", label) for label in ("global", "gated")}
    if not all(found.values()):
        return None
    low = min(found["global"])
    told = [f"{label} {_by_share(means)}" for label, means in found.items()]
    return Claim(
        f"{SMOOTHED_OPENINGS['best']}, global and gated still lower the test NLL when data are scarce ({low:.0%}).",
        judge([means[low] > 0 for means in found.values()]),
        f"Mean improvement of the test NLL: {'; '.join(told)}.",
    )


def _improvements(shelves: Shelves, protocol: str, label: str) -> dict[float, float]:
    """Of the test NLL over vanilla's, by share of the training rows: the mean over data sets."""
    shelf = shelves.get(protocol)
    if shelf is None or "table-a" not in shelf.options:
        return {}
    means: dict[float, float] = {}
    for fraction in shelf.study("table-a").fractions:
        rows = [row for row in shelf.chosen("table-a", fraction).values() if {label, "vanilla"} <= row.keys()]
        if rows:
            means[fraction] = float(np.mean([improvement(row[label], row["vanilla"])["test_nll"] for row in rows]))
    return means


def _by_share(means: dict[float, float]) -> str:
    return listed([f"{signed(x)} % at {f:.0%}" for f, x in means.items()])


def tables_of_the_paper_agree(shelves: Shelves) -> Claim | None:
    """Whether the paper's two tables mean the same by a column; our numbers play no part."""
    gaps = {}
    for name in TEST_LL:
        for label in LABELS:
            first, second = paper_test_ll(name, label), paper_test_ll(name, label, 1.0)
            if first is not None and second is not None:
                gaps[f"{label} on {name}"] = second.mean - first.mean
    worst = sorted((case for case in gaps if abs(gaps[case]) > CLEAR), key=lambda case: -abs(gaps[case]))
    return Claim(
        f"The paper's table of data fractions agrees, at 100 %, with its main table (within {CLEAR:g} nats).",
        not worst,
        f"They differ by more in {listed([f'{case} ({signed(gaps[case])})' for case in worst]) or 'no case'}.",
    )
