"""`circurve demo`: three methods of learning compared, on data that need no download."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from circurve.cli.commands.training import Demo
from circurve.cli.failures import INTERRUPTED, NotSavedError
from circurve.cli.files import check_report
from circurve.cli.loading import parts_of, rows_of
from circurve.cli.methods import describe_method
from circurve.cli.parse import parse_bytes
from circurve.cli.show import number, print_facts, print_json, print_table, print_text, progress, significant, sizes
from circurve.cli.training import known, train_fleet
from circurve.curvature import concentration, curvature
from circurve.data import Dataset, load_dataset
from circurve.errors import CircurveError
from circurve.learning import FitResult, FleetResult, Gated, Global, Run, Vanilla
from circurve.learning.options import Settings
from circurve.structures import hclt

__all__ = ["demo"]

MU = 0.1
METHODS = (Vanilla(), Global(MU), Gated(MU))
UNITS, EPOCHS, ROWS = 32, 80, 400
"""Few rows for a model of this size: plain EM overfits them within half a minute."""

HELD = 0.99
"""The share of T and of t for which the fraction of nodes that hold it is shown."""


NOTATION = (
    "Scores are mean log-likelihoods in nats; DoF, the degree of overfitting, is the gap between train and valid "
    "divided by valid; sharpness is the mean trace of the Hessian of -log p over the training rows. The last two "
    "columns are the "
    f"shares of sum nodes that hold {HELD:.0%} of the trace (T) and of the nodes' own sharpness (t)."
)


def demo(typed: Demo) -> None:
    """Train three methods on embedded data and compare them, in half a minute."""
    check_report(typed.report, ())
    budget = parse_bytes(typed.memory_budget)
    whole = load_dataset("digits", memory_budget=budget)
    data = replace(whole, train=whole.train[:ROWS])
    circuit = hclt(data.train, UNITS, memory_budget=budget)
    progress(f"{sizes(data)}\n{len(METHODS)} methods at once: hclt, {UNITS} units, {EPOCHS} epochs")
    settings = Settings(epochs=EPOCHS, batch_size=100, step_size=0.2, select="last", memory_budget=budget)
    results = train_fleet(circuit, data, [Run(method, typed.seed) for method in METHODS], settings)
    if any(known(result.train_ll) is None for result in results):  # there is nothing to compare, and no model to save
        raise KeyboardInterrupt
    methods = [_describe(result, data, budget) for result in results]
    page, failure = _write_page(results, data, typed.report, budget)
    facts: dict[str, Any] = {
        "command": "demo",
        "dataset": data.name,
        "rows": rows_of(parts_of(data)),
        "variables": circuit.variables,
        "structure": "hclt",
        "units": UNITS,
        "mu": MU,
        "seed": typed.seed,
        "epochs": len(results[0].history),
        "parameters": circuit.describe().parameters,
        "sum_nodes": circuit.describe().sum_units,
        "methods": methods,
        "findings": findings(methods, circuit.describe().sum_units),
        "seconds": round(results[0].seconds, 3),
        "device": str(results[0].model.device),
        "report": page,
    }
    print_json(facts) if typed.as_json else _print(facts)
    if failure is not None:
        raise NotSavedError(str(failure)) from failure
    if results[0].stopped == "interrupted":
        print("circurve: interrupted; the numbers are those of the models trained so far", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)


def _write_page(
    results: FleetResult, data: Dataset, path: Path, memory_budget: int | None
) -> tuple[str | None, Exception | None]:
    """The page about the best method by validation, with the curves of all; or why it was not written."""
    from circurve.report import ReportOptions
    from circurve.report import report as write

    try:
        best = results.best()
        title = f"{data.name}: {describe_method(best.run.method)['method']}"
        shown: dict[str, Any] = {"valid": data.valid, "history": results, "options": ReportOptions(title=title)}
        write(best, data.train, path, **shown, memory_budget=memory_budget)
    except (CircurveError, OSError) as error:
        return None, error
    return str(path), None


def _describe(result: FitResult, data: Dataset, memory_budget: int | None) -> dict[str, Any]:
    curv = curvature(result.model, data.train, memory_budget=memory_budget)
    best = max(result.history, key=lambda record: record.valid_ll or -float("inf"), default=None)
    method = describe_method(result.run.method)
    return {
        **{name: method[name] for name in ("method", "mu", "gate")},
        "train_ll": result.train_ll,
        "valid_ll": result.valid_ll,
        "test_ll": result.test_ll,
        "dof": result.dof,
        "sharpness": curv.trace,
        "concentration": {by: concentration(curv, by).fraction_for(HELD) for by in ("total", "local")},
        "best_by_validation": None
        if best is None
        else {"epoch": best.epoch, "valid_ll": best.valid_ll, "test_ll": best.test_ll},
    }


def findings(methods: list[dict[str, Any]], sum_nodes: int) -> list[str]:
    """The measurements in sentences that are true for any numbers."""
    first, *rest = sorted(methods, key=lambda record: -record["test_ll"])
    followers = "".join(f", then {record['method']} with {record['test_ll']:.2f}" for record in rest)
    names = _list([record["method"] for record in methods])
    gaps = _list([number(record["train_ll"] - record["valid_ll"], 2) for record in methods])
    traces = _list([significant(record["sharpness"]) for record in methods])
    plain = methods[0]
    total, local = (f"{plain['concentration'][by]:.0%}" for by in ("total", "local"))
    found = [
        f"On unseen images {first['method']} does best with {first['test_ll']:.2f} nats per image{followers}.",
        f"With {names}, training rows score {gaps} nats above validation rows, at a sharpness of {traces}.",
        f"In the {plain['method']} model {HELD:.0%} of the trace is in {total} of its {sum_nodes:,} sum nodes, and "
        f"{HELD:.0%} of their own sharpness t, which gates use, is in {local}.",
    ]
    stops = [record["best_by_validation"] for record in methods]
    if None not in stops:
        epochs, scores = _list([f"{s['epoch']}" for s in stops]), _list([number(s["test_ll"], 2) for s in stops])
        found.append(f"At their best epochs by validation, {epochs}, they score {scores} on unseen images.")
    return found


def _list(words: list[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _print(report: dict[str, Any]) -> None:
    rows = [
        (
            record["method"],
            *(number(record[key], 2) for key in ("train_ll", "valid_ll", "test_ll")),
            number(record["dof"], 3),
            significant(record["sharpness"]),
            *(f"{record['concentration'][by]:.1%}" for by in ("total", "local")),
        )
        for record in report["methods"]
    ]
    heads = ("", "train", "valid", "test", "DoF", "sharpness", f"{HELD:.0%} of T", f"{HELD:.0%} of t")
    title = (
        f"{report['dataset']}: {report['rows']['train']:,} images, {report['structure']}, {report['units']} units, "
        f"mu {report['mu']:g}, {report['epochs']} epochs"
    )
    print_table(heads, rows, title)
    print_text(*report["findings"])
    print_text(NOTATION)
    print_facts(
        {
            "parameters": f"{report['parameters']:,}",
            "time": f"{report['seconds']:.1f} s on {report['device']}, all methods at once",
            "page": f"{report['report']} (open it in a browser)" if report["report"] else None,
            "try next": "circurve fit digits --method gated --mu 0.1 --out m.safetensors",
            "and then": "circurve curvature m.safetensors digits --report page.html",
        }
    )
