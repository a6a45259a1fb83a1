"""`circurve query`: distributions and probabilities, as the question asks."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from circurve.budget import Need
from circurve.cli.commands.models import Query
from circurve.cli.files import cells, csv_text
from circurve.cli.parse import parse_bytes
from circurve.cli.question import Question, read_question
from circurve.cli.safe_text import visible
from circurve.cli.show import print_facts, print_heading, print_json, print_table, significant
from circurve.data import columns_of
from circurve.errors import OptionError
from circurve.model import Model
from circurve.model import load as load_model
from circurve.queries import limited
from circurve.words import counted

__all__ = ["query"]

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
"""The quantiles that are shown of a column without a list of values."""

LISTED_BYTES, MAX_UNCHECKED = 180, 100_000
"""Bytes of a value that is listed with its probability, as Python's numbers and as text; up to MAX_UNCHECKED values
take next to nothing."""

CURE = "ask for the probability of an interval instead"

SHOWN = 20
"""How many values of a distribution the table shows; the most probable come first."""


def query(typed: Query) -> None:
    """Ask a model for a distribution or a probability; every answer is exact."""
    if typed.as_json and typed.as_csv:
        raise OptionError("--json and --csv cannot be combined; leave one of them out")
    budget = parse_bytes(typed.memory_budget)
    loaded = limited(load_model(typed.model, typed.device, trust=typed.trust, memory_budget=budget), budget)
    asked = read_question(typed.question, loaded.schema)
    given = asked.given or None
    answer: dict[str, Any] = {"command": "query", "model": str(typed.model), "question": typed.question}
    if asked.event:
        log_prob = loaded.conditional(asked.event, given, log=True)
        answer |= {
            "probability": float(np.exp(log_prob)),
            "log_probability": log_prob,
            "density": _dense(loaded, asked),
        }
    else:
        answer["distributions"] = {name: _distribution(loaded, name, given, budget) for name in asked.names}
    if typed.as_json:
        print_json(answer)
    elif typed.as_csv:
        _print_csv(answer)
    else:
        _print(answer)


def _dense(model: Model, asked: Question) -> bool:
    """Whether the answer is a density: a value, and no interval, of a column without a list of values is asked for."""
    columns = model.schema.columns
    values = [key for key, value in asked.event.items() if not isinstance(value, tuple)]
    return any(not columns[model.schema.position(key)].family.discrete for key in values)


def _distribution(model: Model, name: str, given: Any, budget: int | None) -> dict[str, Any]:
    key: str | int = int(name) if model.schema.names is None else name
    _check_listed(model, name, budget)
    table = {head: _plain(values) for head, values in columns_of(model.distribution(key, given)).items()}
    column = model.schema.columns[model.schema.position(key)]
    if column.family.support() is not None:
        return {"table": table}
    quantiles = _plain(model.quantile(key, LEVELS, given))
    mean = _plain(columns_of(model.mean(given))[name])[0]
    deviation = float(np.sqrt(columns_of(model.variance(given))[name][0]))
    return {
        "mean": mean,
        "standard_deviation": deviation,
        "quantiles": dict(zip(map(str, LEVELS), quantiles, strict=True)),
        "table": table,
    }


def _check_listed(model: Model, name: str, budget: int | None) -> None:
    """MemoryLimitError if the values of a column, with their probabilities, are too many to be listed."""
    family = model.schema.columns[model.schema.position(int(name) if model.schema.names is None else name)].family
    states = len(family.support() or ())
    if states > MAX_UNCHECKED:
        Need(f"listing the values of column {name}", {f"{states:,} values": LISTED_BYTES * states}, CURE).left(budget)


def _plain(values: Any) -> list[Any]:
    listed = np.asarray(values)
    return cells(listed) if listed.dtype.kind == "M" else list(listed.tolist())


def _print_csv(answer: dict[str, Any]) -> None:
    if "distributions" not in answer:
        answers = [[answer["probability"], answer["log_probability"]]]
        sys.stdout.write(csv_text(["probability", "log_probability"], answers))
        return
    if len(answer["distributions"]) > 1:
        raise OptionError("--csv prints one table; ask for one column only")
    table = next(iter(answer["distributions"].values()))["table"]
    text = csv_text(list(table), zip(*table.values(), strict=True))
    sys.stdout.write(visible(text) if sys.stdout.isatty() else text)


def _print(answer: dict[str, Any]) -> None:
    print_heading(answer["question"])
    if "distributions" not in answer:
        what = "density" if answer["density"] else "probability"
        print_facts({what: significant(answer["probability"]), "logarithm": significant(answer["log_probability"])})
        return
    for name, found in answer["distributions"].items():
        if "quantiles" in found:
            rows = [(f"{100 * float(level):g} %", _cell(value)) for level, value in found["quantiles"].items()]
            rows += [("mean", _cell(found["mean"])), ("standard deviation", _deviation(found))]
            print_table((name, "value"), rows)
        else:
            _print_values(name, found["table"])


def _deviation(found: dict[str, Any]) -> str:
    """The standard deviation, with its unit if the mean is a date."""
    return significant(found["standard_deviation"]) + (" days" if isinstance(found["mean"], str) else "")


def _print_values(name: str, table: dict[str, list[Any]]) -> None:
    values, probability = table.values()
    order = np.argsort(-np.asarray(probability), kind="stable")
    rows = [(str(values[at]), f"{probability[at]:.4f}") for at in order[:SHOWN]]
    if len(order) > SHOWN:
        rest = float(np.asarray(probability)[order[SHOWN:]].sum())
        rows.append((counted(len(order) - SHOWN, "more value"), f"{rest:.4f}"))
    print_table((name, "probability"), rows)


def _cell(value: Any) -> str:
    return significant(value) if isinstance(value, float | int) else str(value)
