"""What the tests of the command line share: tiny files, strict JSON, one-line errors."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typer.testing import Result

FIELDS = (
    *("train_ll", "valid_ll", "test_ll", "sharpness", "dof", "epochs", "seconds", "device", "parameters"),
    *("dataset", "rows", "variables", "method", "seed", "units", "out", "notes"),
)
"""What `fit` and `evaluate` promise to report."""


def write_csv(name: str, rows: NDArray[Any], header: str = "") -> None:
    np.savetxt(name, rows, fmt="%g", delimiter=",", header=header, comments="")


def strict_json(text: str) -> dict[str, Any]:
    """Parse exactly one document, without NaN and Infinity."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    document = json.loads(text, parse_constant=refuse)
    assert isinstance(document, dict)
    return document


def error_line(result: Result, code: int = 2) -> str:
    """The one line of an error; nothing else may have been printed."""
    assert result.exit_code == code, result.output
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert result.stdout == ""
    assert lines[0].startswith("circurve: error: ")
    return lines[0].removeprefix("circurve: error: ")
