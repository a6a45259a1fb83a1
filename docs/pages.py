"""What the pages made from result files share."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["has", "load", "origin", "table", "wrapped"]

RESULTS = Path(__file__).parent.parent / "benchmarks" / "results"

WIDTH = 120
"""Characters of a line."""

Row = dict[str, Any]


def has(name: str) -> bool:
    """Whether a result file is there."""
    return (RESULTS / f"{name}.json").exists()


def load(name: str) -> dict[str, Any]:
    """A result file: its environment and its results."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return found


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def origin(environment: Row) -> str:
    """Where numbers come from, in one line."""
    machine = environment.get("gpu") or f"{environment['cpu']}, {environment['threads']} threads"
    return f"`{environment['command']}` on {machine}, torch {environment['torch']}, Circurve {environment['circurve']}."


def wrapped(text: str, indent: str = "") -> str:
    """A paragraph in lines of at most WIDTH characters."""
    words = " ".join(text.split())
    return textwrap.fill(words, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
