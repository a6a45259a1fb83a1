"""Text from files as it may be shown or written: a column's name must not control a terminal or run in a
spreadsheet."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from circurve.errors import warn_user
from circurve.words import counted

__all__ = ["harmless_rows", "visible"]

CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that move a cursor, change colours or the direction of a line; the end of a line is not one of them."""

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A cell that begins with one of these is run by spreadsheets, unless it is a number."""


def visible(text: str) -> str:
    """The text with control characters written out: `\\x1b` for the one that begins an escape sequence."""
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def harmless_rows(rows: Iterable[Sequence[object]]) -> Iterator[list[object]]:
    """Rows for a text file: an apostrophe in front of a text that a spreadsheet would read as a formula.

    One warning at the end says how many there were.
    """
    changed = 0
    for row in rows:
        cells = [f"'{cell}" if isinstance(cell, str) and _is_formula(cell) else cell for cell in row]
        changed += sum(new is not old for new, old in zip(cells, row, strict=True))
        yield cells
    if changed:
        cells_start = counted(changed, "cell starts", "cells start")
        warn_user(
            f"{cells_start} like a formula (=, +, -, @): each got an apostrophe in front, so that no spreadsheet "
            f"runs it; write .parquet to keep cells unchanged"
        )


def _is_formula(text: str) -> bool:
    from circurve.data.convert import number_of

    return text.startswith(FORMULA) and number_of(text) is None
