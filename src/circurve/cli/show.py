"""Printing: one JSON document, or tables that fit 80 columns, on standard output."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

__all__ = ["number", "print_facts", "print_json", "print_line", "print_table", "progress"]


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON document. JSON has no infinity: such a number becomes null, and `notes` says what it was."""
    notes: list[str] = []
    plain = _plain(dict(document), "", notes)
    print(json.dumps({**plain, "notes": notes}, indent=2, allow_nan=False))


def _plain(value: Any, name: str, notes: list[str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item, f"{name}.{key}" if name else str(key), notes) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, name, notes) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        why = ": some row has probability zero" if name.endswith("_ll") and value == -math.inf else ""
        notes.append(f"{name} is {value}{why}")
        return None
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def print_table(heads: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> None:
    """A table whose first column is text and whose other columns are numbers, unless their heads end in a space."""
    table = Table(box=SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for place, head in enumerate(heads):
        text = place == 0 or head.endswith(" ")
        table.add_column(head.strip(), justify="left" if text else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    _console().print(table)


def print_facts(facts: Mapping[str, str]) -> None:
    """Labels and what there is to say about each, one below the other."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in facts.items():
        grid.add_row(label, text)
    _console().print(grid)


def print_line(text: str) -> None:
    """One line as it is."""
    _console().print(text, soft_wrap=True)


def progress(text: str) -> None:
    """A line about what goes on, on standard error, for people only: not shown where that is not a terminal."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


def number(value: float | None, digits: int = 4) -> str:
    """A number for a table; a dash for None."""
    return "-" if value is None else f"{value:,.{digits}f}"


def _console() -> Console:
    return Console(markup=False, highlight=False, emoji=False)
