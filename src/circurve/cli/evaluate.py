"""`circurve evaluate`: log-likelihoods of a data set or a file under a model."""

from __future__ import annotations

import time
from typing import Any

from circurve.cli import options
from circurve.cli.files import read_training
from circurve.cli.measures import degree_of_overfitting, mean_log_likelihood, sharpness
from circurve.cli.show import measured, print_facts, print_json, print_scores
from circurve.cli.tables import SPLITS, Part, Source, load, parts_for, rows_of, source_for
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
    unseen: options.UnseenOption = options.Unseen.impossible,
    header: options.HeaderOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Score a data set or a file with a model: log-likelihoods, sharpness.

    The file that the model was trained on is split as it was then. Another file
    with a single table is scored whole, and reported as test rows, or as what
    --split names. Columns are found by their names. The sharpness, the mean over rows of the trace of
    the Hessian of -log p, is that of the training rows where these are scored.
    """
    loaded = load_model(model, device)
    training = read_training(model)
    dataset = load(source_for(loaded, Source(data, data_dir, header, missing)))
    parts = parts_for(loaded, dataset, split, training, data, unseen.value)
    started = time.perf_counter()
    scores = {name: mean_log_likelihood(loaded, part, data) for name, part in parts.items()}
    train_ll, valid_ll, test_ll = (scores.get(name) for name in SPLITS)
    traces = {name: sharpness(loaded, part) for name, part in parts.items()}
    report: dict[str, Any] = {
        "command": "evaluate",
        "model": str(model),
        "dataset": dataset.name,
        "split": split.value,
        "unseen": unseen.value,
        "unseen_rows": sum(0 if p.impossible is None else int(p.impossible.any(1).sum()) for p in parts.values()),
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


def _print(report: dict[str, Any]) -> None:
    print_scores(f"{report['dataset']} under {report['model']}", report)
    print_facts(
        {
            **{label: text for label, text in measured(report).items() if label != "sharpness"},
            "time": f"{report['seconds']:.1f} s on {report['device']}",
        }
    )
