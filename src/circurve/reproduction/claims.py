"""Checks of the paper's claims, and of ours, by the records of one protocol; `page` has them in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from circurve.reproduction.claim import Claim, Found, agreed, best_of, judged, mixed_starts, rows_with, signed
from circurve.reproduction.comparisons import CLEAR, CLOSE, KEPT, LABELS, LARGE, SMALL, TEST_LL, paper_test_ll
from circurve.reproduction.outputs import Shelf
from circurve.reproduction.records import Record, RunRecord
from circurve.reproduction.summary import Chosen, Rows, choose_rows, paired, spread, upper_half, verdict
from circurve.reproduction.tables import improvement, p_text
from circurve.reproduction.tables_beyond import SMOOTHED

ROUNDING = 0.005
"""Nats: half of the last digit that the paper prints."""

PAPER_GRID = 0.01
"""The smallest strength that the paper tries."""

WITH_PAPER_STRENGTHS = f"with strengths from {PAPER_GRID:g} up, as in the paper"
WITH_WEAK_STRENGTHS = f"with strengths below {PAPER_GRID:g} to choose from"
WEAK_TABLES = {"paper": "table-d", "paper-own": "table-d", "smoothed": "table-d", "best": "table-b"}
"""Protocol -> the table whose grid begins below the paper's."""

OPENINGS = {
    "paper": "With the last epoch (protocol `paper`)",
    "paper-own": "With the last epoch and a latent for every variable (protocol `paper-own`)",
    "smoothed": "With the last epoch and every method smoothed (protocol `smoothed`)",
    "best": "With the best epoch (protocol `best`)",
}
"""Protocol -> how a claim begins that is judged by it."""

SMOOTHED_OPENINGS = {**OPENINGS, "best": f"{OPENINGS['best']} and vanilla smoothed"}
PLAIN_OPENINGS = {**OPENINGS, "best": f"{OPENINGS['best']} and vanilla not smoothed"}
"""Openings for comparisons with the vanilla of tables A to C, and with that of Table D."""

EXACT = ("global-exact-both", "gated-exact-simplex", "gated-exact-penalty", "gated-exact-both")
PENALTIES = ("global", "gated")


def _strong(records: Sequence[RunRecord]) -> list[RunRecord]:
    """The records without a penalty, or with a penalty at least as strong as the paper's."""
    return [r for r in records if r["method"]["mu"] is None or r["method"]["mu"] >= PAPER_GRID]


def _printed(ours: Chosen) -> list[float]:
    """The paper's test log-likelihoods on our data set; none if its files are not those of DEBD."""
    found = [paper_test_ll(ours.dataset, label) for label in LABELS if ours.of_debd]
    return [paper.mean for paper in found if paper is not None]


def vanilla_matches(shelf: Shelf, protocol: str) -> Claim | None:
    """Our baseline is the paper's."""
    found = {}
    for name, row in rows_with(shelf, "table-b", "vanilla").items():
        if row["vanilla"].of_debd and (paper := paper_test_ll(name, "vanilla")) is not None:
            off = row["vanilla"].mean() - paper.mean
            found[name] = ([abs(off) <= CLOSE] if name in LARGE else [], signed(off))
    near = ", ".join(name for name in LARGE if name in found)
    text = (
        f"Vanilla EM by the protocol `{protocol}` comes within {CLOSE:g} nats of the paper's vanilla column on {near}."
    )
    return judged(text, found, "Ours minus the paper's")


def best_reaches_the_paper(shelf: Shelf, protocol: str) -> Claim | None:
    """What a practitioner would do is no worse than anything the paper prints."""
    text = "By the protocol `best`, the method that validation chooses is at or above all of the paper's three columns."
    found = {}
    for name, row in rows_with(shelf, "table-b", "vanilla").items():
        if papers := _printed(row["vanilla"]):
            chosen = best_of(row, row)
            ours = row[chosen].mean()
            found[name] = ([ours >= max(papers) - ROUNDING], f"{ours:.2f} ({chosen}) against {max(papers):.2f}")
    return judged(text, found, "Test log-likelihood")


def gated_keeps_the_fit(shelf: Shelf, protocol: str) -> Claim | None:
    """Gating does not cost fit where there is enough data."""
    rows = choose_rows(_strong(shelf.of_table("table-b")))
    return _keeps_the_fit(rows, f"{SMOOTHED_OPENINGS[protocol]}, {WITH_PAPER_STRENGTHS}")


def weakly_gated_keeps_the_fit(table: str, openings: Mapping[str, str], shelf: Shelf, protocol: str) -> Claim | None:
    """Gated keeps the fit with smaller strengths: those of Table B, or of D, where vanilla is not smoothed and all
    start alike."""
    return _keeps_the_fit(shelf.chosen(table), f"{openings[protocol]}, {WITH_WEAK_STRENGTHS}")


def _keeps_the_fit(rows: Rows, opening: str) -> Claim | None:
    rows = {n: r for n, r in rows.items() if n in LARGE and {"vanilla", "gated"} <= r.keys()}
    gaps = {name: paired(row["gated"], row["vanilla"]).mean for name, row in rows.items()}
    return judged(
        f"{opening}, gated is at or above vanilla minus {KEPT:g} nats on {', '.join(rows)}.",
        {name: ([loss >= -KEPT], signed(loss, 3)) for name, loss in gaps.items()},
        "Gated minus vanilla",
        mixed_starts(rows, "vanilla", "gated"),
    )


def gated_helps_small_sets(shelf: Shelf, protocol: str) -> Claim | None:
    """Gating helps where vanilla overfits, as long as nothing else stops it."""
    rows = {name: row for name, row in rows_with(shelf, "table-b", "vanilla", "gated").items() if name in SMALL}
    found = {}
    for name, row in rows.items():
        pair = paired(row["gated"], row["vanilla"])
        clear = pair.mean >= CLEAR and (pair.p is None or pair.p < 0.05)
        found[name] = ([clear], f"{signed(pair.mean)} (p {p_text(pair.p)})")
    return judged(
        f"{SMOOTHED_OPENINGS[protocol]}, gated is clearly (by {CLEAR:g} nats and more) above vanilla on the small sets "
        f"{', '.join(rows)}.",
        found,
        "Gated minus vanilla",
        mixed_starts(rows, "vanilla", "gated"),
    )


def global_underfits(shelf: Shelf, protocol: str) -> Claim | None:
    """The penalty on all nodes lowers train and test likelihood alike."""
    strong = choose_rows(_strong(shelf.of_table("table-b")))
    rows = {n: row for n, row in strong.items() if n not in SMALL and {"vanilla", "global"} <= row.keys()}
    found = {}
    for name, row in rows.items():
        train, test = (row["global"].mean(split) - row["vanilla"].mean(split) for split in ("train_ll", "test_ll"))
        lost = verdict(row["global"].spread(), row["vanilla"].spread()) == "loss"
        found[name] = ([train < 0 and test < 0 and lost], f"{signed(train)} / {signed(test)}")
    return judged(
        f"{SMOOTHED_OPENINGS[protocol]}, global underfits {WITH_PAPER_STRENGTHS}: on sets that are not small it is "
        f"below vanilla in "
        "training and in test likelihood.",
        found,
        "Global minus vanilla, train / test",
        mixed_starts(rows, "vanilla", "global"),
    )


def smaller_strengths_rescue_global(shelf: Shelf, protocol: str) -> Claim | None:
    """How much of the underfitting is the grid's."""
    records = shelf.of_table(WEAK_TABLES[protocol])
    losses = {name: pair for name, pair in _losses(records).items() if pair[0] < -KEPT}  # else nothing to explain
    rows = {name: row for name, row in choose_rows(records).items() if name in losses}
    found = {}
    for name, (before, after) in losses.items():
        strength = rows[name]["global"].method["mu"]
        found[name] = ([after >= before / 2], f"{signed(before)} to {signed(after)} (mu {strength:g})")
    return judged(
        f"{SMOOTHED_OPENINGS[protocol]}, much of global's underfitting comes from the grid of strengths: "
        f"{WITH_WEAK_STRENGTHS}, at "
        f"least half of its loss against vanilla is gone.",
        found,
        f"Global minus vanilla, from {PAPER_GRID:g} up and with all strengths",
        _same_start(records, rows),
    )


def _losses(records: Sequence[RunRecord]) -> dict[str, tuple[float, float]]:
    """Global minus vanilla by data set, each as validation chooses it: from the paper's strengths, and from all."""
    found = []
    for grid in (_strong(records), records):
        rows = {name: row for name, row in choose_rows(grid).items() if {"global", "vanilla"} <= row.keys()}
        found.append({name: paired(row["global"], row["vanilla"]).mean for name, row in rows.items()})
    return {name: (loss, found[1][name]) for name, loss in found[0].items()}


def _same_start(records: Sequence[RunRecord], rows: Rows) -> str:
    """Where starts differ: which ones, and the losses with the start that validation chose for vanilla."""
    mixed = mixed_starts(rows, "vanilla", "global")
    if not mixed:
        return ""
    starts = {name: row["vanilla"].method["init"] for name, row in rows.items()}
    differ = {name for name, row in rows.items() if row["global"].method["init"] != starts[name]}
    same = [r for r in records if r["dataset"] in differ and r["method"]["init"] == starts[r["dataset"]]]
    told = [f"{name} {signed(before)} to {signed(after)}" for name, (before, after) in _losses(same).items()]
    return f"{mixed} With vanilla's start for both: {', '.join(told)}."


def gated_beats_global(shelf: Shelf, protocol: str) -> Claim | None:
    """The paper's comparison of its two regularisers."""
    rows = rows_with(shelf, "table-b", "global", "gated")
    found = wins(rows, ("gated",), ("global",))
    text = f"{OPENINGS[protocol]}, gated is above global."
    return judged(text, found, "Gated minus global", mixed_starts(rows, "global", "gated"))


def penalties_beat_smoothing(shelf: Shelf, protocol: str) -> Claim | None:
    """Trace regularisation acts much like smoothing: is it more than that?"""
    return judged(
        f"{OPENINGS[protocol]}, the better of global and gated (by validation) beats plain EM with the best of several "
        "pseudocounts.",
        wins(rows_with(shelf, "table-d", SMOOTHED, *PENALTIES), PENALTIES, (SMOOTHED,)),
        "Penalty minus smoothing",
    )


def exact_updates_help(shelf: Shelf, protocol: str) -> Claim | None:
    """Solving the paper's own objective, instead of its surrogate."""
    return judged(
        f"{OPENINGS[protocol]}, the exact penalty or the exact simplex scores better than the surrogate with plain "
        f"normalisation.",
        wins(rows_with(shelf, "table-d", "gated", "gated-exact-both"), EXACT, PENALTIES),
        "Best exact variant minus best surrogate, both by validation",
    )


def wins(rows: Rows, firsts: Sequence[str], seconds: Sequence[str]) -> Found:
    """Whether the best of the first labels is above the best of the second ones, both by validation."""
    found = {}
    for name, row in rows.items():
        first, second = best_of(row, firsts), best_of(row, seconds)
        won = verdict(row[first].spread(), row[second].spread()) == "win"
        which = f" ({first})" if len(firsts) > 1 else ""
        found[name] = ([won], f"{signed(paired(row[first], row[second]).mean)}{which}")
    return found


def early_stopping_wins(shelf: Shelf, protocol: str) -> Claim | None:
    """The epoch chosen by validation, without any penalty, against all of the paper's columns."""
    found = {}
    for name, row in rows_with(shelf, "table-b", "vanilla").items():
        rival = max([*_printed(row["vanilla"]), *(chosen.mean() for label, chosen in row.items() if label in LABELS)])
        stopped = spread([record["best"]["test_ll"] for record in row["vanilla"].records]).mean
        found[name] = ([stopped >= rival - 0.01], f"{stopped:.2f} against {rival:.2f}")
    return judged(
        f"By the protocol `{protocol}`, vanilla stopped at its best epoch by validation is at or above every column of "
        "Table B, ours and the paper's (within 0.01).",
        found,
        "Vanilla at its best epoch, against the best last epoch of all columns",
    )


def low_data_helps(shelf: Shelf, protocol: str) -> Claim | None:
    """Table A's trend."""
    means = _improvements(shelf, "global")
    if len(means) < 2:
        return None
    low, high = min(means), max(means)
    return Claim(
        f"{OPENINGS[protocol]}, global lowers the test NLL when data are scarce ({low:.0%}) and raises it with all "
        f"data ({high:.0%}).",
        agreed([means[low] > 0, means[high] < 0]),
        f"Mean improvement of the test NLL: {_by_share(means)}.",
    )


def low_data_helps_beside_stopping(shelf: Shelf, protocol: str) -> Claim | None:
    """Penalties help on scarce data, even if vanilla may be smoothed and validation chooses the epoch."""
    means = {label: _improvements(shelf, label) for label in PENALTIES}
    if not all(means.values()):
        return None
    low = min(means["global"])
    return Claim(
        f"{SMOOTHED_OPENINGS[protocol]}, global and gated still lower the test NLL when data are scarce ({low:.0%}).",
        agreed([of[low] > 0 for of in means.values()]),
        f"Mean improvement of the test NLL: {'; '.join(f'{label} {_by_share(of)}' for label, of in means.items())}.",
    )


def _improvements(shelf: Shelf, label: str) -> dict[float, float]:
    """The improvement of the test NLL over vanilla by share of the training rows: mean over data sets."""
    means: dict[float, float] = {}
    for fraction in shelf.study("table-a").fractions if "table-a" in shelf.options else ():
        rows = [row for row in shelf.chosen("table-a", fraction).values() if {label, "vanilla"} <= row.keys()]
        if rows:
            means[fraction] = float(np.mean([improvement(row[label], row["vanilla"])["test_nll"] for row in rows]))
    return means


def _by_share(means: Mapping[float, float]) -> str:
    return ", ".join(f"{signed(x)} % at {fraction:.0%}" for fraction, x in means.items())


def falls(measure: str, unit: str, text: str, shelf: Shelf, protocol: str) -> Claim | None:
    """The regularisers do what they are made for: a measure is lower than vanilla's. unit: how to write its fall."""
    rows = rows_with(shelf, "table-b", "vanilla", *PENALTIES)
    found = {}
    for name, row in rows.items():
        falls = [improvement(row[label], row["vanilla"])[measure] for label in PENALTIES]
        found[name] = ([fall > 0 for fall in falls], " and ".join(unit.format(fall) for fall in falls))
    numbers = "Reduction against vanilla, by global and by gated"
    return judged(f"{SMOOTHED_OPENINGS[protocol]}, {text}", found, numbers, mixed_starts(rows, "vanilla", *PENALTIES))


def trace_is_concentrated(shelf: Shelf, protocol: str) -> Claim | None:
    """Less than a tenth of the nodes hold 99.99 % of T; more than 60 % are needed for t."""
    return judged(
        f"{_in_the_last_model(protocol)}, less than 10 % of the sum nodes hold 99.99 % of the trace T, and more than "
        "60 % are needed for as much of t.",
        _shares(shelf, "0.9999", lambda total, local: [total < 0.1, local > 0.6]),
        "Shares of the nodes, T and t, vanilla",
    )


def usage_concentrates(shelf: Shelf, protocol: str) -> Claim | None:
    """What is left of the paper's reading if its percentages are not met: T is more concentrated than t."""
    return judged(
        f"{_in_the_last_model(protocol)}, T is more concentrated than t: fewer nodes hold 99 % of it.",
        _shares(shelf, "0.99", lambda total, local: [total < local]),
        "Shares of the nodes that hold 99 % of T and of t, vanilla",
    )


def _shares(shelf: Shelf, level: str, judge: Callable[[float, float], list[bool]]) -> Found:
    """The shares of the nodes that hold this share of T and of t, judged by data set."""
    found = {}
    for name, measured in _curvatures(shelf).items():
        total, local = (float(np.mean([m[by]["fractions"][level] for m in measured])) for by in ("total", "local"))
        found[name] = (judge(total, local), f"{total:.1%} and {local:.1%}")
    return found


def shallow_nodes_dominate(shelf: Shelf, protocol: str) -> Claim | None:
    """The trace is mostly in the upper half of the depths."""
    found = {}
    for name, measured in _curvatures(shelf).items():
        share = float(np.mean([upper_half(m["depth"]) for m in measured]))
        found[name] = ([share > 0.5], f"{share:.0%}")
    return judged(
        f"{_in_the_last_model(protocol)}, the upper half of the depths holds more than half of the trace.",
        found,
        "Share of the upper half, vanilla",
    )


def _in_the_last_model(protocol: str) -> str:
    """The curvature on record is that of the last epoch's model, whichever epoch's scores count."""
    return f"In the last epoch's model (protocol `{protocol}`)"


def _curvatures(shelf: Shelf) -> dict[str, list[Record]]:
    """The curvature of each run of vanilla by data set, where it is known."""
    measured = {n: row["vanilla"].curvatures() for n, row in rows_with(shelf, "table-b", "vanilla").items()}
    return {name: found for name, found in measured.items() if found}


def tables_of_the_paper_agree() -> Claim:
    """Whether the paper's two tables mean the same by a column; our numbers play no part."""
    gaps = {}
    for name in TEST_LL:
        for label in LABELS:
            first, second = paper_test_ll(name, label), paper_test_ll(name, label, 1.0)
            if first is not None and second is not None:
                gaps[f"{label} on {name}"] = second.mean - first.mean
    worst = sorted((case for case in gaps if abs(gaps[case]) > CLEAR), key=lambda case: -abs(gaps[case]))
    told = ", ".join(f"{case} ({signed(gaps[case])})" for case in worst)
    return Claim(
        f"The paper's table of data fractions agrees, at 100 %, with its main table (within {CLEAR:g} nats).",
        not worst,
        f"They differ by more in {told or 'no case'}.",
    )
