"""`circurve demo`: everything at a glance on data that needs no download."""

from __future__ import annotations

import sys
from typing import Any

import typer

from circurve.cli.failures import INTERRUPTED
from circurve.cli.fit_options import SeedOption
from circurve.cli.measures import degree_of_overfitting, sharpness
from circurve.cli.options import JsonOption
from circurve.cli.show import number, print_facts, print_json, print_table, progress
from circurve.cli.tables import parts_of, rows_of
from circurve.data import load_dataset
from circurve.learning import FitResult, Method, Vanilla, fit
from circurve.structures import hclt

__all__ = ["demo"]

METHODS: dict[str, Method] = {"vanilla": Vanilla()}
"""What the demo compares, by the name in its table."""

UNITS, EPOCHS = 32, 100
"""Ten seconds for each method on two cores."""


def demo(seed: SeedOption = 0, as_json: JsonOption = False) -> None:
    """Train on embedded data and show the results, in half a minute."""
    data = load_dataset("digits")
    circuit = hclt(data.train, UNITS)
    results: dict[str, FitResult] = {}
    for name, method in METHODS.items():
        progress(f"digits, {len(data.train):,} images of 8 x 8 pixels: hclt, {UNITS} units, {name}, {EPOCHS} epochs")
        results[name] = fit(
            circuit, data.train, valid=data.valid, test=data.test, method=method, epochs=EPOCHS, seed=seed
        )
        if results[name].stopped == "interrupted":
            break
    report = {
        "command": "demo",
        "dataset": data.name,
        "rows": rows_of(parts_of(data)),
        "variables": circuit.variables,
        "structure": "hclt",
        "units": UNITS,
        "seed": seed,
        "parameters": circuit.describe().parameters,
        "methods": [{"method": name, **_describe(result, data.train)} for name, result in results.items()],
        "seconds": round(sum(result.seconds for result in results.values()), 3),
        "device": str(next(iter(results.values())).model.device),
    }
    print_json(report) if as_json else _print(report)
    if any(result.stopped == "interrupted" for result in results.values()):
        print("circurve: interrupted, the numbers are those of what was learned so far", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)


def _describe(result: FitResult, train: Any) -> dict[str, Any]:
    return {
        "train_ll": result.train_ll,
        "valid_ll": result.valid_ll,
        "test_ll": result.test_ll,
        "sharpness": sharpness(result.model, train),
        "dof": degree_of_overfitting(result.train_ll, result.valid_ll),
        "epochs": len(result.history),
        "epoch": result.epoch,
        "seconds": round(result.seconds, 3),
    }


def _print(report: dict[str, Any]) -> None:
    heads = ("method", "train", "valid", "test", "overfitting", "epoch", "seconds")
    rows = [
        (
            record["method"],
            *(number(record[key]) for key in ("train_ll", "valid_ll", "test_ll", "dof")),
            f"{record['epoch']}",
            number(record["seconds"], 1),
        )
        for record in report["methods"]
    ]
    print_table(heads, rows, title=f"digits: {report['structure']}, {report['units']} units; log-likelihoods in nats")
    print_facts(
        {
            "parameters": f"{report['parameters']:,}",
            "time": f"{report['seconds']:.1f} s on {report['device']}",
            "try next": "circurve fit digits --units 64 --out digits.safetensors",
        }
    )
