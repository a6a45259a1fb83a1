"""What the fields of a text column hold: numbers, true and false, dates, or text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from circurve.data.convert import Coded, dates
from circurve.schema import Coding

__all__ = ["MISSING", "column_of_fields", "number_of"]

MISSING = frozenset({"", "?", "na", "n/a", "nan", "null", "none"})
"""What stands for a missing value, in any case."""

BOOLEANS = {"true": 1.0, "false": 0.0}
ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?")


@lru_cache(1000)  # in tables of counts the same few fields come again and again
def number_of(field: str) -> float | None:
    """The field as a float, NaN if missing, None if it is text."""
    try:
        # Python reads 20_21 as 2021; in a data file it is a label
        return None if "_" in field else float(field)
    except ValueError:
        return float("nan") if field.strip().lower() in MISSING else None


def column_of_fields(distinct: Sequence[str], codes: NDArray[np.int64], categorical: bool) -> tuple[Coded, int | None]:
    """The column whose row n holds the field distinct[codes[n]], and the code of a stray text in it (None: none).

    Text is stray where at least half of the fields are numbers, unless the column is said to be `categorical`.
    """
    fields = [field.strip() for field in distinct]
    missing = np.array([field.lower() in MISSING for field in fields])
    numbers = [number_of(field) for field in fields]
    texts = [n for n, number in enumerate(numbers) if number is None]
    if not texts and not (categorical and not missing.all()):
        return Coded(np.array(numbers, dtype=np.float64)[codes]), None
    present = [field for field, absent in zip(fields, missing, strict=True) if not absent]
    if not categorical and all(field.lower() in BOOLEANS for field in present):
        values = np.array([BOOLEANS.get(field.lower(), np.nan) for field in fields])
        return Coded(_whole(values[codes]), Coding("boolean")), None
    if not categorical and (days := _days(fields, missing)) is not None:
        return dates(days[codes]), None
    counts = np.bincount(codes, minlength=len(fields))
    share = sum(counts[n] for n, number in enumerate(numbers) if number is not None and not missing[n])
    stray = texts[0] if texts and not categorical and 2 * share >= counts[~missing].sum() else None
    categories = tuple(sorted(set(present)))
    place = {field: code for code, field in enumerate(categories)}
    found = np.array([np.nan if absent else place[f] for f, absent in zip(fields, missing, strict=True)])
    return Coded(_whole(found[codes]), Coding("category", categories)), stray


def _days(fields: Sequence[str], missing: NDArray[np.bool_]) -> NDArray[np.datetime64] | None:
    """The fields as dates, NaT for missing ones; None if one is something else."""
    if not all(absent or ISO_DATE.fullmatch(field) for field, absent in zip(fields, missing, strict=True)):
        return None
    try:
        texts = ["NaT" if absent else field for field, absent in zip(fields, missing, strict=True)]
        return np.array(texts, dtype="datetime64[us]")
    except ValueError:  # the 31st of June
        return None


def _whole(values: NDArray[np.float64]) -> NDArray[np.float64] | NDArray[np.int64]:
    return values if np.isnan(values).any() else values.astype(np.int64)
