"""`circurve evaluate`: log-likelihoods of a data set or a file under a model."""

from __future__ import annotations

import time
from typing import Any

from circurve.cli import options
from circurve.cli.files import read_training, trained_columns
from circurve.cli.measures import degree_of_overfitting, mean_log_likelihood, sharpness
from circurve.cli.show import measured, print_facts, print_json, print_scores
from circurve.cli.tables import SPLITS, Part, Source, check_columns, choose, load, rows_of
from circurve.data import Dataset
from circurve.errors import warn_user
from circurve.model import load as load_model

__all__ = ["evaluate"]


def evaluate(  # noqa: PLR0913 - each parameter is an option
    model: options.ModelArgument,
    data: options.DataArgument,
    *,
    split: options.PartOption = Part.all,
    device: options.DeviceOption = options.DEVICE,
    data_dir: options.DataDirOption = None,
    missing: options.MissingOption = None,
    header: options.HeaderOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Score a data set or a file with a model: log-likelihoods, sharpness.

    A file with a single table is scored whole, and reported as test rows, or
    as what --split names. The sharpness, the mean over rows of the trace of
    the Hessian of -log p, is that of the training rows where these are scored.
    """
    loaded = load_model(model, device)
    training = read_training(model)
    dataset = load(Source(data, data_dir, header, missing))
    check_columns(data, dataset.columns, trained_columns(training))
    parts = choose(dataset, split)
    if split is Part.all and len(parts) == 1 and _seen(training, dataset):
        warn_user(f"{data} looks like the table that the model was trained on; test_ll counts the training rows too")
    started = time.perf_counter()
    scores = {name: mean_log_likelihood(loaded, part, data) for name, part in parts.items()}
    train_ll, valid_ll, test_ll = (scores.get(name) for name in SPLITS)
    traces = {name: sharpness(loaded, part) for name, part in parts.items()}
    report: dict[str, Any] = {
        "command": "evaluate",
        "model": str(model),
        "dataset": dataset.name,
        "split": split.value,
        "rows": rows_of(parts),
        "variables": loaded.circuit.variables,
        **{name: training.get(name) for name in ("structure", "units", "method", "mu", "gate", "seed", "epochs")},
        "train_ll": train_ll,
        "valid_ll": valid_ll,
        "test_ll": test_ll,
        "sharpness": traces.get("train", next(iter(traces.values()))),
        "sharpness_by_split": {name: traces.get(name) for name in SPLITS},
        "dof": degree_of_overfitting(train_ll, valid_ll),
        "parameters": loaded.circuit.describe().parameters,
        "seconds": round(time.perf_counter() - started, 3),
        "device": str(loaded.device),
        "out": None,
    }
    print_json(report) if as_json else _print(report)


def _seen(training: dict[str, Any], data: Dataset) -> bool:
    """Whether the model's file names a table of this name and length."""
    rows = training.get("rows")
    total = sum(count or 0 for count in rows.values()) if isinstance(rows, dict) else None
    return training.get("dataset") == data.name and total == len(data.train)


def _print(report: dict[str, Any]) -> None:
    print_scores(f"{report['dataset']} under {report['model']}", report)
    print_facts(
        {
            **{label: text for label, text in measured(report).items() if label != "sharpness"},
            "time": f"{report['seconds']:.1f} s on {report['device']}",
        }
    )
