"""What the pages made from result files share."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["commands", "has", "load", "origin", "table", "wrapped"]

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


def commands(files: Mapping[str, Sequence[str]]) -> str:
    """The last section of a page: the commands that made the result files of its sections."""
    made = [(what, origin(load(name)["environment"])) for what, names in files.items() for name in names if has(name)]
    lines = "\n".join(wrapped(f"- {what}: {command}", "  ") for what, command in made)
    return f"## Commands\n\nThese commands made the numbers of this page:\n\n{lines}"


def wrapped(text: str, indent: str = "") -> str:
    """A paragraph in lines of at most WIDTH characters."""
    words = " ".join(text.split())
    return textwrap.fill(words, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
