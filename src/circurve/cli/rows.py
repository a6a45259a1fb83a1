"""`circurve sample` and `circurve impute`: rows drawn from a model, and tables with their holes filled."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from circurve.cli import options
from circurve.cli.files import check_target, csv_text
from circurve.cli.question import read_evidence
from circurve.cli.tables import Source, load
from circurve.data import columns_of
from circurve.errors import OptionError
from circurve.model import load as load_model
from circurve.persistence import replace_file

__all__ = ["impute", "sample"]

HOWS = ("mean", "mode", "sample")

GivenOption = Annotated[str, typer.Option(metavar="EVIDENCE", help="What is known: 'age=30..40, sex=F'.")]
RowsOutOption = Annotated[
    str, typer.Option("--out", metavar="FILE|-", help="Where to write the rows as CSV; - is standard output.")
]
HowOption = Annotated[
    str,
    typer.Option(
        metavar="mean|mode|sample",
        help="mean: expected values of numbers, most probable values of categories; mode: most probable values; "
        "sample: drawn at random, row by row.",
    ),
]


def sample(
    model: options.ModelArgument,
    *,
    n: Annotated[int, typer.Option("-n", "--rows", metavar="N", help="How many rows to draw.")] = 10,
    given: GivenOption = "",
    seed: options.SeedOption = options.SEED,
    out: RowsOutOption = "-",
    device: options.DeviceOption = options.DEVICE,
) -> None:
    """Draw rows from a model, or from what it says given some values.

    The same seed gives the same rows.
    """
    _check_out(out, model)
    loaded = load_model(model, device)
    evidence = read_evidence(given, loaded.schema) or None
    _write(out, loaded.sample(n, evidence, seed=seed))


def impute(  # noqa: PLR0913 - each parameter is an option
    model: options.ModelArgument,
    data: options.DataArgument,
    *,
    how: HowOption = "mean",
    seed: options.SeedOption = options.SEED,
    out: RowsOutOption = "-",
    missing: options.MissingOption = None,
    header: options.HeaderOption = None,
    device: options.DeviceOption = options.DEVICE,
) -> None:
    """Fill the holes of a table with what a model says about them.

    Values that are there stay as they are. Columns are found by their names; a
    column that the file lacks is filled as well.
    """
    if how not in HOWS:
        raise OptionError(f"--how must be one of {', '.join(HOWS)}, not {how!r}")
    _check_out(out, model, data)
    loaded = load_model(model, device)
    table = load(Source(data, None, header, missing)).train
    _write(out, loaded.impute(table, how, seed=seed))  # type: ignore[arg-type]  # checked above


def _check_out(out: str, *sources: str | Path) -> None:
    if out != "-":
        check_target("--out", Path(out), sources)


def _write(out: str, frame: Any) -> None:
    columns = columns_of(frame)
    text = csv_text(list(columns), zip(*(_cells(values) for values in columns.values()), strict=True))
    if out == "-":
        sys.stdout.write(text)
    else:
        replace_file(Path(out), text.encode())


def _cells(values: Any) -> list[Any]:
    """Values as they are written to a file: dates in ISO form, 7 digits of other numbers, nothing for what is missing.

    Draws and means are computed in float32, which has no more digits; what was given may have more, and keeps them.
    """
    array = np.asarray(values)
    if array.dtype.kind == "M":
        days = array.astype("datetime64[D]")
        whole = bool(((array == days) | np.isnat(array)).all())
        return list(np.datetime_as_string(days if whole else array).tolist())
    if array.dtype.kind == "f":
        return [None if np.isnan(value) else _shortest(value) for value in array.tolist()]
    return [None if value is None else value for value in array.tolist()]


def _shortest(value: float) -> float:
    """The shortest number with the same float32, if the number is one; else the number."""
    single = np.float32(value)
    return float(str(single)) if float(single) == value else value
