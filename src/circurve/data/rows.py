"""Parts of a table drawn at random by seed, the same with every version of numpy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from circurve.data.convert import Array
from circurve.data.dataset import Dataset
from circurve.data.table import Table
from circurve.errors import DataError, OptionError

__all__ = ["check_seed", "split_rows", "take_fraction"]

SPLIT, FRACTION = 0, 1
"""What rows are drawn for: with one seed, a split and a fraction of one of its parts are independent."""


Part = TypeVar("Part", Table, Array)
Rows = TypeVar("Rows", Dataset, Table, Array)


def split_rows(
    values: Part, valid: float = 0.1, test: float = 0.1, seed: int = 0
) -> tuple[Part, Part | None, Part | None]:
    """Training, validation and test rows, drawn at random; rows keep their order, and a share of 0 gives None.

    A table gives tables, with names, weights and labels; anything else gives arrays.
    """
    for option, share in (("valid", valid), ("test", test)):
        if not 0 <= share < 1:
            raise OptionError(f"{option} must be a share of the rows from 0 to below 1, not {share!r}")
    check_seed(seed)
    source = values if isinstance(values, Table) else np.asanyarray(values)
    count = len(source)
    held, tested = (max(1, round(count * share)) if share else 0 for share in (valid, test))
    if held + tested >= count:
        raise DataError(f"{count} rows are too few for shares of {valid} for validation and {test} for test")
    parts = np.split(_shuffled(count, seed, SPLIT), [tested, tested + held])
    tests, valids, trains = (source[np.sort(part)] for part in parts)
    return trains, valids if held else None, tests if tested else None


def take_fraction(data: Rows, share: float, seed: int = 0) -> Rows:
    """A share of the rows, at random but in their order; of a `Dataset`, a share of its training rows.

    The fractions of one seed are nested: 5 % contains 1 %. There is always at least one row.
    """
    if isinstance(data, Dataset):
        return replace(data, train=take_fraction(data.train, share, seed))
    if isinstance(share, bool) or not isinstance(share, int | float | np.number) or not 0 < share <= 1:
        raise OptionError(f"share must be a number above 0 and at most 1, not {share!r}")
    check_seed(seed)
    values: Any = data if isinstance(data, Table) else np.asanyarray(data)
    taken = max(1, round(len(values) * float(share)))
    rows: Rows = values[np.sort(_shuffled(len(values), seed, FRACTION)[:taken])]
    return rows


def check_seed(seed: object) -> None:
    """Refuse what is not a whole number >= 0."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise OptionError(f"seed must be a whole number >= 0, not {seed!r}")


def _shuffled(count: int, seed: int, purpose: int) -> NDArray[np.int64]:
    """The numbers below `count` in random order. It sorts raw PCG64 output, whose stream numpy keeps fixed."""
    entropy: Any = [int(seed), purpose] if purpose else int(seed)
    keys = np.random.PCG64(entropy).random_raw(count)
    return np.argsort(keys, kind="stable")
