"""Small pieces of HTML for notebooks: facts and tables that are readable on light and dark pages."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence

__all__ = ["card", "facts_table", "rows_table"]

CELL = "padding:2px 14px 2px 0;text-align:left;vertical-align:top;border:0"
NUMBER = "padding:2px 0 2px 14px;text-align:right;border:0;font-variant-numeric:tabular-nums"
LINE = "border-bottom:1px solid rgba(127,127,127,.35)"


def card(title: str, *parts: str) -> str:
    """A heading with pieces of HTML below; the title is escaped, the parts are HTML already."""
    return (
        f'<div style="max-width:60em"><p style="margin:0 0 4px"><b>{html.escape(title)}</b></p>{"".join(parts)}</div>'
    )


def facts_table(facts: Mapping[str, str | None]) -> str:
    """Facts by name; a fact that is None is left out."""
    rows = "".join(
        f'<tr style="background:none"><td style="{CELL};opacity:.75">{html.escape(name)}</td>'
        f'<td style="{CELL}">{html.escape(text)}</td></tr>'
        for name, text in facts.items()
        if text is not None
    )
    return f'<table style="border-collapse:collapse;margin:0 0 6px">{rows}</table>'


def rows_table(heads: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """A table whose first `texts` columns are text and whose other columns are numbers."""

    def cells(tag: str, row: Sequence[str], more: str = "") -> str:
        styles = [CELL if place < texts else NUMBER for place in range(len(row))]
        made = "".join(
            f'<{tag} style="{style};{more}">{html.escape(cell)}</{tag}>'
            for style, cell in zip(styles, row, strict=True)
        )
        return f'<tr style="background:none">{made}</tr>'

    body = "".join(cells("td", row) for row in rows)
    head = cells("th", heads, LINE)
    return f'<table style="border-collapse:collapse;margin:0 0 6px"><thead>{head}</thead><tbody>{body}</tbody></table>'
