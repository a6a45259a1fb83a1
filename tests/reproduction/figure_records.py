"""Records as a study leaves them, made by hand: only what figures read."""

from __future__ import annotations

import io
import json
import warnings
from typing import Any

from circurve.reproduction.figures import FigureSpec
from circurve.reproduction.spec import ReproduceOptions

Record = dict[str, Any]
OPTIONS = ReproduceOptions(device="cpu")


def record(dataset: str, label: str, seed: int, *, mu: float | None = None, test: float = -2.0, **more: Any) -> Record:
    """A run of one method; its validation log-likelihood equals that of the test unless given."""
    valid = more.pop("valid", test)
    scores = {"epoch": 3, "train_ll": test + 0.5, "valid_ll": valid, "test_ll": test, "dof": 0.1, "sharpness": 9.0}
    history = {"train_ll": [-4.0, -3.0, test + 0.5], "valid_ll": [-5.0, -4.0, valid], "test_ll": [-5.0, -4.0, test]}
    return {
        "id": f"{dataset} {label} {seed} {mu}",
        "dataset": dataset,
        "fraction": 1.0,
        "seed": seed,
        "label": label,
        "method": {"name": label, "mu": mu},
        "protocol": "paper",
        "final": scores,
        "best": scores,
        "history": history,
        "curvature": None,
        **more,
    }


def curvature(step: float, depth: list[float]) -> dict[str, Any]:
    """The curvature of a record; `step` is the share of nodes that holds 90 % of T^, and half as many that of t^."""
    parts = {}
    for by, at in (("total", step), ("local", step / 2)):
        fractions = {"0.9": at, "0.99": 2 * at, "0.9999": 4 * at}
        parts[by] = {"fractions": fractions, "curve": [[at / 2, 0.6], [3 * at, 0.995], [1.0, 1.0]]}
    return {"trace": 9.0, "sum_nodes": 50, **parts, "depth": depth, "reversals": 0.1}


def told(text: str) -> None:
    """Progress that nobody looks at."""


def round_trip(spec: FigureSpec, records: list[Record], options: ReproduceOptions = OPTIONS) -> dict[str, Any]:
    """The data of a figure, through JSON; and its drawing, as the files get it, without a warning."""
    text = json.dumps(spec.data(options, records, told), allow_nan=False)
    data: dict[str, Any] = json.loads(text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        spec.draw(data).savefig(io.BytesIO(), format="png", metadata=spec.metadata)
    assert all(isinstance(note, str) and note.endswith(".") for note in data["notes"])
    return data
