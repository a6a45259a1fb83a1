"""A table with every kind of column and hostile names, a model of it, and a plain reading of a page's data."""

from __future__ import annotations

import base64
import json
import math
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pandas as pd

import circurve as cc

HOSTILE = "</script><script>alert(1)</script><!--\u2028 '\"&{{data}}"
TYPES = {"u1": np.uint8, "u2": np.uint16, "u4": np.uint32, "f4": np.float32, "f8": np.float64}


def customers(rows: int = 240) -> pd.DataFrame:
    """Columns that depend on one another: numbers, a count, dates, text, true and false; some cells are missing."""
    rng = np.random.default_rng(0)
    city = rng.choice(["Lima", "Oslo", "Rome", "<b>Kyoto</b>"], rows, p=[0.2, 0.3, 0.4, 0.1])
    age = rng.normal(40, 12, rows)
    income = age + 10 * (city == "Oslo") + rng.normal(0, 5, rows)
    table = pd.DataFrame(
        {
            "age": age,
            "city": city,
            HOSTILE: income,
            "visits": rng.poisson(2 + 3 * (city == "Rome")),
            "member": rng.random(rows) < 1 / (1 + np.exp(-(income - 42) / 5)),
            "joined": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, rows), unit="D"),
        }
    )
    table.loc[::9, HOSTILE] = np.nan
    return table


def fitted(**options: Any) -> tuple[cc.learning.history.FitResult, pd.DataFrame, pd.DataFrame]:
    """A result with its training and validation rows."""
    table = customers()
    train, valid = table[:200], table[200:]
    result = cc.fit(cc.hclt(train, 3), train, valid=valid, epochs=6, batch_size=50, seed=1, track=True, **options)
    return result, train, valid


class Elements(HTMLParser):
    """The elements of a page, and the text of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self.inside = tag == "script"
        if self.inside:
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag != "script"

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.scripts[-1] += data


def data_of(text: str) -> Any:
    """The data block of a page with its vectors as arrays."""
    return unpacked(json.loads(Elements(text).scripts[0]))


def unpacked(value: Any) -> Any:
    if isinstance(value, list):
        return [unpacked(item) for item in value]
    if isinstance(value, dict):
        if set(value) == {"type", "data"} and value["type"] in TYPES:
            return np.frombuffer(base64.b64decode(value["data"]), dtype=TYPES[value["type"]])
        return {key: unpacked(item) for key, item in value.items()}
    return value


def log_prob(circuit: dict[str, Any], row: list[float]) -> float:
    """log p of a row (the place of a state, or a number; NaN if missing), straight from a page's small circuit."""
    values: list[np.ndarray] = []
    for node in circuit["nodes"]:
        units, numbers = node["units"], node["values"]
        if node["kind"] == "sum":
            children = np.concatenate([values[child] for child in node["children"]])
            values.append(numbers.reshape(units, -1).astype(float) @ children)
        elif node["kind"] == "product":
            chosen = node["select"] or [None] * len(node["children"])
            pairs = zip(node["children"], chosen, strict=True)
            values.append(np.prod([values[c] if s is None else values[c][s] for c, s in pairs], axis=0))
        else:
            values.append(_input(node["kind"], numbers.reshape(units, -1).astype(float), row[node["column"]]))
    return math.log(values[-1][0])


def _input(kind: str, numbers: np.ndarray, x: float) -> np.ndarray:
    if math.isnan(x):
        return np.ones(len(numbers))
    if kind == "table":
        return np.exp(numbers[:, int(x)])
    if kind == "poisson":
        return numbers[:, 0] ** x * np.exp(-numbers[:, 0]) / math.factorial(int(x))
    mean, variance = numbers.T
    return np.exp(-((x - mean) ** 2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)
