"""`circurve info`: what is in a model file."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from circurve.cli.commands.models import Info
from circurve.cli.files import read_training
from circurve.cli.parse import parse_bytes
from circurve.cli.show import family_label, print_facts, print_heading, print_json, print_table
from circurve.learning.mixing import member_weights
from circurve.model import load as load_model
from circurve.persistence import FORMAT_VERSION
from circurve.schema import Column, Schema
from circurve.words import counted

__all__ = ["info", "print_schema"]

SHOWN, CATEGORIES = 40, 8
"""How many columns, and how many categories of one, the table shows; --json lists all."""

WEIGHTS = 8
"""How many weights of a mixture are shown."""

WORDS = {"number": "numbers", "boolean": "true, false", "category": "categories", "date": "dates"}


def info(typed: Info) -> None:
    """Show what is in a model file."""
    loaded = load_model(typed.model, trust=typed.trust, memory_budget=parse_bytes(typed.memory_budget))
    summary = loaded.circuit.describe()
    shares = member_weights(loaded)
    families = dict(Counter(family_label(family) for family in loaded.circuit.families))
    report: dict[str, Any] = {
        "command": "info",
        "model": str(typed.model),
        "format": "circurve",
        "format_version": FORMAT_VERSION,
        "bytes": typed.model.stat().st_size,
        "dtype": str(loaded.dtype).removeprefix("torch."),
        **asdict(summary),
        "families": families,
        "mixture": None if shares is None else {"members": len(shares), "weights": shares.tolist()},
        "schema": None if loaded.schema.plain else loaded.schema.to_json(),
        "training": read_training(typed.model, typed.trust) or None,
    }
    if typed.as_json:
        print_json(report)
        return
    print_heading(str(typed.model))
    if not loaded.schema.plain:
        print_schema(loaded.schema)
    print_facts(
        {
            "format": f"{report['format']} {report['format_version']}, {counted(report['bytes'], 'byte')}",
            "dtype": report["dtype"],
            "families": ", ".join(f"{count:,} x {name}" for name, count in families.items()),
            "mixture": None if shares is None else _mixture(shares.tolist()),
            **summary.in_words(),
            **_training(report["training"] or {}),
        }
    )


def print_schema(schema: Schema) -> None:
    """A line for each column: its name, what it holds, its family, its values."""
    rows = [
        (column.name or f"column {v + 1}", WORDS[column.kind], family_label(column.family), _values(column))
        for v, column in enumerate(schema.columns[:SHOWN])
    ]
    if len(schema) > SHOWN:
        rows.append((f"{len(schema) - SHOWN:,} more", "--json", "lists", "them"))
    rows += [(name, "-", "-", "left out") for name in schema.ignored]
    heads = ("column", "holds", "family", "values")
    print_table(heads, rows, texts=heads)


def _values(column: Column) -> str:
    """The categories, as many as fit a line or two; the first day of dates."""
    if column.kind == "date":
        return f"days since {column.origin}"
    if column.categories is None:
        return "-"
    more = len(column.categories) - CATEGORIES
    listed = ", ".join(str(value) for value in column.categories[:CATEGORIES])
    share = f"; {column.unseen_share:g} for unseen values" if column.unseen_share else ""
    return f"{listed}{f' and {more:,} more' if more > 0 else ''}{share}"


def _mixture(weights: list[float]) -> str:
    """`of 8 members, weights 0.312, 0.208, ...`, the largest first."""
    shown = [f"{weight:.3f}" for weight in sorted(weights, reverse=True)[:WEIGHTS]]
    more = ["..."] if len(weights) > WEIGHTS else []
    return f"of {len(weights):,} members, weights {', '.join([*shown, *more])}"


def _training(training: dict[str, Any]) -> dict[str, str]:
    keys = ("method", "mu", "gate", "structure", "leaves", "units", "pseudocount", "seed", "epochs")
    words = [f"{key} {_listed(training[key])}" for key in keys if training.get(key) not in (None, [])]
    scores = {key: training.get(key) for key in ("train_ll", "valid_ll", "test_ll")}
    facts = {"trained on": str(training["dataset"])} if "dataset" in training else {}
    facts |= {"trained with": ", ".join(words)} if words else {}
    return facts | {key: f"{value:.4f}" for key, value in scores.items() if isinstance(value, float)}


def _listed(value: object) -> str:
    """`4 and 8`: the members of a mixture may have several."""
    return " and ".join(str(item) for item in value) if isinstance(value, list) else str(value)
