"""What the pages made from result files share."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["load", "origin", "table"]

RESULTS = Path(__file__).parent.parent / "benchmarks" / "results"

Row = dict[str, Any]


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
