"""Tiny data files in a folder of their own, and the program to run on them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_helpers import strict_json, write_csv
from numpy.typing import NDArray
from typer.testing import CliRunner, Result

from circurve.cli import app


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def invoke(folder: Path) -> Callable[[str], Result]:
    """Run the program in the folder."""
    return lambda text: CliRunner().invoke(app, text.split())


@pytest.fixture
def answer(invoke: Callable[[str], Result]) -> Callable[[str], dict[str, Any]]:
    """Run a command with --json and return its document; nothing else may be on standard output."""

    def run(text: str) -> dict[str, Any]:
        result = invoke(f"{text} --json")
        assert result.exit_code == 0, result.output
        return strict_json(result.stdout)

    return run


@pytest.fixture
def rows() -> NDArray[np.int64]:
    """100 rows of 5 binary variables that depend on one another."""
    generator = np.random.default_rng(0)
    cause = generator.random((100, 1)) < 0.5
    return (generator.random((100, 5)) < np.where(cause, 0.8, 0.2)).astype(np.int64)


@pytest.fixture
def table(folder: Path, rows: NDArray[np.int64]) -> str:
    """The rows as a CSV file with a header."""
    write_csv("table.csv", rows, "a,b,c,d,e")
    return "table.csv"


@pytest.fixture
def model(invoke: Callable[[str], Result], table: str) -> str:
    """A model file trained on the table."""
    assert invoke(f"fit {table} --units 3 --epochs 2 --out model.safetensors").exit_code == 0
    return "model.safetensors"
