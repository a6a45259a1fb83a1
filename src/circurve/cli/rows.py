"""`circurve sample` and `circurve impute`: rows drawn from a model, and tables with their holes filled."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import typer

from circurve.cli import options
from circurve.cli.files import check_rows, write_rows
from circurve.cli.loading import STANDARD, Source, check_known, files_of, load, parts_of, source_for, without
from circurve.cli.parse import parse_bytes, parse_dropped
from circurve.cli.question import read_evidence
from circurve.cli.show import print_facts
from circurve.data import Table, columns_of
from circurve.data.convert import about
from circurve.data.recode import decode_column
from circurve.errors import OptionError
from circurve.model import load as load_model
from circurve.queries import limited
from circurve.schema import Coding

__all__ = ["impute", "sample"]

IMPUTATION_METHODS = ("mean", "mode", "sample")

GivenOption = Annotated[str, typer.Option(metavar="EVIDENCE", help="Known values: 'age=30..40, sex=F'.")]
RowsOutOption = Annotated[
    str,
    typer.Option(
        "--out",
        metavar="FILE|-",
        help="Where to write the rows: .csv, .tsv, .parquet; - is standard output, as CSV.",
    ),
]
HowOption = Annotated[
    str,
    typer.Option(
        metavar="mean|mode|sample",
        help="mean: expected values of numbers, most probable values of categories; mode: most probable values; "
        "sample: values drawn at random, row by row.",
    ),
]


def sample(  # noqa: PLR0913 - each parameter is an option
    model: options.ModelArgument,
    *,
    n: Annotated[int, typer.Option("-n", "--rows", metavar="N", help="How many rows to draw.")] = 10,
    given: GivenOption = "",
    seed: options.DrawSeedOption = options.SEED,
    out: RowsOutOption = STANDARD,
    device: options.DeviceOption = options.DEVICE,
    memory_budget: options.BudgetOption = None,
    trust: options.TrustOption = False,
) -> None:
    """Draw rows from a model, with some values given if you like."""
    if n < 1:
        raise OptionError(f"-n must be a whole number >= 1, not {n}")
    check_rows("--out", out, (model,))
    budget = parse_bytes(memory_budget)
    loaded = limited(load_model(model, device, trust=trust, memory_budget=budget), budget)
    evidence = read_evidence(given, loaded.schema) or None
    named = loaded.schema.names is not None
    _write(out, columns_of(loaded.sample(n, evidence, seed=seed)), {"rows": f"{n:,}"}, named)


def impute(  # noqa: PLR0913 - each parameter is an option
    model: options.ModelArgument,
    data: options.FileArgument,
    *,
    how: HowOption = "mean",
    seed: options.DrawSeedOption = options.SEED,
    out: RowsOutOption = STANDARD,
    missing: options.MissingOption = None,
    unseen: options.UnseenToFillOption = options.UnseenToFill.error,
    types: options.CopiedOption = None,
    header: options.HeaderOption = None,
    device: options.DeviceOption = options.DEVICE,
    memory_budget: options.BudgetOption = None,
    trust: options.TrustOption = False,
) -> None:
    """Fill the missing cells of a table from a model.

    Known values do not change. Columns are matched by name. A column of the
    model that the file does not have is added. Columns that were left out of
    the training are copied.
    """
    if how not in IMPUTATION_METHODS:
        raise OptionError(f"--how must be one of {', '.join(IMPUTATION_METHODS)}, not {how!r}")
    budget, copied = parse_bytes(memory_budget), parse_dropped(types)
    source = Source(data, None, header, missing, trust=trust, memory_budget=budget)
    check_rows("--out", out, (model, *files_of(source)))
    loaded = limited(load_model(model, device, trust=trust, memory_budget=budget), budget)
    dataset = load(source_for(loaded, source))
    if len(parts_of(dataset)) > 1:
        raise OptionError(f"{data} has several parts; impute takes a file with one table")
    with about(data):
        used = without(dataset.train, copied) if copied else dataset.train
        check_known(loaded, used)
        table = loaded.align(used, unseen=unseen.value, missing_columns="missing")
        filled = _shortened(columns_of(loaded.impute(table, how, seed=seed)), table)  # type: ignore[arg-type]  # checked
    holes = 0 if table.observed is None else int((~table.observed).sum())
    facts = {"rows": f"{len(table):,}", "filled": f"{holes:,} of {table.values.numel():,} values"}
    if loaded.schema.names is None and used.columns:
        filled = dict(zip(used.columns, filled.values(), strict=True))  # the file's own names
    _write(out, _beside(dataset.train, filled), facts, bool(loaded.schema.names or used.columns))


def _shortened(filled: dict[str, Any], table: Table) -> dict[str, Any]:
    """Filled numbers with 7 digits, as many as float32 has; known numbers as they are. table: with holes."""
    if table.observed is None:
        return filled
    holes, columns = (~table.observed).numpy(), {}
    for v, (name, values) in enumerate(filled.items()):
        array = np.array(values)
        if array.dtype == np.float64:
            array[holes[:, v]] = [float(f"{value:.7g}") for value in array[holes[:, v]]]
            columns[name] = array
        else:
            columns[name] = values
    return columns


def _beside(read: Table, filled: dict[str, Any]) -> dict[str, Any]:
    """The columns in the order of the file, then those it lacks; columns that the model does not use are copied."""
    if read.columns is None:
        return filled
    array = np.asarray(replace(read, places=None), dtype=np.float64)
    codings = read.codings or (Coding(),) * len(read.columns)
    columns = {}
    for v, name in enumerate(read.columns):
        if name in filled:
            columns[name] = filled[name]
        else:
            whole = codings[v].kind == "number" and bool((array[:, v] == np.rint(array[:, v])).all())
            columns[name] = decode_column(array[:, v], codings[v], whole)
    return {**columns, **filled}


def _write(out: str, columns: dict[str, Any], facts: dict[str, str], named: bool) -> None:
    """Write the rows; print where, unless they go to standard output."""
    write_rows(out, columns, named)
    if out != STANDARD:
        print_facts({**facts, "saved in": out})
