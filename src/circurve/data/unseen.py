"""Values that were not seen in training: where they are, and what is said about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from circurve.data.convert import Array, column_label, short
from circurve.data.table import Table
from circurve.errors import Argument, DataError, OptionError, warn_user
from circurve.inputs import Family
from circurve.inputs.family import counts_from_zero
from circurve.schema import Column, Schema, Value
from circurve.words import counted

__all__ = ["LARGEST", "Misfit", "Unseen", "advising", "check_unseen", "find_misfits", "misfit_reason", "report"]

Unseen: TypeAlias = Literal["impossible", "missing", "error"]
"""What to do with a value that was not seen in training."""

LARGEST = int(np.iinfo(np.int32).max)
"""The largest value of a discrete column."""

SHOWN = 5
"""How many categories a message lists."""

OUTCOMES: Mapping[str, tuple[str | Argument, ...]] = {
    "impossible": (
        "rows with such a value have probability 0; pass ",
        Argument("unseen", "missing"),
        " to treat it as missing",
    ),
    "missing": ("treated as missing",),
}


@dataclass(frozen=True, eq=False)
class Misfit:
    """The unseen values of one column."""

    column: int
    rows: NDArray[np.int64]
    values: tuple[Value | np.datetime64, ...]
    """Each of them once, in the order of the rows."""


def check_unseen(unseen: object) -> None:
    """Refuse what is none of the three ways."""
    if unseen not in get_args(Unseen):
        raise OptionError(f"unseen must be one of {', '.join(map(repr, get_args(Unseen)))}, not {unseen!r}")


@contextmanager
def advising(advice: str, *refused: str) -> Iterator[None]:
    """A context in which errors about values give this advice, where theirs is to pass one of `refused`."""
    try:
        yield
    except DataError as error:
        parts = error.parts
        ours = [n for n, part in enumerate(parts) if isinstance(part, Argument) and part.name in refused]
        if not ours:
            raise
        problem = "".join(map(str, parts[: ours[0]])).removesuffix("pass ")
        raise DataError(f"{problem.removesuffix('; ')}; {advice}") from None


def misfit_reason(family: Family, values: Array) -> str | None:
    """Why a family does not take one of the observed values; None if it takes all of them."""
    if family.discrete and values.size and not (values.min() >= 0 and float(values.max()) <= LARGEST):
        return f"only whole numbers from 0 to {LARGEST} can be stored"
    return family.check_values(values)


def find_misfits(filled: Array, hidden: NDArray[np.bool_] | None, families: Sequence[Family]) -> list[Misfit]:
    """The observed values that a column's family refuses, column by column.

    filled: (N, V)."""
    found = []
    for v, family in enumerate(families):
        present = np.ones(len(filled), dtype=np.bool_) if hidden is None else ~hidden[:, v]
        refused = _refused(family, np.unique(filled[present, v]))
        if refused:
            rows = np.flatnonzero(present & np.isin(filled[:, v], refused))
            values = dict.fromkeys(filled[rows, v].tolist())
            found.append(Misfit(v, rows, tuple(int(x) if float(x).is_integer() else x for x in values)))
    return found


def _refused(family: Family, distinct: Array) -> list[float]:
    """The values that a family refuses, found by halving the list: halves without such a value are skipped."""
    if not distinct.size or misfit_reason(family, distinct) is None:
        return []
    if distinct.size == 1:
        return [distinct[0]]
    half = distinct.size // 2
    return _refused(family, distinct[:half]) + _refused(family, distinct[half:])


def report(misfits: Sequence[Misfit], table: Table, schema: Schema, unseen: Unseen) -> None:
    """One warning for all columns, with a count and an example; a DataError for unseen="error".

    A column that reserves a share for unseen values expects them: nothing is said about it.
    """
    told = [misfit for misfit in misfits if unseen != "impossible" or not schema.columns[misfit.column].unseen_share]
    if not told:
        return
    first = told[0]
    example, known = short(first.values[0]), _known(schema.columns[first.column])
    if unseen == "error":
        place = table.cell(int(first.rows[0]), first.column)
        problem = f"{place}: {example} was not seen in training ({known}); pass "
        raise DataError(problem, Argument("unseen", "missing"), " to treat it as missing")
    label = column_label(table.columns, first.column)
    more = f" and {counted(len(first.values) - 1, 'more value')}" if len(first.values) > 1 else ""
    others = [column_label(table.columns, misfit.column) for misfit in told[1:]]
    further = f" and {counted(len(others) - 1, 'more column')}" if len(others) > 1 else ""
    also = f"; also in {others[0]}{further}" if others else ""
    rows = len({int(row) for misfit in told for row in misfit.rows})
    where = f"first in {table.cell(int(first.rows[0]), first.column).rpartition(', ')[2]}"
    hint = (Argument("missing", -1, "; if -1 marks missing values, pass "),) if -1 in first.values else ()
    were = "were" if more else "was"
    warn_user(
        f"{label}: {example}{more} {were} not seen in training ({known}){also}; {counted(rows, 'row')} in all, "
        f"{where}: ",
        *OUTCOMES[unseen],
        *hint,
    )


def _known(column: Column) -> str:
    """What training saw, or what the family takes."""
    if column.categories is not None:
        more = ", ..." if len(column.categories) > SHOWN else ""
        return ", ".join(repr(value) for value in column.categories[:SHOWN]) + more
    support = column.family.support()
    if support is None:
        return repr(column.family)
    whole = counts_from_zero(support)
    return f"{support[0]} to {support[-1]}" if whole and len(support) > 2 else ", ".join(map(str, support[:SHOWN]))
