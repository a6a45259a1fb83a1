"""The leaderboard as a table, a figure and findings in words, and the page of them; all computed from its records."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from circurve.errors import OptionError
from circurve.reproduction.comparisons import Published, best_published, not_compared
from circurve.reproduction.leaderboard import FILE, KINDS, LEADERBOARD
from circurve.reproduction.plan import provenance
from circurve.reproduction.records import Record, of_debd, read_records
from circurve.reproduction.summary import MeanStd, spread
from circurve.reproduction.table import Cell, Number, Report, Table, as_markdown, folded, mark_best, markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "Line",
    "draw_leaderboard",
    "findings",
    "leaderboard_lines",
    "leaderboard_page",
    "leaderboard_report",
]

TITLE = "Leaderboard: test log-likelihood by data set"
NAMES = {"chow_liu": "Chow-Liu", "single": "single", "ensemble": "ensemble", "joint": "joint", "record": "record"}
COLUMNS = (
    *("dataset", "kind", "mean", "std", "valid_ll", "seeds", "units", "members", "parameters", "seconds"),
    *("published", "published_model", "published_source"),
)
TIE_MARGIN = 0.005
"""Less than this is no difference: published numbers have two digits after the point."""

LINEAR_GAP = 0.1
"""The figure's scale is linear up to this gap, in nats, and logarithmic beyond."""


@dataclass(frozen=True)
class Line:
    """All seeds of one data set."""

    dataset: str
    records: tuple[Record, ...]

    @property
    def published(self) -> Published | None:
        """The best published number, if there is one and the files are those of DEBD."""
        return best_published(self.dataset) if all(of_debd(record) for record in self.records) else None

    def values(self, kind: str, name: str = "test_ll") -> list[float]:
        """A score of each seed; `record` is the kind that validation chose. NaN where it is not known."""
        found = [record["scores"][record["record"] if kind == "record" else kind] for record in self.records]
        return [math.nan if scores is None or scores.get(name) is None else float(scores[name]) for scores in found]

    def spread(self, kind: str, name: str = "test_ll") -> MeanStd:
        """Mean and standard deviation over seeds."""
        return spread(self.values(kind, name))

    @property
    def margin(self) -> float:
        """The record minus the best published number; NaN without one."""
        return math.nan if self.published is None else self.spread("record").mean - self.published.test_ll


def leaderboard_lines(records: Sequence[Record]) -> list[Line]:
    """By data set, in the order of the records."""
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record["dataset"], []).append(record)
    return [Line(name, tuple(sorted(group, key=lambda r: r["seed"]))) for name, group in found.items()]


def leaderboard_report(records: Sequence[Record]) -> Report:
    """Table, choices, and how the numbers came about."""
    lines = leaderboard_lines(records)
    notes = (
        *_recipes(records),
        "All choices are made by validation likelihood: units, pseudocount, epoch, members, weights, and which of "
        "single, ensemble and joint is the record of a seed. Test rows play no part. (The recipe itself was chosen by "
        "validation, too, but after test scores of nltcs, plants, baudio, dna and bbc had been seen.)",
        "Mean ± standard deviation (n - 1) over seeds, in nats; best of single, ensemble and joint in bold.",
        *_about_published(lines),
        *not_compared(records),
        *provenance(records),
    )
    values = tuple(_values(line, kind) for line in lines for kind in NAMES)
    sources = [_sources(lines)] if any(line.published is not None for line in lines) else []
    return Report(LEADERBOARD, TITLE, (_main(lines), _choices(lines), *sources), notes, COLUMNS, values)


def _about_published(lines: Sequence[Line]) -> list[str]:
    sources = dict.fromkeys(line.published.source for line in lines if line.published is not None)
    quoted = f"Published: the best of the numbers that were checked at their source ({'; '.join(sources)})."
    return [f"{quoted} Better ones that we could not check may exist; none of them is quoted."] if sources else []


def _recipes(records: Sequence[Record]) -> list[str]:
    """The recipe that most records have, and which records have another one."""
    texts = [json.dumps(record["recipe"], sort_keys=True) for record in records]
    usual = max(dict.fromkeys(texts), key=texts.count)
    notes = [_protocol(json.loads(usual))]
    others = [record for record, text in zip(records, texts, strict=True) if text != usual]
    if others:
        known = json.loads(usual)
        named = [
            f"{record['dataset']}, seed {record['seed']} ({_difference(record['recipe'], known)})" for record in others
        ]
        notes.append(f"Made with another recipe: {'; '.join(named)}.")
    return notes


def _difference(recipe: Record, usual: Record) -> str:
    """`members 32`: what differs from the usual recipe."""
    return ", ".join(f"{name} {value}" for name, value in recipe.items() if usual.get(name) != value)


def _protocol(recipe: Record) -> str:
    """The recipe in words."""
    joint, units = recipe["joint"], ", ".join(str(size) for size in recipe["units"])
    multiples = ", ".join(f"{factor:g}" for factor in recipe["member_multiples"])
    chosen = f" and {multiples} times the chosen number" if multiples else ""
    grown = f", {recipe['boosted']} of them grown on weighted rows" if recipe["boosted"] else ""
    pool = "; all single circuits are candidates too" if recipe["pool_singles"] else ""
    patience = f"an end after {recipe['patience']} epochs without gain; " if recipe["patience"] else ""
    return (
        f"Protocol record: single circuits of {units} units with pseudocounts of "
        f"{_listed(recipe['pseudocounts'])}, until two sizes in a row are worse; {recipe['members']} members of "
        f"{_listed(recipe['member_units'])} units{chosen}, with pseudocounts of "
        f"{_listed(recipe['member_pseudocounts'])}, on the tree of all rows and trees of resampled rows{grown}{pool}; "
        f"{patience}joint training for at most {joint['epochs']} epochs, step {joint['step']}, batches of "
        f"{joint['batch_size'] or 'all rows'}; members before and after joint training are mixed."
    )


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _main(lines: Sequence[Line]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for line in lines:
        ours = mark_best([Number.of(line.spread(kind)) for kind in KINDS])
        known = line.published
        theirs: tuple[Cell, ...] = ("-", "-")
        if known is not None:
            theirs = (Number(known.test_ll), Number(line.margin, digits=2, signed=True))
        tree = Number(line.spread("chow_liu").mean)
        rows.append((line.dataset, tree, *ours, Number.of(line.spread("record")), *theirs))
    heads = ("data set", "Chow-Liu\ntree", "single\ncircuit", "ensemble", "after joint\ntraining", "record")
    return Table((*heads, "published", "record -\npublished"), tuple(rows))


def _choices(lines: Sequence[Line]) -> Table:
    """What validation chose, seed by seed, and what it took."""
    rows: list[tuple[Cell, ...]] = []
    for line in lines:
        chosen = (
            _by_seed([record["scores"]["single"]["units"] for record in line.records]),
            _by_seed([record["scores"]["ensemble"]["members"] for record in line.records]),
            _by_seed([record["record"] for record in line.records]),
        )
        seconds = [Number(line.spread(kind, "seconds").mean, digits=0) for kind in ("chow_liu", *KINDS)]
        rows.append((line.dataset, *chosen, *seconds))
    heads = ("data set", "units", "members", "record", "Chow-Liu s", "single s", "ensemble s", "joint s")
    title = "Chosen by validation, seed by seed, and mean seconds"
    return Table(heads, tuple(rows), title, text_columns=(0, 1, 2, 3))


def _by_seed(values: Sequence[object]) -> str:
    return ", ".join(str(value) for value in values)


def _sources(lines: Sequence[Line]) -> Table:
    rows = tuple((line.dataset, item.model, item.source) for line in lines if (item := line.published) is not None)
    return Table(("data set", "model", "source"), rows, "Where published numbers come from", text_columns=(0, 1, 2))


def _values(line: Line, kind: str) -> Record:
    found, known = line.spread(kind), line.published
    return {
        **{"dataset": line.dataset, "kind": kind, "mean": found.mean, "std": found.std, "seeds": len(line.records)},
        "valid_ll": line.spread(kind, "valid_ll").mean,
        **{name: line.spread(kind, name).mean for name in ("units", "members", "parameters", "seconds")},
        "published": known and known.test_ll,
        "published_model": known and known.model,
        "published_source": known and known.source,
    }


def findings(lines: Sequence[Line]) -> list[str]:
    """What the records say, in sentences: against published numbers, ensembles, joint training, the number of units."""
    return [sentence for sentence in (_against(lines), _ensembles(lines), _joint(lines), _units(lines)) if sentence]


def _against(lines: Sequence[Line]) -> str:
    margins = {line.dataset: line.margin for line in lines if line.published is not None}
    if not margins:
        return ""
    reached = {name: gap for name, gap in margins.items() if gap >= -TIE_MARGIN}
    short = {name: -gap for name, gap in margins.items() if gap < -TIE_MARGIN}
    text = (
        f"On {len(reached)} of {len(margins)} data sets our record is at or above the best published number that we "
        "could check"
    )
    text += f", by {_extremes(reached)}." if reached else "."
    return text + (f" It is below by {_gaps(short)}." if short else "")


def _ensembles(lines: Sequence[Line]) -> str:
    gains = {line.dataset: line.spread("ensemble").mean - line.spread("single").mean for line in lines}
    above = [name for name, gain in gains.items() if gain > TIE_MARGIN]
    return (
        f"An ensemble is better than the best single circuit on {len(above)} of {len(lines)} data sets: "
        f"{_mean(gains):+.2f} nats on average, {_extremes(gains)}."
    )


def _joint(lines: Sequence[Line]) -> str:
    lines = [line for line in lines if not math.isnan(line.spread("joint").mean)]
    if not lines:
        return ""
    gains = {line.dataset: line.spread("joint").mean - line.spread("ensemble").mean for line in lines}
    above = [name for name, gain in gains.items() if gain > TIE_MARGIN]
    chosen = sum(record["record"] == "joint" for line in lines for record in line.records)
    runs = sum(len(line.records) for line in lines)
    return (
        f"Joint training of the whole mixture makes it better on {len(above)} of {len(lines)} data sets: "
        f"{_mean(gains):+.2f} nats on average, {_extremes(gains)}. Validation prefers the mixture after joint "
        f"training in {chosen} of {runs} runs."
    )


def _units(lines: Sequence[Line]) -> str:
    chosen = {line.dataset: line.spread("single", "units").mean for line in lines}
    few, many = min(chosen, key=lambda name: chosen[name]), max(chosen, key=lambda name: chosen[name])
    if few == many:
        return f"The best single circuit has {chosen[few]:g} units on average over seeds.{_largest(lines)}"
    return (
        f"The best number of units of a single circuit depends on the data: on average over seeds from "
        f"{chosen[few]:.4g} ({few}) to {chosen[many]:.4g} ({many}).{_largest(lines)}"
    )


def _largest(lines: Sequence[Line]) -> str:
    """A sentence about choices at the end of the grid; empty if there are none."""
    records = [record for line in lines for record in line.records]
    at_end = [r for r in records if r["scores"]["single"]["units"] == max(r["recipe"]["units"])]
    if not at_end:
        return ""
    sizes = " or ".join(str(size) for size in sorted({max(record["recipe"]["units"]) for record in at_end}))
    return f" It is the largest that was tried, {sizes}, in {len(at_end)} of {len(records)} runs: more may be better."


def _extremes(gaps: Mapping[str, float]) -> str:
    """`+0.01 (nltcs) to +1.16 (dna)`."""
    least, most = min(gaps, key=lambda name: gaps[name]), max(gaps, key=lambda name: gaps[name])
    if least == most:
        return f"{gaps[most]:+.2f} ({most})"
    return f"{gaps[least]:+.2f} ({least}) to {gaps[most]:+.2f} ({most})"


def _gaps(gaps: Mapping[str, float]) -> str:
    return ", ".join(f"{gap:.2f} on {name}" for name, gap in gaps.items())


def _mean(gaps: Mapping[str, float]) -> float:
    return sum(gaps.values()) / len(gaps)


def draw_leaderboard(lines: Sequence[Line]) -> Figure:
    """Test log-likelihood minus the best published one; without any, minus that of the Chow-Liu tree; columns that are
    not discrete have no such tree: then minus that of the single circuit."""
    from circurve.plots.style import grid_of_panels, legend_above, name_axes, tidy  # noqa: PLC0415 - slow to import

    base, numbers = _bases(lines)
    shown = [line for line in lines if line.dataset in numbers]
    figure, axes = grid_of_panels(1, height=0.5 + 0.22 * len(shown))
    figure.set_size_inches(6.9, 0.9 + 0.24 * len(shown))
    ax = axes[0]
    tidy(ax)
    ax.axvline(0, color="#222222", linewidth=0.8)
    handles = []
    for kind, mark, colour in zip(KINDS, "osD", ("#3b3b3b", "#0072b2", "#d55e00"), strict=True):
        gaps = [line.spread(kind).mean - numbers[line.dataset] for line in shown]
        places = range(len(shown))
        (handle,) = ax.plot(gaps, places, mark, color=colour, markersize=4, label=NAMES[kind], linestyle="none")
        handles.append(handle)
    ax.set_yticks(range(len(shown)), [line.dataset for line in shown])
    if max(abs(end) for end in ax.get_xlim()) > LINEAR_GAP:
        ax.set_xscale("symlog", linthresh=LINEAR_GAP)
    ax.xaxis.set_major_formatter("{x:+g}")
    ax.set_ylim(len(shown) - 0.5, -0.5)
    name_axes(axes, f"test log-likelihood minus {base}, nats", "")
    legend_above(figure, handles)
    return figure


def _bases(lines: Sequence[Line]) -> tuple[str, dict[str, float]]:
    """What a figure compares with, and its score on the data sets that have it."""
    published = {line.dataset: line.published.test_ll for line in lines if line.published is not None}
    if published:
        return "the best published one", published
    trees = {line.dataset: line.spread("chow_liu").mean for line in lines}
    known = {name: score for name, score in trees.items() if not math.isnan(score)}
    if known:
        return "that of the Chow-Liu tree", known
    return "that of the single circuit", {line.dataset: line.spread("single").mean for line in lines}


INTRODUCTION = """# Leaderboard

The best test log-likelihoods that one command reaches on binary data sets, compared with published ones.
"""

CLOSING = """`python docs/make_leaderboard.py` makes this page from the result records next to it; every number and
every sentence is computed from them."""


def leaderboard_page(folder: Path, link: str, remark: str = "") -> str:
    """The page; `folder` is what `circurve reproduce leaderboard --out FOLDER` left, `link` how the page refers to it.

    Records in folders inside it, such as FOLDER/cpu, add their times: they were made on other hardware. remark: what
    a reader has to know of the times.
    """
    records = _latest(_read(folder))
    if not records:
        raise OptionError(f"{folder} has no {FILE}: make one with circurve reproduce {LEADERBOARD} --out {folder}")
    lines, report = leaderboard_lines(records), leaderboard_report(records)
    listed = "\n".join(f"{number}. {sentence}" for number, sentence in enumerate(findings(lines), 1))
    others = [record for inside in sorted(folder.iterdir()) if inside.is_dir() for record in _latest(_read(inside))]
    picture = f"![{report.title}]({link}/{LEADERBOARD}.svg)" if (folder / f"{LEADERBOARD}.svg").exists() else ""
    parts = [
        INTRODUCTION,
        listed,
        as_markdown(replace(report, notes=()), level=2),
        picture,
        folded(report.notes),
        "## Seconds for one seed",
        remark,
        markdown_table(_times([*lines, *leaderboard_lines(others)])),
        CLOSING,
    ]
    return "\n\n".join(part.rstrip() for part in parts if part) + "\n"


def _read(folder: Path) -> list[Record]:
    """The records may be compressed."""
    return [record for ending in ("", ".gz") for record in read_records(folder / f"{FILE}{ending}")]


def _latest(records: Sequence[Record]) -> list[Record]:
    """The last record of each data set and seed: an earlier one was made with another recipe, or other data."""
    return list({(record["dataset"], record["seed"]): record for record in records}.values())


def _times(lines: Sequence[Line]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for line in sorted(lines, key=lambda line: line.dataset):
        hardware = "; ".join(dict.fromkeys(record["environment"]["hardware"] for record in line.records))
        seconds = [Number(line.spread(kind, "seconds").mean, digits=1) for kind in ("chow_liu", *KINDS)]
        rows.append((line.dataset, hardware, *seconds))
    heads = ("data set", "hardware", "Chow-Liu tree", "single circuits", "ensemble", "joint training")
    return Table(heads, tuple(rows), text_columns=(0, 1))
