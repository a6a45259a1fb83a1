"""Printing: one JSON document, or tables that fit 80 columns, on standard output."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from textwrap import TextWrapper, wrap
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from circurve.cli.safe_text import visible
from circurve.data import Dataset
from circurve.inputs import Family
from circurve.words import counted

__all__ = [
    "NOTES",
    "document",
    "family_label",
    "measured",
    "new_console",
    "number",
    "print_facts",
    "print_heading",
    "print_json",
    "print_scores",
    "print_table",
    "print_text",
    "progress",
    "significant",
    "sizes",
    "wide",
]

NOTES = "notes"
"""The field of a report that says why numbers are missing."""

WIDTH, WIDE = 80, 110
FOLDED = 12
"""Text in tables may be folded to this width, so that numbers need not be."""


def print_json(fields: Mapping[str, Any]) -> None:
    """Print one JSON document; see `document`."""
    print(json.dumps(document(fields), indent=2, allow_nan=False))


def document(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields as plain JSON values. JSON has no infinity: such a number is null, and `notes` says what it was."""
    notes: list[str] = list(fields.get(NOTES, ()))
    return {**{key: _plain(value, key, notes) for key, value in fields.items() if key != NOTES}, NOTES: notes}


def _plain(value: Any, name: str, notes: list[str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item, f"{name}.{key}", notes) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, name, notes) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        why = ": at least one row has probability zero" if name.endswith("_ll") and value == -math.inf else ""
        notes.append(f"{name} is {value}{why}")
        return None
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def print_table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None, texts: Collection[str] = ()
) -> None:
    """A table whose first column is text and whose other columns are numbers, unless their heads are in `texts`.

    Text is folded where it does not fit, numbers never are.
    """
    if title is not None:
        print_heading(title)
    heads = [visible(head) for head in heads]
    cells = [tuple(visible(cell) for cell in row) for row in rows]
    table, needed = Table(box=SIMPLE_HEAD, pad_edge=False), -1
    for place, head in enumerate(heads):
        lines = [line for text in (head, *(row[place] for row in cells)) for line in text.splitlines()]
        width = max((len(line) for line in lines), default=0)
        if place == 0 or head in texts:
            table.add_column(head, overflow="fold")
            width = min(width, FOLDED)
        else:
            table.add_column(head, justify="right", no_wrap=True, min_width=width)
        needed += width + 3
    for row in cells:
        table.add_row(*row)
    console = new_console()
    console.width = max(console.width, needed)
    console.print(table)


def print_facts(facts: Mapping[str, str | None]) -> None:
    """Labels and facts, one per line; a fact that is None is left out. Paths are never broken."""
    told = {label: visible(text) for label, text in facts.items() if text is not None}
    indent = 2 + max((len(label) for label in told), default=0)
    console = new_console()
    for label, text in told.items():
        lines = wrap(text, WIDTH - indent, break_long_words=False, break_on_hyphens=False) or [""]
        console.print(Text(f"{label:<{indent}}", "dim").append(lines[0], "not dim"), soft_wrap=True)
        for line in lines[1:]:
            console.print(Text(" " * indent + line), soft_wrap=True)


def print_scores(title: str, report: Mapping[str, Any]) -> None:
    """The log-likelihoods of a report, the sharpness where it has one for each part, and the rows they come from."""
    traces = report.get("sharpness_by_split")
    rows = [
        (split, number(report[f"{split}_ll"]), *([significant(traces[split])] if traces else []), f"{count:,}")
        for split, count in report["rows"].items()
        if count is not None
    ]
    print_table(("", "log-likelihood", *(["sharpness"] if traces else []), "rows"), rows, title)


def measured(report: Mapping[str, Any]) -> dict[str, str | None]:
    """The facts that `fit` and `evaluate` have in common."""
    return {
        "degree of overfitting": None if report["dof"] is None else number(report["dof"]),
        "sharpness": None if report["sharpness"] is None else significant(report["sharpness"]),
        "parameters": f"{report['parameters']:,}",
        "note": "; ".join(report.get(NOTES, ())) or None,
    }


def print_heading(text: str) -> None:
    """One bold line."""
    new_console().print(visible(text), style="bold", soft_wrap=True)


def print_text(*paragraphs: str) -> None:
    """A paragraph, or several as a list; an empty line after them."""
    bullet = "- " if len(paragraphs) > 1 else ""
    wrapper = TextWrapper(WIDTH, initial_indent=bullet, subsequent_indent=" " * len(bullet), break_on_hyphens=False)
    new_console().print("\n".join(wrapper.fill(visible(text)) for text in paragraphs), soft_wrap=True, end="\n\n")


def sizes(data: Dataset) -> str:
    """`digits: 64 columns; 1,257 training, 270 validation, 270 test rows`."""
    parts = {"training": data.train, "validation": data.valid, "test": data.test}
    rows = ", ".join(f"{len(part):,} {name}" for name, part in parts.items() if part is not None)
    return f"{data.name}: {counted(data.train.shape[1], 'column')}; {rows} rows"


def progress(text: str) -> None:
    """A line of progress on standard error, for people only: it is not shown if standard error is not a terminal."""
    if sys.stderr.isatty():
        print(visible(text), file=sys.stderr)


def number(value: float | None, digits: int = 4) -> str:
    """A number for a table; a dash for None."""
    return "-" if value is None else f"{value:,.{digits}f}"


def significant(value: float | None, digits: int = 4) -> str:
    """A number of any size for a table, with `digits` significant digits; a dash for None."""
    if value is None or not math.isfinite(value) or value == 0:
        return number(value, 0)
    size = int(f"{value:.{digits - 1}e}".partition("e")[2])  # after rounding: 0.99999 is 1.000
    return f"{value:,.{max(0, digits - 1 - size)}f}" if -4 <= size < 7 else f"{value:.{digits - 1}e}"


def family_label(family: Family) -> str:
    """`Bernoulli`, `Categorical(states=4)`, `Gaussian`; numbers that are not whole, such as floors, are left out."""
    options = [f"{name}={value}" for name, value in vars(family).items() if isinstance(value, int)]
    return type(family).__name__ + (f"({', '.join(options)})" if options else "")


def wide() -> bool:
    """Whether the terminal is wide enough for more than the usual columns."""
    return new_console().width >= WIDE


def new_console() -> Console:
    """A console on standard output, at least WIDTH wide."""
    console = Console(markup=False, highlight=False, emoji=False)
    console.width = max(console.width, WIDTH)  # lines that the terminal wraps are better than truncated numbers
    return console
