"""Evidence by column name, as people write it: `{"age": 30, "income": (20, 40), "city": {"Rome": 0.7, "Oslo": 0.3}}`.

    a value                a known value; None and NaN are unknown
    a list or an array     one value for each row
    (low, high)            the value is between them, both included; None is an open end
    {value: likelihood}    how probable each value makes what was seen, up to a factor; 0 for values left out

A data frame or an array gives values only. A column that is not named is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from circurve.data import Table, align, as_table, log_unseen
from circurve.data.convert import days_since, moment_of
from circurve.data.unseen import Unseen, advising
from circurve.errors import DataError
from circurve.inputs.family import counts_from_zero
from circurve.queries.evidence import Evidence, make_evidence
from circurve.queries.target import Target
from circurve.schema import Column, Schema, Value, nearest
from circurve.words import counted

__all__ = ["Given", "as_given", "read_given"]

MAX_COMPARED = 10_000
"""Values of a column among which a message looks for the one that was probably meant."""


@dataclass(frozen=True)
class Given:
    """Evidence, and the form in which it was given, so that answers can have the same."""

    evidence: Evidence
    single: bool
    """One row, given as values and not as lists or a frame of one row."""

    source: Any
    """The data frame, array or mapping."""

    table: Table
    """The values as they were given, in double precision where they are not whole."""

    log_share: Tensor | None = None  # (N,) float64
    """What reserved shares for unseen values, and values never seen, add to the log-probability; None: nothing."""

    @property
    def frame(self) -> Any:
        """What answers by row look like; None for a single row of values."""
        return None if self.single else self.source


def read_given(target: Target, schema: Schema, given: Any, unseen: Unseen = "error") -> Given:
    """Evidence from `{column: value}`, a data frame, an array or None, checked against the schema."""
    if given is None:
        given = {}
    soft: dict[int, NDArray[np.float64]] = {}
    ranges: dict[int, tuple[float, float]] = {}
    single, source = False, given
    if isinstance(given, Mapping):
        values, soft, ranges = _sorted_out(given, schema, unseen)
        single = not any(_is_list(value) for value in values.values())
        source = _columns(values, schema)
    soft = {column: _padded(likelihood, target.states[column]) for column, likelihood in soft.items()}
    with advising("leave the cell empty to treat it as missing", "unseen", "missing"):
        table = align(as_table(source).bare(), schema, unseen=unseen, missing_columns="missing")
    return Given(make_evidence(target, table, soft, ranges), single, given, table, log_unseen(table))


def _sorted_out(
    given: Mapping[Any, Any], schema: Schema, unseen: Unseen
) -> tuple[dict[int, Any], dict[int, NDArray[np.float64]], dict[int, tuple[float, float]]]:
    """Values, likelihoods and intervals by the number of the column."""
    values: dict[int, Any] = {}
    soft: dict[int, NDArray[np.float64]] = {}
    ranges: dict[int, tuple[float, float]] = {}
    for key, value in given.items():
        number = schema.position(key)
        column = schema.columns[number]
        if isinstance(value, Mapping):
            soft[number] = _likelihood(column, number, value)
        elif isinstance(value, tuple):
            ranges[number] = _interval(column, number, value)
        else:
            if unseen == "error":
                _check_category(column, number, value)
            values[number] = value
    return values, soft, ranges


def _check_category(column: Column, number: int, value: object) -> None:
    """Refuse text that is none of the categories of a column, with the one that was probably meant."""
    categories = column.categories or ()
    if isinstance(value, str) and categories and value not in categories:
        if not any(isinstance(category, str) for category in categories):
            raise DataError(f"{_name(column, number)}: {value!r} is text, but its categories are numbers")
        raise DataError(
            f"{_name(column, number)}: {value!r} was not seen in training{nearest(value, map(str, categories))}"
        )


def _columns(values: Mapping[int, Any], schema: Schema) -> Any:
    """Values by number as a table: columns by name, or an array where there are no names."""
    if schema.names is not None and values:
        return {schema.names[number]: value for number, value in values.items()}
    rows = max((len(value) for value in values.values() if _is_list(value)), default=1)
    array = np.full((rows, len(schema)), np.nan)
    for number, value in values.items():
        if _is_list(value) and len(value) != rows:
            raise DataError(
                f"columns differ in length: column {number + 1} has {counted(len(value), 'value')}, another has {rows}"
            )
        array[:, number] = value
    return array


def _name(column: Column, number: int) -> str:
    return f"column {number + 1}" if column.name is None else f"column {column.name!r}"


def _likelihood(column: Column, number: int, given: Mapping[Any, Any]) -> NDArray[np.float64]:  # (S,)
    """One number for each state, in their order."""
    support = column.family.support()
    what = _name(column, number)
    if support is None:
        raise DataError(f"{what} has no list of values: give an interval (low, high) in place of likelihoods")
    found = np.zeros(len(support))
    originals = _originals(column, support)
    known = None if isinstance(originals, range) else {value: at for at, value in enumerate(originals)}
    for value, likelihood in given.items():
        at = _whole_number(value, len(support)) if known is None else known.get(value)
        if at is None:
            hint = nearest(str(value), map(str, originals)) if len(originals) <= MAX_COMPARED else ""
            raise DataError(f"{what}: {value!r} was not seen in training{hint}")
        found[at] = _number(likelihood, what)
    if not found.any():
        raise DataError(f"{what}: all likelihoods are zero")
    return found


def _padded(likelihood: NDArray[np.float64], states: Sequence[int] | None) -> NDArray[np.float64]:  # (S,)
    """With zeros for the states that only other inputs of the column have: the schema knows the smallest support."""
    missing = 0 if states is None else len(states) - len(likelihood)
    return np.pad(likelihood, (0, missing)) if missing > 0 and counts_from_zero(states or ()) else likelihood


def _whole_number(value: Any, count: int) -> int | None:
    """A number that is one of 0, 1, ..., count - 1, as an int; None for anything else."""
    whole = isinstance(value, int | float | np.number) and float(value).is_integer()
    return int(value) if whole and 0 <= value < count else None


def _number(likelihood: Any, what: str) -> float:
    try:
        return float(likelihood)
    except (ValueError, TypeError):
        raise DataError(f"{what}: a likelihood must be a number, not {likelihood!r}") from None


def _originals(column: Column, support: Sequence[int]) -> Sequence[Value]:
    if column.categories is not None:
        return column.categories
    if column.kind == "boolean":
        return [bool(state) for state in support]
    return range(len(support)) if counts_from_zero(support) else list(support)


def _interval(column: Column, number: int, given: tuple[Any, ...]) -> tuple[float, float]:
    what = _name(column, number)
    if len(given) != 2:
        raise DataError(f"{what}: an interval is (low, high), not {given!r}; give several rows as a list")
    if column.kind == "category":
        raise DataError(f"{what} holds categories, which have no order: give likelihoods, {{value: number}}")
    low, high = (_end(column, what, end) for end in given)
    return (-np.inf if low is None else low), (np.inf if high is None else high)


def _end(column: Column, what: str, end: Any) -> float | None:
    if end is None:
        return None
    if column.kind == "date":
        try:
            text = end.isoformat() if isinstance(end, date) else end
            moment = np.array([text if isinstance(text, np.datetime64) else moment_of(text)])
        except (ValueError, AttributeError):  # numbers are no texts
            raise DataError(f"{what}: {end!r} is not a date such as '2024-01-31'") from None
        return float(days_since(moment, str(column.origin))[0])
    try:
        return float(end)
    except (ValueError, TypeError):
        raise DataError(f"{what}: the end of an interval must be a number, not {end!r}") from None


def _is_list(value: object) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str | bytes) and getattr(value, "ndim", 1) > 0


def as_given(values: Tensor, known: Given) -> NDArray[np.float64]:  # (..., N, V)
    """The values, with what was given in its own digits: the model may compute in float32."""
    table = known.table
    given = table.values.double().numpy()
    observed = np.ones(given.shape, dtype=np.bool_) if table.observed is None else table.observed.numpy()
    return np.where(observed, given, values.double().cpu().numpy())
