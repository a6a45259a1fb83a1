"""What follows from the records of a reproduction: studies in a line each, both structures, and what we recommend."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from circurve.curvature.measure import DOMINANT_FLOOR_SHARE
from circurve.reproduction.claim import best_of, rows_with, signed
from circurve.reproduction.claims import PENALTIES
from circurve.reproduction.outputs import Shelf
from circurve.reproduction.studies import BY_VALIDATION
from circurve.reproduction.study_report import SIGNIFICANT, STUDIES
from circurve.reproduction.summary import TIE, Rows, paired
from circurve.reproduction.table import Cell, Number, Report, Table, markdown_table
from circurve.reproduction.tables_beyond import SMOOTHED

__all__ = [
    "WITHOUT_SMOOTHING",
    "StudyLine",
    "advice",
    "both_structures",
    "floor_summary",
    "study_lines",
    "study_summary",
]

WITHOUT_SMOOTHING = ("paper", "paper-own")
"""The protocols of the paper that do not smooth."""


def advice(shelves: Mapping[str, Shelf]) -> list[str]:
    """What we recommend, in sentences; the first one matters most."""
    found: list[str] = []
    if "best" in shelves:
        rows = rows_with(shelves["best"], "table-d", SMOOTHED, *PENALTIES)
        gaps = {n: paired(row[best_of(row, PENALTIES)], row[SMOOTHED]).mean for n, row in rows.items()}
        if gaps:
            told = ", ".join(f"{name} {signed(gap)}" for name, gap in gaps.items())
            found.append(
                f"Before you try a penalty, choose the epoch and a small pseudocount by validation. With both, the "
                f"better of global and gated minus plain EM is: {told} (protocol `best`, Table D)."
            )
    for protocol in WITHOUT_SMOOTHING:
        if protocol in shelves:
            found += _stopping(rows_with(shelves[protocol], "table-b", "vanilla", "gated"), protocol)
            break
    structures = _structure_advice(shelves)
    helps = [f"Try a curvature penalty in this case. {o.text()}." for o in study_lines(shelves).values() if o.helps]
    return [*found, *structures, *helps]


def _stopping(rows: Rows, protocol: str) -> list[str]:
    gaps = {}
    for name, row in rows.items():
        stopped = float(np.mean([record["best"]["test_ll"] for record in row["vanilla"].records]))
        gaps[name] = stopped - max(row[label].mean() for label in row)
    if not gaps:
        return []
    told = ", ".join(f"{name} {signed(gap)}" for name, gap in gaps.items())
    return [
        f"If you train without smoothing, stop by validation. Plain EM at its best epoch, minus the best method at "
        f"its last epoch: {told} (protocol `{protocol}`)."
    ]


def _structure_advice(shelves: Mapping[str, Shelf]) -> list[str]:
    lines = _structure_lines(shelves)
    if not lines:
        return []
    better = [name for name, line in lines.items() if line["gap"] > TIE]
    nodes = float(np.mean([line["nodes shared"] / line["nodes own"] for line in lines.values()]))
    return [
        f"Circuits in which leaves share the hidden variable of their parent need {1 - nodes:.0%} fewer sum nodes on "
        f"average, and score better on {', '.join(better) or 'none'} of {', '.join(lines)} (vanilla, by more than "
        f"{TIE:g} nats)."
    ]


def _structure_lines(shelves: Mapping[str, Shelf]) -> dict[str, dict[str, float]]:
    """Data set -> vanilla and gated of both structures, and how many sum nodes each has."""
    if not {"paper", "paper-own"} <= shelves.keys():
        return {}
    shared, own = (rows_with(shelves[name], "table-b", "vanilla", "gated") for name in ("paper", "paper-own"))
    lines = {}
    for name in shared:
        if name in own:
            parts = {"shared": shared[name], "own": own[name]}
            line = {f"vanilla {kind}": row["vanilla"].mean() for kind, row in parts.items()}
            line |= {f"gated {kind}": paired(row["gated"], row["vanilla"]).mean for kind, row in parts.items()}
            for kind, row in parts.items():
                counts = [found.get("sum_nodes", math.nan) for found in row["vanilla"].curvatures()]
                line[f"nodes {kind}"] = float(np.mean(counts)) if counts else math.nan
            lines[name] = line | {"gap": line["vanilla shared"] - line["vanilla own"]}
    return lines


def both_structures(shelves: Mapping[str, Shelf]) -> str:
    """A table of both structures by the paper's protocol; nothing unless both were run."""
    lines = _structure_lines(shelves)
    if not lines:
        return ""
    rows: list[tuple[Cell, ...]] = []
    for name, line in lines.items():
        scores = [
            Number(line["vanilla shared"]),
            Number(line["vanilla own"]),
            Number(line["gap"], None, 3, signed=True),
        ]
        gaps = [Number(line[f"gated {kind}"], None, 3, signed=True) for kind in ("shared", "own")]
        nodes = [Number(line[f"nodes {kind}"], None, 0) for kind in ("shared", "own")]
        rows.append((name, *scores, *gaps, *nodes))
    heads = (
        *("data set", "vanilla,\nshared leaves", "vanilla,\nown latents", "shared\n- own"),
        *("gated - vanilla,\nshared", "gated - vanilla,\nown", "sum nodes,\nshared", "sum nodes,\nown"),
    )
    return f"## Both structures\n\n{markdown_table(Table(heads, tuple(rows)))}"


def floor_summary(shelves: Mapping[str, Shelf]) -> str:
    """What weights near zero do to the mean of t after plain EM without smoothing; empty where it is little."""
    measured = [
        found
        for protocol in WITHOUT_SMOOTHING
        if protocol in shelves
        for row in shelves[protocol].chosen("table-b").values()
        if "vanilla" in row
        for found in row["vanilla"].curvatures()
        if found.get("floor") and found.get("estimates")
    ]
    lowest = min((found["floor"]["share"] for found in measured), default=0.0)
    if lowest <= DOMINANT_FLOOR_SHARE:
        return ""
    needed = min(found["estimates"]["geometric"]["fractions"]["0.9999"] for found in measured)
    dead, nodes = _rounded_down(lowest), _rounded_down(needed)
    return (
        f"Without smoothing, edges with weights near zero make up at least {dead} of the mean of t, and gates made "
        "from it act on few nodes. Of the geometric mean, which such edges cannot move, 99.99 % need at least "
        f"{nodes} of the nodes: so estimated, t is spread as the paper says even without smoothing."
    )


def _rounded_down(share: float) -> str:
    """A share of which `at least` is true."""
    return f"{math.floor(1000 * share) / 10:.1f}%"


@dataclass(frozen=True)
class StudyLine:
    """The outcome of a study."""

    title: str
    counts: Mapping[str, tuple[int, int, int]]
    """Method or rule -> clear gains, clear losses, and of how many cases."""

    @property
    def helps(self) -> bool:
        """Whether some method, or some rule by the trace, has more clear gains than losses."""
        return any(gains > losses for label, (gains, losses, _) in self.counts.items() if label != BY_VALIDATION)

    def text(self) -> str:
        """`Scarce data: global 1 clear gain, 2 losses of 10; gated ...`."""
        told = []
        for label, (gains, losses, cases) in self.counts.items():
            ends = ("" if gains == 1 else "s", "" if losses == 1 else "es")
            told.append(f"{label} {gains} clear gain{ends[0]}, {losses} loss{ends[1]} of {cases}")
        return f"{self.title[0].upper()}{self.title[1:]}: {'; '.join(told)}"


def study_lines(shelves: Mapping[str, Shelf]) -> dict[str, StudyLine]:
    """Study -> its outcome; {} if none was run."""
    found = {}
    for shelf in shelves.values():
        for name in STUDIES:
            report = shelf.report(name)
            if report is not None:
                found[name] = _study_line(report)
    return found


def _study_line(report: Report) -> StudyLine:
    counts = {}
    for label in dict.fromkeys(value["label"] for value in report.values if value["minus_base"] is not None):
        of = [v for v in report.values if v["label"] == label and v["minus_base"] is not None]
        clear = [v["minus_base"] for v in of if v["p_value"] is not None and v["p_value"] < SIGNIFICANT]
        gains, losses = (sum(sign * gap > TIE for gap in clear) for sign in (1, -1))
        counts[label] = (gains, losses, len(of))
    return StudyLine(report.title.removeprefix("Study: "), counts)


def study_summary(lines: Mapping[str, StudyLine]) -> str:
    """In how many studies a penalty helps, in one sentence; empty if none was run."""
    if not lines:
        return ""
    helps = [line.title for line in lines.values() if line.helps]
    told = f" ({'; '.join(helps)})" if helps else ""
    return (
        f"After fair tuning, a method that uses curvature has more clear gains than clear losses in {len(helps)} of "
        f"{len(lines)} studies{told}."
    )
