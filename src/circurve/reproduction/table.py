"""A table as data, and as text: for the terminal, Markdown, LaTeX (booktabs) and CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from circurve.reproduction.records import Record
from circurve.reproduction.summary import MeanStd

__all__ = ["FORMATS", "Cell", "Number", "Report", "Table", "folded", "mark_best", "markdown_table", "print_report"]

STYLES = {"best": "bold", "second": "underline", None: ""}
MARKED = {"best": "**{}**", "second": "<u>{}</u>", None: "{}"}
LATEX = {"best": r"\textbf{{{}}}", "second": r"\underline{{{}}}", None: "{}"}
ESCAPES = {"\\": r"\textbackslash{}", **{c: f"\\{c}" for c in "&%$#_{}"}, "~": r"\textasciitilde{}", "^": r"\^{}"}


@dataclass(frozen=True)
class Number:
    """A number to show."""

    mean: float
    std: float | None = None
    digits: int = 2
    mark: Literal["best", "second"] | None = None
    signed: bool = False

    @classmethod
    def of(cls, values: MeanStd) -> Number:
        """Mean and standard deviation over seeds."""
        return cls(values.mean, values.std)

    def text(self) -> str:
        """`-12.66±0.02`; a dash for what is not known."""
        if math.isnan(self.mean):
            return "-"
        sign = "+" if self.signed else ""
        text = f"{self.mean:{sign}.{self.digits}f}"
        if float(text) == 0:
            text = text.lstrip("+-")  # no -0.00
        return text if self.std is None else f"{text}±{self.std:.{self.digits}f}"


Cell: TypeAlias = Number | str
"""Text is shown as it is."""


@dataclass(frozen=True)
class Table:
    """Heads and rows; text columns are flushed left, all others right."""

    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""
    text_columns: tuple[int, ...] = (0,)

    @property
    def flat_heads(self) -> list[str]:
        """The heads, each on one line."""
        return [head.replace("\n", " ") for head in self.heads]


@dataclass(frozen=True)
class Report:
    """All there is to say about one table of the paper."""

    name: str
    title: str
    tables: tuple[Table, ...]
    """The main one first."""

    notes: tuple[str, ...]
    """How the numbers came about: protocol, choices, and what to run to get them again."""

    columns: tuple[str, ...]
    values: tuple[Record, ...] = field(repr=False)
    """The numbers without rounding, one row for each, for the CSV file."""

    findings: tuple[str, ...] = ()
    """The findings, in sentences that can be read separately."""


def mark_best(numbers: Sequence[Number]) -> list[Number]:
    """Mark the highest mean as best and the next as second; nothing to mark where there is no choice."""
    order = sorted((i for i, n in enumerate(numbers) if not math.isnan(n.mean)), key=lambda i: -numbers[i].mean)
    marked = list(numbers)
    if len(order) > 1:
        marked[order[0]] = replace(numbers[order[0]], mark="best")
        marked[order[1]] = replace(numbers[order[1]], mark="second")
    return marked


def print_report(report: Report, console: Console) -> None:
    """For the terminal; a table that is wider than it is not cut, the terminal breaks its lines."""
    console.print(report.title, style="bold", soft_wrap=True)
    for finding in report.findings:
        console.print(finding)
    for table in report.tables:
        _print_table(table, console)
    for note in report.notes:
        console.print(note, style="dim")


def _print_table(table: Table, console: Console) -> None:
    shown = RichTable(box=SIMPLE_HEAD, pad_edge=False, title=table.title or None, title_justify="left", padding=(0, 1))
    needed = 0
    for place, head in enumerate(table.heads):
        width = max(len(text) for text in (*head.split("\n"), *(_plain(row[place]) for row in table.rows)))
        shown.add_column(head, justify="left" if place in table.text_columns else "right", no_wrap=True)
        needed += width + 3
    for row in table.rows:
        shown.add_row(*(Text(_plain(cell), STYLES[_mark(cell)]) for cell in row))
    before = console.width
    console.width = max(before, needed)  # lines that the terminal wraps are better than truncated numbers
    console.print(shown)
    console.width = before


def as_markdown(report: Report, level: int = 1) -> str:
    """Title, as a heading of this level, tables and notes."""
    parts = [f"{'#' * level} {report.title}"]
    parts += ["\n".join(f"- {finding}" for finding in report.findings)] if report.findings else []
    for table in report.tables:
        parts += [f"**{table.title}**"] if table.title else []
        parts.append(markdown_table(table))
    parts += ["\n".join(f"- {note}" for note in report.notes)] if report.notes else []
    return "\n\n".join(parts) + "\n"


def markdown_table(table: Table) -> str:
    """A table with marks; numbers flushed right."""
    rules = ["---" if place in table.text_columns else "---:" for place in range(len(table.heads))]
    rows = [[MARKED[_mark(cell)].format(_plain(cell)) for cell in row] for row in table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in [table.flat_heads, rules, *rows])


def as_latex(report: Report) -> str:
    r"""The main table for a document with booktabs; its notes are comments, so that nothing is lost in copying."""
    table = report.tables[0]
    columns = "".join("l" if place in table.text_columns else "r" for place in range(len(table.heads)))
    body = [" & ".join(_latex(cell) for cell in row) + r" \\" for row in table.rows]
    lines = [
        *(f"% {note}" for note in report.notes),
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_escaped(report.title)}}}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        " & ".join(_escaped(head) for head in table.flat_heads) + r" \\",
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def as_csv(report: Report) -> str:
    """The unrounded numbers, one row for each; an empty field for what is not known."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(report.columns)
    for row in report.values:
        found = [row.get(column) for column in report.columns]
        writer.writerow(["" if isinstance(value, float) and math.isnan(value) else value for value in found])
    return text.getvalue()


FORMATS: dict[str, Callable[[Report], str]] = {"md": as_markdown, "csv": as_csv, "tex": as_latex}
"""File name ending -> what to write there."""


def _plain(cell: Cell) -> str:
    return cell.text() if isinstance(cell, Number) else cell


def _mark(cell: Cell) -> str | None:
    return cell.mark if isinstance(cell, Number) else None


def _latex(cell: Cell) -> str:
    text = _plain(cell)
    number = isinstance(cell, Number) and text != "-"
    return LATEX[_mark(cell)].format(_escaped(text).replace("-", "$-$") if number else _escaped(text))


def _escaped(text: str) -> str:
    return "".join(ESCAPES.get(c, c) for c in text).replace("±", r"$\pm$")


def folded(notes: Sequence[str]) -> str:
    """How the numbers were made, folded away."""
    lines = "\n".join(f"- {note}" for note in notes)
    return f"<details><summary>How these numbers came about</summary>\n\n{lines}\n\n</details>"
