"""`circurve evaluate`: log-likelihoods of a data set or a file under a model, as means and row by row."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext, redirect_stdout
from typing import Any, cast

import numpy as np

from circurve.cli.commands.models import Evaluate
from circurve.cli.failures import NotSavedError
from circurve.cli.files import check_rows, read_training, write_rows
from circurve.cli.loading import SPLITS, Opened, Source, files_of, open_parts, rows_of, warn_of_training_rows
from circurve.cli.measures import (
    check_one_output,
    degree_of_overfitting,
    empty_rows,
    log_likelihoods,
    sharpness,
    unseen_rows,
)
from circurve.cli.options import STANDARD
from circurve.cli.parse import parse_bytes, parse_dropped
from circurve.cli.scores import ScoredPart, blamed, lowest_rows, score_columns
from circurve.cli.show import measured, number, print_facts, print_json, print_scores, print_table, significant
from circurve.cli.streams import ScoredStream, scored_stream, stream_columns, streamed
from circurve.data import Stream, is_streamed
from circurve.data.convert import about
from circurve.errors import CircurveError, OptionError, warn_user
from circurve.model import Model
from circurve.model import load as load_model

__all__ = ["evaluate"]


def evaluate(typed: Evaluate) -> None:
    """Score a data set or a file with a model: log-likelihoods and sharpness."""
    budget = parse_bytes(typed.memory_budget)
    source = Source(
        typed.data,
        typed.data_dir,
        typed.header,
        typed.missing,
        dropped=parse_dropped(typed.types),
        trust=typed.trust,
        memory_budget=budget,
    )
    if typed.scores == STANDARD and typed.as_json:
        raise OptionError("--json and --scores - both write to standard output; name a file for the scores")
    if typed.scores is not None:
        check_rows("--scores", typed.scores, (typed.model, *files_of(source)))
    loaded = load_model(typed.model, typed.device, trust=typed.trust, memory_budget=budget)
    training = read_training(typed.model, typed.trust)
    if typed.explain and streamed(source) is not None:
        raise OptionError("--explain compares all rows at once, which needs them in memory; evaluate a smaller file")
    started = time.perf_counter()
    opened = open_parts(loaded, source, training, typed.split, typed.unseen.value)
    parts: Mapping[str, ScoredPart | ScoredStream]
    least, columns = None, None
    warn_of_training_rows(training, opened.data, typed.split, typed.data)
    if is_streamed(opened.data.train):
        parts = streams = _scored_streams(loaded, opened, typed.data, budget)
        columns = None if typed.scores is None else stream_columns(streams)
    else:
        started = time.perf_counter()
        parts = tables = {
            s: ScoredPart(opened.read[s], part, log_likelihoods(loaded, part, typed.data, budget))
            for s, part in opened.parts.items()
        }
        least = _least_probable(loaded, tables) if typed.explain else None
        columns = None if typed.scores is None else score_columns(loaded, tables, typed.explain)
    report: dict[str, Any] = {
        "command": "evaluate",
        "model": str(typed.model),
        "dataset": opened.data.name,
        "split": typed.split.value,
        "unseen": typed.unseen.value,
        **{
            key: training.get(key) for key in ("structure", "leaves", "units", "method", "mu", "gate", "seed", "epochs")
        },
        **_describe(loaded, parts, budget),
        **({} if least is None else {"least_probable": least}),
        "scores": typed.scores,
        "seconds": round(time.perf_counter() - started, 3),
        "device": str(loaded.device),
        "out": None,
    }
    _warn_of_empty_rows(report, typed.data)
    _finish(report, columns, typed.as_json)


def _scored_streams(model: Model, opened: Opened, what: str, memory_budget: int | None) -> dict[str, ScoredStream]:
    check_one_output(model)
    with about(what):
        parts = cast("dict[str, Stream]", opened.parts)
        return {name: scored_stream(model, part, memory_budget) for name, part in parts.items()}


def _describe(
    model: Model, parts: Mapping[str, ScoredPart | ScoredStream], memory_budget: int | None
) -> dict[str, Any]:
    """What was measured on each part."""
    aligned = {name: part.aligned for name, part in parts.items()}
    train_ll, valid_ll, test_ll = (float(np.mean(parts[s].scores)) if s in parts else None for s in SPLITS)
    traces = {name: sharpness(model, part, memory_budget) for name, part in aligned.items()}
    return {
        "empty_rows": sum(empty_rows(part) for part in aligned.values()),
        "unseen_rows": sum(unseen_rows(part) for part in aligned.values()),
        "rows": rows_of(aligned),
        "variables": model.circuit.variables,
        "train_ll": train_ll,
        "valid_ll": valid_ll,
        "test_ll": test_ll,
        "sharpness": traces.get("train", next(iter(traces.values()))),
        "sharpness_by_split": {name: traces.get(name) for name in SPLITS},
        "dof": degree_of_overfitting(train_ll, valid_ll),
        "parameters": model.circuit.describe().parameters,
    }


def _warn_of_empty_rows(report: Mapping[str, Any], data: str) -> None:
    """Rows without a value have probability 1: they raise the mean log-likelihood."""
    empty, rows = report["empty_rows"], sum(count for count in report["rows"].values() if count is not None)
    if empty:
        warn_user(
            f"{data}: {empty} of {rows} rows have no observed value; each counts as log 1 = 0 in the mean "
            "log-likelihood, and adds a trace that the model alone decides to the sharpness; remove them to score the "
            "other rows"
        )


def _least_probable(model: Model, parts: dict[str, ScoredPart]) -> list[dict[str, Any]]:
    """The least probable rows of each part, each with the cells that make it improbable, the worst first."""
    listed = []
    for name, part in parts.items():
        few = part.rows(lowest_rows(part))
        blames = blamed(model, few)
        for row, score in enumerate(few.scores.tolist()):
            found = [
                {key: getattr(blame, key) for key in ("column", "value", "log_probability", "expected")}
                for blame in blames
                if blame.row == row
            ]
            listed.append({"split": name, part.word: few.place(row), "log_likelihood": score, "cells": found})
    return listed


def _finish(report: dict[str, Any], columns: dict[str, Any] | None, as_json: bool) -> None:
    """Write the table of scores and print the report; the report is printed even if a file cannot be written."""
    failure: Exception | None = None
    scores = report["scores"]
    if columns is not None:
        try:
            write_rows(scores, columns)
        except (CircurveError, OSError) as error:
            failure, report = error, {**report, "scores": None}
    with redirect_stdout(sys.stderr) if scores == STANDARD else nullcontext():
        print_json(report) if as_json else _print(report)
    if failure is not None:
        raise NotSavedError(str(failure)) from failure


def _print(report: dict[str, Any]) -> None:
    print_scores(f"{report['dataset']}, model {report['model']}", report)
    if "least_probable" in report:
        _print_least_probable(report["least_probable"])
    print_facts(
        {
            **{label: text for label, text in measured(report).items() if label != "sharpness"},
            "time": f"{report['seconds']:.1f} s on {report['device']}",
            "scores in": None if report["scores"] == STANDARD else report["scores"],
        }
    )


def _print_least_probable(rows: list[dict[str, Any]]) -> None:
    """Each row with its most surprising cell."""
    several = len({row["split"] for row in rows}) > 1
    word = "line" if "line" in rows[0] else "row"
    table = []
    for row in rows:
        place = f"{row['split']} {row[word]}" if several else f"{row[word]}"
        cell = next(iter(row["cells"]), None)
        if cell is None:
            table.append((place, number(row["log_likelihood"], 2), "-", "-", "-", "-"))
            continue
        score = significant(cell["log_probability"], 3)
        expected = _short(cell["expected"])
        table.append((place, number(row["log_likelihood"], 2), cell["column"], cell["value"], expected, score))
    heads = (word, "log-likelihood", "surprising", "value", "expected", "log-prob.")
    texts = ("surprising", "value", "expected")
    of_each = " of each part" if several else ""
    title = f"least probable rows{of_each}; log-prob. is that of the cell given the rest of its row"
    print_table(heads, table, title, texts)


def _short(text: str) -> str:
    """An expected number with four digits; whole numbers, dates and categories as they are."""
    try:
        value = float(text)
    except ValueError:
        return text
    return text if value.is_integer() else f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"
