"""Which input family suits each column: the rule, and the schema that it gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from circurve.data.convert import column_label
from circurve.data.entry import as_table
from circurve.data.found import Found, FoundInTables, gaussian_for
from circurve.data.infer_stream import DROP, StreamRules, Types, stream_schema
from circurve.data.need import check_inferred
from circurve.data.open_stream import as_source, is_streamed
from circurve.data.recode import common_codings
from circurve.data.scan import MAX_STATES, Columns, scan_columns
from circurve.data.table import Table
from circurve.errors import Argument, DataError, OptionError, warn_user
from circurve.inputs import Bernoulli, Binomial, Categorical, Family, Poisson
from circurve.inputs.common import LARGEST_WHOLE
from circurve.schema import Coding, Column, Schema
from circurve.words import counted

__all__ = ["DROP", "FEW_VALUES", "Types", "families_of", "infer_families", "infer_schema", "parse_type"]

FEW_VALUES, REPEATS = 20, 5
"""Whole numbers are categories if there are at most FEW_VALUES of them, each seen twice, REPEATS times on average."""

LARGEST_COUNT, LARGEST_MEAN_COUNT = 1000, 50
"""Counts beyond are as well described by a Gaussian."""

SLACK = 0.8
"""A mixture of Poissons or Binomials has at least the variance of one; a column may have this share of it."""

MAX_CATEGORIES = 256
"""Text with more different values, or with hardly a value twice, names rows; it does not describe them."""

TYPES = ("bernoulli", "categorical", "binomial", "poisson", "gaussian", DROP)


def infer_schema(
    *tables: Any,
    types: Types | None = None,
    missing: int | None = None,
    unseen_share: float = 0.0,
    memory_budget: int | None = None,
) -> Schema:
    """The schema of a data frame or of another table: a family for each column, with the reason; `print` shows it.

    The first line that fits decides::

        nothing observed                                    Bernoulli
        true and false                                      Bernoulli
        text, declared categories                           Categorical; an error above 256 values, or if hardly
                                                            any value occurs twice
        dates                                               Gaussian over days since the first one
        only 0 and 1                                        Bernoulli
        a single whole number                               Categorical with one state
        whole numbers, at most 20, each at least twice and
            5 times on average                              Categorical
        whole numbers from 0, mean below 50, largest below 1000:
            variance at least 0.8 of the mean               Poisson
            variance at least 0.8 of a Binomial's           Binomial(largest)
        all other numbers                                   Gaussian

    Tables without column names (arrays, tensors, files without a header) have another rule for numbers: only 0 and 1
    is Bernoulli, whole numbers from 0 to 255 are Categorical(largest + 1), all others Gaussian.

    Parameters
    ----------
    *tables : array, data frame or Table
        With several tables, the schema covers the values of all. Weights of rows have no effect on it: values of a row
        of weight 0 have a place in the schema too.
    types : mapping, optional
        Families of some columns by name: `{"age": "gaussian", "city": "categorical", "id": "drop"}`, or with their
        options, `{"n": Binomial(10)}`. "drop" leaves a column out, here and in all later tables.
    missing : int, optional
        A number that marks missing values, in addition to NaN.
    unseen_share : float, default 0
        The probability that columns of categories keep for values not seen here (`Column.unseen_share`).
    memory_budget : int, optional
        Memory limit for the tables and what is computed from them, in bytes; checked before memory is allocated.

    Returns
    -------
    Schema
        One `Column` for each column that is kept.

    Raises
    ------
    DataError
        If a column of text names rows instead of describing them, or a type does not fit its column.

    Examples
    --------
    >>> import circurve as cc
    >>> table = {"city": ["Oslo", "Rome", "Lima"] * 8, "orders": [2, 9, 4, 30, 1, 12, 0, 7] * 3}
    >>> cc.infer_schema(table, types={"orders": "poisson"})
    column  family          values            reason
    city    Categorical(3)  Lima, Oslo, Rome  text, 3 different
    orders  Poisson()       whole numbers     given
    """
    if any(is_streamed(table) for table in tables):
        if len(tables) > 1:
            raise OptionError("infer_schema takes one stream at a time")
        rules = StreamRules(
            infer_schema, _of_ranges, partial(_column_of_stream, unseen_share=unseen_share), unseen_share
        )
        return stream_schema(as_source(tables[0], missing), types or {}, rules, memory_budget)
    left = check_inferred("infer_schema", memory_budget, *tables)
    read, ignored, chosen = _read(tables, types, missing)
    columns = scan_columns(*read, memory_budget=left)
    found, alike = [], _ColumnsAlike()
    for v, coding in enumerate(read[0].codings or (Coding(),) * read[0].shape[1]):
        facts = FoundInTables(read, v, coding)
        if v not in chosen and read[0].columns is None and coding.kind == "number":
            column = alike(None, *_plain(columns, v))
        elif v not in chosen and coding.kind == "number" and columns.binary[v] and not columns.empty[v]:
            column = alike(facts.name, *_only_zeros_and_ones(columns.low[v], columns.high[v]))
        else:
            column = _column(facts, chosen.get(v))
        found.append(_with_share(column, unseen_share))
    schema = Schema(tuple(found), ignored)
    _warn_of_marks(columns, read[0], schema.families)
    return schema


def infer_families(*tables: Any, missing: int | None = None, memory_budget: int | None = None) -> tuple[Family, ...]:
    """One input family for each column of data (N, V), for the numbers as they are.

    Only 0 and 1 (or nothing at all): `Bernoulli`. Whole numbers from 0 to 255: `Categorical(largest + 1)`. Text: a
    `Categorical`. All other numbers: `Gaussian`, with a warning if -1 is the only value that is not 0 or above,
    because it often marks what is missing. `infer_schema` looks closer at tables with column names.

    The `min_variance` of a Gaussian goes with the units of its column: 1e-4 s^2, where s is the spread of the values,
    without outliers; 1e-4 for a constant. It does not follow a spread that float32 cannot distinguish from rounding
    next to the median. Cost O(N V).

    Parameters
    ----------
    *tables : array, data frame or Table
        Give training, validation and test data together: a value above the largest one seen here is impossible later.
    missing : int, optional
        A number that marks missing values, in addition to NaN.
    memory_budget : int, optional
        Memory limit for the tables and what is computed from them, in bytes; checked before memory is allocated.

    Returns
    -------
    tuple of Family
        One for each column.

    Examples
    --------
    >>> import circurve as cc
    >>> cc.infer_families([[0, 2], [1, 0], [1, 1]])
    (Bernoulli(), Categorical(states=3))
    """
    if not tables:
        raise DataError("infer_families needs at least one table")
    left = check_inferred("infer_families", memory_budget, *tables)
    read, _, _ = _read(tables, None, missing)
    columns = scan_columns(*read, memory_budget=left)
    families = list(families_of(columns))
    _warn_of_marks(columns, read[0], families)
    for v, coding in enumerate(read[0].codings or ()):
        if coding.categories is not None:
            families[v] = Categorical(max(1, len(coding.categories)))
    return tuple(families)


def families_of(columns: Columns) -> tuple[Family, ...]:
    """The families that `infer_families` chooses for plain numbers, from facts already gathered."""
    return tuple(_plain(columns, v)[0] for v in range(len(columns.high)))


def _plain(columns: Columns, v: int) -> tuple[Family, str]:
    """The family of a column of numbers without a name, and the reason."""
    if columns.binary[v]:
        return Bernoulli(), "only 0 and 1"
    if columns.countable[v]:
        high = int(columns.high[v])
        return Categorical(high + 1), f"whole numbers from 0 to {high}"
    reason = "real numbers" if not columns.whole[v] else "whole numbers beyond 0 to 255"
    return gaussian_for(float(columns.median[v]), float(columns.spread[v])), reason


def _of_ranges(columns: Columns, first: Table) -> Schema:
    """The schema of numbers without names, from their ranges; `first`: some of the rows, for messages."""
    alike = _ColumnsAlike()
    schema = Schema(tuple(alike(None, *_plain(columns, v)) for v in range(len(columns.high))))
    _warn_of_marks(columns, first, schema.families)
    return schema


class _ColumnsAlike:
    """Columns of plain numbers. Those without names that are alike are one object: a table may have a million."""

    def __init__(self) -> None:
        self._made: dict[tuple[Family, str], Column] = {}

    def __call__(self, name: str | None, family: Family, reason: str) -> Column:
        if name is not None:
            return Column(name, family, reason=reason)
        key = (family, reason)
        if key not in self._made:
            self._made[key] = Column(None, family, reason=reason)
        return self._made[key]


def _only_zeros_and_ones(low: float, high: float) -> tuple[Family, str]:
    """The family of a column that has only 0 and 1, and the reason."""
    return Bernoulli(), "only 0 and 1" if low < high else f"only {int(low)}"


def _column(found: Found, told: str | Family | None) -> Column:
    return _by_rule(found) if told is None else _as_told(found, told)


def _with_share(column: Column, unseen_share: float) -> Column:
    return replace(column, unseen_share=unseen_share) if unseen_share and column.categories else column


def _column_of_stream(found: Found, told: str | Family | None, unseen_share: float) -> Column:
    """A column of a file that is read block by block."""
    column, facts = _column(found, None if told is None else _checked_type(found.name, told)), found.facts
    if found.coding.kind == "number" and facts.whole and facts.low == -1 and facts.high < MAX_STATES:
        _warn_of_mark(found.label, column.family)
    return _with_share(column, unseen_share)


def _by_rule(found: Found) -> Column:
    kind, facts = found.coding.kind, found.facts
    if kind == "category":
        return _text(found)
    if kind == "date":
        return found.column(found.gaussian, "dates, as days", kind)
    if not facts.size:
        return found.column(Bernoulli(), "nothing observed", kind)
    if kind == "boolean":
        return found.column(Bernoulli(), "true and false", kind)
    low, high = facts.low, facts.high
    if not facts.whole:
        return found.column(found.gaussian, f"real numbers from {low:.4g} to {high:.4g}")
    if low >= 0 and high <= 1:
        return found.column(*_only_zeros_and_ones(low, high))
    distinct = found.distinct
    if len(distinct) == 1:
        return found.numbers(distinct.values, "a single value")
    if len(distinct) <= FEW_VALUES and facts.size >= REPEATS * len(distinct) and distinct.counts.min() > 1:
        repeats = facts.size // len(distinct)
        return found.numbers(
            distinct.values, f"{counted(len(distinct), 'whole number')}, each {repeats} times on average"
        )
    moments = facts.mean, facts.variance
    words = f"whole numbers from {low:.6g} to {high:.6g}, mean {moments[0]:.3g}, variance {moments[1]:.3g}"
    return found.column(_count_family(low, high, *moments) or found.gaussian, words)


def _count_family(low: float, high: float, mean: float, variance: float) -> Family | None:
    """The family of counts with this range and these moments; None if they are no counts."""
    if low < 0 or mean >= LARGEST_MEAN_COUNT or high >= LARGEST_COUNT:
        return None
    if variance >= SLACK * mean:
        return Poisson()
    return Binomial(int(high)) if variance >= SLACK * mean * (1 - mean / high) else None


def _text(found: Found) -> Column:
    categories = found.coding.categories or ()
    distinct, rows = found.distinct, found.facts.size
    used = len(distinct)
    if not categories:
        return found.column(Bernoulli(), "nothing observed")
    if not any(isinstance(value, str) for value in categories):
        return found.categories(categories, f"{len(categories)} declared categories")
    if used > MAX_CATEGORIES or (rows > FEW_VALUES and used > 0.9 * rows):
        example = categories[int(found.first)]
        key = found.number if found.name is None else found.name
        raise DataError(
            f"{found.label}: {distinct.words} different texts in {rows} rows, such as {example!r}, look like names of "
            f"rows, from which no model can learn; leave the column out with ",
            Argument("types", {key: "drop"}),
            ", or keep it with ",
            Argument("types", {key: "categorical"}),
        )
    more = f", {used} of them observed" if used < len(categories) else ""
    return found.categories(categories, f"text, {len(categories)} different{more}")


def _as_told(found: Found, told: str | Family) -> Column:
    """The column with the family that `types` gives it."""
    facts, coding = found.facts, found.coding
    text = any(isinstance(value, str) for value in coding.categories or ())
    if isinstance(told, Family):
        if text and told.support() is None:
            raise _wrong_type(f"{found.label} holds text, which cannot be {told!r}; use categorical or drop")
        return Column(found.name, told, coding.kind, coding.categories, coding.origin, "given")
    if told == "categorical":
        if coding.categories is not None:
            return found.categories(coding.categories, "given")
        if coding.kind == "date":
            raise _wrong_type(f"{found.label} holds dates, which cannot be categorical; convert them to text first")
        return found.numbers(found.distinct.values, "given")
    if text:
        raise _wrong_type(f"{found.label} holds text, which cannot be {told}; use categorical or drop")
    if told == "gaussian":
        return found.column(found.gaussian, "given", "date" if coding.kind == "date" else "number")
    if coding.kind == "date":
        raise _wrong_type(f"{found.label} holds dates, which cannot be {told}; use gaussian or drop")
    if facts.size and not (facts.low >= 0 and facts.whole):
        raise _wrong_type(f"{found.label} has values that are not whole numbers >= 0, which {told} needs")
    if told == "bernoulli" and facts.size and facts.high > 1:
        raise _wrong_type(f"{found.label} has values above 1 ({facts.high:g}), which bernoulli does not take")
    high = max(1, int(facts.high)) if facts.size else 1
    if told in ("poisson", "binomial") and high > LARGEST_WHOLE:
        raise _wrong_type(
            f"{found.label} has values above {LARGEST_WHOLE} ({facts.high:g}), which {told} does not take; use gaussian"
        )
    simple: dict[str, Family] = {"bernoulli": Bernoulli(), "poisson": Poisson()}
    family = simple.get(told) or Binomial(max(1, high))
    return found.column(family, "given", "boolean" if (coding.kind, told) == ("boolean", "bernoulli") else "number")


def _wrong_type(problem: str) -> OptionError:
    return OptionError(Argument("types"), f": {problem}")


def _checked_type(key: object, kind: object) -> str | Family:
    if not isinstance(kind, Family | str):
        raise _wrong_type(f"{key!r} must be the name of a family or a family, not {kind!r}")
    return parse_type(kind) if isinstance(kind, str) else kind


def parse_type(text: str) -> str:
    """The name of a family, or "drop", as `types` has it; OptionError for any other text."""
    if text.lower() not in TYPES:
        raise _wrong_type(f"{text!r} is not one of {', '.join(TYPES)}")
    return text.lower()


def _read(
    tables: Sequence[Any], types: Types | None, missing: int | None
) -> tuple[list[Table], tuple[str, ...], dict[int, str | Family]]:
    """The tables with equal columns and codings, the names left out, and the types by the columns' new numbers."""
    if not tables:
        raise DataError("infer_schema needs at least one table")
    read = [as_table(table, missing=missing) for table in tables]
    widths = {table.shape[1] for table in read}
    if len(widths) != 1:
        raise DataError(f"the tables differ in their number of columns: {', '.join(str(w) for w in sorted(widths))}")
    first = read[0]
    if not types:
        return common_codings(read), (), {}
    finder = Schema.of([Bernoulli()] * first.shape[1], first.columns)
    told: dict[int, str | Family] = {}
    for key, kind in types.items():
        told[finder.position(key)] = _checked_type(key, kind)
    kept = [v for v in range(first.shape[1]) if told.get(v) != DROP]
    if not kept:
        raise _wrong_type("all columns are left out")
    if len(kept) < first.shape[1] and first.columns is None:
        raise _wrong_type("'drop' is for columns with names; leave the column out of the array")
    ignored = tuple(name for v, name in enumerate(first.columns or ()) if v not in kept)
    names = tuple(name for name in first.columns or () if name not in ignored)
    read = common_codings([table.pick(kept, names) if ignored else table for table in read])
    return read, ignored, {place: told[v] for place, v in enumerate(kept) if v in told}


def _warn_of_marks(columns: Columns, table: Table, families: Sequence[Family]) -> None:
    suspects = np.flatnonzero(columns.whole & (columns.low == -1) & (columns.high < MAX_STATES))
    if suspects.size:
        more = f" and {suspects.size - 1} more" if suspects.size > 1 else ""
        where = column_label(table.columns, int(suspects[0])) + more
        _warn_of_mark(where, families[suspects[0]])


def _warn_of_mark(where: str, family: Family) -> None:
    hint = Argument("missing", -1, "; if -1 marks missing values, pass ")
    warn_user(f"{where}: whole numbers from -1 up, read as {type(family).__name__}", hint)
