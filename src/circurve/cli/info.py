"""`circurve info`: what is in a model file."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from circurve.cli import options
from circurve.cli.files import read_training
from circurve.cli.show import family_label, print_facts, print_heading, print_json
from circurve.model import load as load_model
from circurve.persistence import FORMAT_VERSION

__all__ = ["info"]


def info(model: options.ModelArgument, as_json: options.JsonOption = False) -> None:
    """Show what is in a model file."""
    loaded = load_model(model)
    summary = loaded.circuit.describe()
    families = dict(Counter(family_label(family) for family in loaded.circuit.families))
    report: dict[str, Any] = {
        "command": "info",
        "model": str(model),
        "format": "circurve",
        "format_version": FORMAT_VERSION,
        "bytes": model.stat().st_size,
        "dtype": str(loaded.dtype).removeprefix("torch."),
        **asdict(summary),
        "families": families,
        "training": read_training(model) or None,
    }
    if as_json:
        print_json(report)
        return
    print_heading(str(model))
    print_facts(
        {
            "format": f"{report['format']} {report['format_version']}, {report['bytes']:,} bytes",
            "dtype": report["dtype"],
            "families": ", ".join(f"{count:,} x {name}" for name, count in families.items()),
            **summary.in_words(),
            **_training(report["training"] or {}),
        }
    )


def _training(training: dict[str, Any]) -> dict[str, str]:
    keys = ("method", "mu", "gate", "structure", "units", "seed", "epochs")
    words = [f"{key} {training[key]}" for key in keys if training.get(key) is not None]
    scores = {key: training.get(key) for key in ("train_ll", "valid_ll", "test_ll")}
    facts = {"trained on": str(training["dataset"])} if "dataset" in training else {}
    facts |= {"trained with": ", ".join(words)} if words else {}
    return facts | {key: f"{value:.4f}" for key, value in scores.items() if isinstance(value, float)}
