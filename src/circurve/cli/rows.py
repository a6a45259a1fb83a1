"""`circurve sample` and `circurve impute`: rows drawn from a model, and tables with their holes filled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from circurve.cli.commands.models import Impute, Sample
from circurve.cli.files import check_rows, write_rows
from circurve.cli.loading import Source, check_known, files_of, load, parts_of, source_for, without
from circurve.cli.options import STANDARD
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


def sample(typed: Sample) -> None:
    """Draw rows from a model, with some values given if you like."""
    if typed.n < 1:
        raise OptionError(f"-n must be a whole number >= 1, not {typed.n}")
    check_rows("--out", typed.out, (typed.model,))
    budget = parse_bytes(typed.memory_budget)
    loaded = limited(load_model(typed.model, typed.device, trust=typed.trust, memory_budget=budget), budget)
    evidence = read_evidence(typed.given, loaded.schema) or None
    drawn = columns_of(loaded.sample(typed.n, evidence, seed=typed.seed))
    _write(typed.out, drawn, {"rows": f"{typed.n:,}"}, named=loaded.schema.names is not None)


def impute(typed: Impute) -> None:
    """Fill the missing cells of a table from a model."""
    if typed.how not in IMPUTATION_METHODS:
        raise OptionError(f"--how must be one of {', '.join(IMPUTATION_METHODS)}, not {typed.how!r}")
    budget, copied = parse_bytes(typed.memory_budget), parse_dropped(typed.types)
    source = Source(typed.data, None, typed.header, typed.missing, trust=typed.trust, memory_budget=budget)
    check_rows("--out", typed.out, (typed.model, *files_of(source)))
    loaded = limited(load_model(typed.model, typed.device, trust=typed.trust, memory_budget=budget), budget)
    dataset = load(source_for(loaded, source))
    if len(parts_of(dataset)) > 1:
        raise OptionError(f"{typed.data} has several parts; impute takes a file with one table")
    with about(typed.data):
        used = without(dataset.train, copied) if copied else dataset.train
        check_known(loaded, used)
        table = loaded.align(used, unseen=typed.unseen.value, missing_columns="missing")
        filled = _shortened(columns_of(loaded.impute(table, typed.how, seed=typed.seed)), table)  # type: ignore[arg-type]  # checked
    holes = 0 if table.observed is None else int((~table.observed).sum())
    facts = {"rows": f"{len(table):,}", "filled": f"{holes:,} of {table.values.numel():,} values"}
    if loaded.schema.names is None and used.columns:
        filled = dict(zip(used.columns, filled.values(), strict=True))  # the file's own names
    _write(typed.out, _beside(dataset.train, filled), facts, named=bool(loaded.schema.names or used.columns))


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
