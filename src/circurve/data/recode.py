"""From one coding of a column to another, and back to the original values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from circurve.data.convert import DAY, Array, column_label, days_since, moment_of, short
from circurve.data.table import Table
from circurve.data.unseen import Misfit
from circurve.errors import DataError
from circurve.schema import Coding, Value

__all__ = ["common_codings", "decode_column", "joint_coding", "recoded"]

UNSEEN = -1
DAY_LETTERS = 10
"""Of a date without its time: 2024-01-31."""


def recoded(table: Table, old: Sequence[Coding], new: Sequence[Coding]) -> tuple[Table, list[Misfit]]:
    """The table in new codings, and the cells whose values are none of the categories there, which are then missing."""
    table = replace(table, codings=tuple(new))
    if all(a == b or {a.kind, b.kind} == {"number", "boolean"} for a, b in zip(old, new, strict=True)):
        return table, []
    array, misfits = np.array(table, dtype=np.float64), []
    for v, (a, b) in enumerate(zip(old, new, strict=True)):
        column, unseen = _recode(array[:, v], a, b, column_label(table.columns, v))
        if unseen is not None:
            rows = np.flatnonzero(unseen)
            values = dict.fromkeys(array[rows, v].tolist())
            misfits.append(Misfit(v, rows, tuple(_original(a, value) for value in values)))
        array[:, v] = column
    hidden = np.isnan(array)
    observed = torch.from_numpy(~hidden) if hidden.any() else None
    return replace(table, values=torch.from_numpy(np.where(hidden, 0.0, array)), observed=observed), misfits


def _recode(values: Array, old: Coding, new: Coding, label: str) -> tuple[Array, NDArray[np.bool_] | None]:  # (N,)
    """The column in the new coding, NaN where a value is missing or not in it; and where it is not (None: nowhere).

    Numbers, true and false, and categories are found among the new categories by their value; text that writes a date
    is a date. Other changes of kind are a DataError; `label` opens it.
    """
    if old == new:
        return values, None
    present = ~np.isnan(values) if values.dtype.kind == "f" else np.ones(len(values), dtype=np.bool_)
    if not present.any():
        return np.full(len(values), np.nan), None
    if new.kind == "category":
        return _by_value(values, present, old, new)
    if new.kind == "date":
        return _as_days(values, present, old, new, label), None
    if old.kind in ("number", "boolean"):
        return values, None
    if old.categories is not None and not any(isinstance(value, str) for value in old.categories):
        return _spread(present, np.array(old.categories, dtype=np.float64)[values[present].astype(np.int64)]), None
    wanted = "a number" if new.kind == "number" else "true or false"
    example = _original(old, float(values[present][0]))
    raise DataError(f"{label} holds {'text' if old.kind == 'category' else 'dates'} ({short(example)}), not {wanted}")


def _by_value(
    values: Array, present: NDArray[np.bool_], old: Coding, new: Coding
) -> tuple[Array, NDArray[np.bool_] | None]:
    distinct, inverse = np.unique(values[present], return_inverse=True)
    place: dict[object, int] = {value: code for code, value in enumerate(new.categories or ())}
    codes = np.array([_find(place, _original(old, float(value))) for value in distinct], dtype=np.float64)
    found = _spread(present, codes[inverse])
    unseen = found == UNSEEN
    if not unseen.any():
        return found, None
    return np.where(unseen, np.nan, found), unseen


def _find(place: dict[object, int], value: Value | np.datetime64) -> int:
    """The code of a value; numbers, true and false may also be categories as text."""
    if value in place:
        return place[value]
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    texts = (str(value), str(value).lower()) if not isinstance(value, str) else ()
    return next((place[text] for text in texts if text in place), UNSEEN)


def _as_days(values: Array, present: NDArray[np.bool_], old: Coding, new: Coding, label: str) -> Array:
    origin = cast("str", new.origin)
    if old.kind == "date":
        shift = days_since(np.array([old.origin], dtype="datetime64[us]"), origin)[0]
        return np.asarray(values + shift)
    originals = [_original(old, float(value)) for value in values[present]]
    wrong = next((value for value in originals if not isinstance(value, str)), None)
    if wrong is not None:
        raise DataError(f"{label} holds {short(wrong)}, not a date such as '2024-01-31'")
    try:
        days = [moment_of(text := value.strip()) for value in cast("list[str]", originals)]
    except ValueError:
        raise DataError(f"{label} holds the text {short(text)}, not a date such as '2024-01-31'") from None
    return _spread(present, days_since(np.array(days), origin))


def _spread(present: NDArray[np.bool_], values: Array) -> Array:
    """The values where they are present, NaN elsewhere."""
    spread = np.full(len(present), np.nan)
    spread[present] = values
    return spread


def _original(coding: Coding, number: float) -> Value | np.datetime64:
    """The value that a number encodes."""
    if coding.kind == "category":
        categories = coding.categories or ()
        return categories[int(number)] if number < len(categories) else number
    if coding.kind == "boolean":
        return bool(number) if number in (0, 1) else number
    if coding.kind == "date":
        return cast("np.datetime64", decode_column(np.array([number]), coding)[0])
    return int(number) if float(number).is_integer() else float(number)


def decode_column(values: Array, coding: Coding, whole: bool = False) -> Array:  # (N,) -> (N,)
    """The original values of a column, NaN for what is missing.

    Missing values are None among text, true and false, NaT among dates, NaN among numbers. whole: numbers are whole,
    and come back as integers where none is missing. Codes are rounded to the nearest.
    """
    values = np.asarray(values, dtype=np.float64)
    missing = np.isnan(values)
    filled = np.where(missing, 0.0, values)
    if coding.kind == "date":
        days = np.rint(filled) if len(cast("str", coding.origin)) == 10 else filled
        unit = "D" if len(cast("str", coding.origin)) == 10 else "us"
        moments = np.datetime64(coding.origin, "us") + np.rint(days * DAY).astype("timedelta64[us]")
        found = moments.astype(f"datetime64[{unit}]")
        found[missing] = np.datetime64("NaT")
        return found
    if coding.kind == "number":
        return values if missing.any() or not whole else np.rint(values).astype(np.int64)
    known: tuple[Any, ...] = (False, True) if coding.kind == "boolean" else coding.categories or ()
    names = np.empty(len(known), dtype=object)
    names[:] = known
    found = names[np.clip(np.rint(filled).astype(np.int64), 0, max(len(known) - 1, 0))]
    if missing.any():
        numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in known)
        found[missing] = np.nan if numbers else None
        return found.astype(np.float64) if numbers else found
    return np.array(found.tolist()) if not any(isinstance(value, str) for value in known) else found


def common_codings(tables: list[Table]) -> list[Table]:
    """The tables in one coding that covers them all."""
    if all(table.codings == tables[0].codings for table in tables):
        return tables
    width = tables[0].shape[1]
    each = [table.codings or (Coding(),) * width for table in tables]
    new = [joint_coding([codings[v] for codings in each], column_label(tables[0].columns, v)) for v in range(width)]
    return [recoded(table, old, new)[0] for table, old in zip(tables, each, strict=True)]


def joint_coding(codings: Sequence[Coding], label: str) -> Coding:
    """One coding for the values of several tables."""
    kinds = {coding.kind for coding in codings}
    if kinds == {"category"}:
        merged = dict.fromkeys(value for coding in codings for value in coding.categories or ())
        if set(merged) == set(codings[0].categories or ()):
            return codings[0]
        return Coding("category", tuple(sorted(merged, key=lambda value: (isinstance(value, str), value))))
    if kinds == {"date"}:
        first = min((coding.origin or "")[:DAY_LETTERS] for coding in codings)
        clock = {(coding.origin or "")[DAY_LETTERS:] for coding in codings} - {""}  # days have none
        return Coding("date", origin=first + min(clock, default=""))
    if kinds <= {"number", "boolean"}:
        return Coding() if "number" in kinds else codings[0]
    raise DataError(f"{label} holds {' in one table and '.join(sorted(kinds))} in another")
