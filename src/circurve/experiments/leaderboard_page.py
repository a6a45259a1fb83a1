"""One Markdown page about the leaderboard: findings first, then the table, the figure and the times; from records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from circurve.errors import OptionError
from circurve.experiments.leaderboard import FILE, KINDS, LEADERBOARD
from circurve.experiments.leaderboard_report import Line, findings, leaderboard_lines, leaderboard_report
from circurve.experiments.page import folded
from circurve.experiments.records import Record, read_records
from circurve.experiments.table import Cell, Number, Table, as_markdown, markdown_table

__all__ = ["leaderboard_page"]

INTRODUCTION = """# Leaderboard

The best test log-likelihoods that one command reaches on binary data sets, beside published ones. This page is made
from the result records beside it by `python docs/make_leaderboard.py`; every number and every sentence is computed from
them.
"""


def leaderboard_page(folder: Path, link: str) -> str:
    """The page; `folder` is what `circurve reproduce leaderboard --out FOLDER` left, `link` how the page refers to it.

    Records in folders inside it, such as FOLDER/cpu, add their times: they were made on other hardware.
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
        markdown_table(_times([*lines, *leaderboard_lines(others)])),
    ]
    return "\n\n".join(part.rstrip() for part in parts if part) + "\n"


def _read(folder: Path) -> list[Record]:
    """The records may be compressed."""
    return [record for ending in ("", ".gz") for record in read_records(folder / f"{FILE}{ending}")]


def _latest(records: Sequence[Record]) -> list[Record]:
    """Of each data set and seed the last record: an earlier one was made with another recipe, or other data."""
    return list({(record["dataset"], record["seed"]): record for record in records}.values())


def _times(lines: Sequence[Line]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for line in sorted(lines, key=lambda line: line.dataset):
        hardware = "; ".join(dict.fromkeys(record["environment"]["hardware"] for record in line.records))
        seconds = [Number(line.spread(kind, "seconds").mean, digits=1) for kind in ("chow_liu", *KINDS)]
        rows.append((line.dataset, hardware, *seconds))
    heads = ("data set", "hardware", "Chow-Liu tree", "single circuits", "ensemble", "joint training")
    return Table(heads, tuple(rows), text_columns=(0, 1))
