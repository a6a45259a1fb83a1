"""What the columns of a table mean: names, input families, and how their values are coded as numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

from circurve.bounds import shortened
from circurve.cards import rows_table
from circurve.errors import DataError, FileFormatError, OptionError
from circurve.inputs import Categorical, Family, family_from_json, family_reader, family_to_json

__all__ = ["Coding", "Column", "Kind", "Schema", "Value", "nearest"]

Kind: TypeAlias = Literal["number", "boolean", "category", "date"]
KINDS = get_args(Kind)
Value: TypeAlias = str | int | float | bool
"""The original value of a category."""

SHOWN_CATEGORIES = 4
"""How many categories of a column the table of a schema shows."""


@dataclass(frozen=True)
class Coding:
    """How the original values of a column are stored as numbers.

    number: as they are. boolean: false is 0, true is 1. category: code s means `categories[s]`. date: days since
    `origin`, an ISO date (whole days) or an ISO date and time (days with a fraction).
    """

    kind: Kind = "number"
    categories: tuple[Value, ...] | None = None
    origin: str | None = None


@dataclass(frozen=True)
class Column:
    """One column of a table: its name, its input family, and how its values are coded as numbers.

    Parameters
    ----------
    name : str or None
        None for a column that has a number only.
    family : Family
        The distribution of the coded values.
    kind : {"number", "boolean", "category", "date"}, default "number"
        What the original values are.
    categories : tuple, optional
        For kind "category": code s means `categories[s]`.
    origin : str, optional
        For kind "date": the ISO date from which days are counted.
    reason : str, default ""
        Why the family was chosen.
    unseen_share : float, default 0
        The probability kept for a value that was not seen in training: each seen value s then has probability
        (1 - share) p(s). All units of the circuit have the same share, so it is a factor of a row's probability:
        1 - share for each observed value of the column, share for an unseen one.

    Examples
    --------
    >>> import circurve as cc
    >>> column = cc.Column("city", cc.Categorical(2), kind="category", categories=("Oslo", "Rome"))
    >>> column.coding
    Coding(kind='category', categories=('Oslo', 'Rome'), origin=None)
    """

    name: str | None
    family: Family
    kind: Kind = "number"
    categories: tuple[Value, ...] | None = None
    origin: str | None = None
    reason: str = field(default="", compare=False)
    unseen_share: float = 0.0

    def __post_init__(self) -> None:
        what = f"column {self.name!r}"
        if self.kind not in KINDS:
            raise OptionError(f"{what}: kind must be one of {', '.join(KINDS)}, not {shortened(self.kind)}")
        if (self.kind == "category") != (self.categories is not None):
            raise OptionError(f"{what}: categories go with kind 'category', and only with it")
        if (self.kind == "date") != (self.origin is not None):
            raise OptionError(f"{what}: an origin goes with kind 'date', and only with it")
        if self.categories is not None:
            object.__setattr__(self, "categories", tuple(self.categories))
            self._check_categories(what)
        if self.origin is not None:
            _check_origin(self.origin, what)
        share: object = self.unseen_share
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < 1:
            raise OptionError(f"{what}: unseen_share must be a number from 0 to below 1, not {shortened(share)}")
        if share and self.categories is None:
            raise OptionError(f"{what}: unseen_share is for columns of categories, not for kind {self.kind!r}")

    def _check_categories(self, what: str) -> None:
        categories = self.categories or ()
        wrong = [value for value in categories if not isinstance(value, str | int | float)]
        if wrong:
            raise OptionError(f"{what}: a category must be text, a number or true or false, not {shortened(wrong[0])}")
        if len(set(categories)) < len(categories):
            raise OptionError(f"{what}: a category is listed twice")
        if isinstance(self.family, Categorical) and len(categories) > self.family.states:
            raise OptionError(f"{what}: {len(categories)} categories do not fit {self.family!r}")

    @property
    def coding(self) -> Coding:
        """How the values are stored as numbers."""
        return Coding(self.kind, self.categories, self.origin)

    def to_json(self) -> dict[str, Any]:
        """The column as JSON values; OptionError if its family has a field that JSON cannot hold.

        Returns
        -------
        dict
            The fields that are not at their defaults, for `from_json`.
        """
        optional = {
            "categories": None if self.categories is None else list(self.categories),
            "origin": self.origin,
            "unseen_share": self.unseen_share or None,
            "reason": self.reason or None,
        }
        kept = {key: value for key, value in optional.items() if value is not None}
        return {"name": self.name, "kind": self.kind, "family": family_to_json(self.family), **kept}

    @classmethod
    def from_json(cls, document: object, read_family: Callable[[Any], Family] = family_from_json) -> Column:
        """The column that `to_json` wrote; FileFormatError for anything else."""
        if not isinstance(document, Mapping):
            raise FileFormatError(f"a column of a schema must be an object, not {shortened(document)}")
        fields = dict(document)
        name, family = fields.pop("name", None), read_family(fields.pop("family", {}))
        unknown = sorted(fields.keys() - {"kind", "categories", "origin", "unseen_share", "reason"})
        if unknown:
            raise FileFormatError(f"column {name!r}: unknown field {unknown[0]!r}")
        if not isinstance(name, str | None) or not isinstance(fields.get("reason", ""), str):
            raise FileFormatError(f"column {name!r}: name and reason must be text")
        if not isinstance(fields.get("categories", []), list):
            raise FileFormatError(f"column {name!r}: 'categories' must be a list")
        try:
            return cls(name, family, **fields)
        except OptionError as error:
            raise FileFormatError(str(error)) from error


@dataclass(frozen=True, repr=False)
class Schema:
    """What all columns of a table mean; `print` shows it. `infer_schema` makes one from data.

    Parameters
    ----------
    columns : tuple of Column
        One for each variable of the circuit.
    ignored : tuple of str, default ()
        Names of columns that later tables may have and that are left out.

    Examples
    --------
    >>> import circurve as cc
    >>> schema = cc.infer_schema({"city": ["Oslo", "Rome"] * 6, "price": [1.5, 2.5, 4.0] * 4})
    >>> schema.names
    ('city', 'price')
    >>> schema.families[0]
    Categorical(states=2)
    >>> schema.position("price")
    1
    """

    columns: tuple[Column, ...]
    ignored: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        object.__setattr__(self, "ignored", tuple(self.ignored))
        names = [column.name for column in self.columns]
        if None in names and any(name is not None for name in names):
            raise OptionError("a schema needs a name for every column, or for none of them")
        named = [name for name in (*names, *self.ignored) if name is not None]
        if len(set(named)) < len(named):
            twice = next(name for name, count in Counter(named).items() if count > 1)
            raise OptionError(f"two columns have the name {twice!r}")

    @classmethod
    def of(
        cls,
        families: Iterable[Family],
        names: Sequence[str] | None = None,
        codings: Sequence[Coding] | None = None,
        reason: str = "",
    ) -> Schema:
        """A schema from one family for each column, with names and codings where there are any."""
        listed = tuple(families)
        if names is None and codings is None:  # columns without names are equal if their families are
            made = {family: Column(None, family, reason=reason) for family in set(listed)}
            return cls(tuple(made[family] for family in listed))
        codings = codings or [Coding()] * len(listed)
        called: Sequence[str | None] = [None] * len(listed) if names is None else names
        rows = zip(called, listed, codings, strict=True)
        return cls(tuple(Column(n, f, c.kind, _fitting(c, f), c.origin, reason) for n, f, c in rows))

    @cached_property
    def families(self) -> tuple[Family, ...]:
        """The family of each column."""
        return tuple(column.family for column in self.columns)

    @cached_property
    def codings(self) -> tuple[Coding, ...]:
        """The coding of each column."""
        return tuple(column.coding for column in self.columns)

    @cached_property
    def names(self) -> tuple[str, ...] | None:
        """The names of the columns; None if they have none."""
        found = tuple(column.name for column in self.columns if column.name is not None)
        return found if found or not self.columns else None

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """What answers call the columns: their names, of which one may be empty; else their indices as text."""
        return self.names or tuple(str(v) for v in range(len(self)))

    @cached_property
    def only_numbers(self) -> bool:
        """True if all values are stored as they are."""
        return all(column.kind == "number" for column in self.columns)

    @cached_property
    def discrete(self) -> bool:
        """True if all families are discrete."""
        return all(family.discrete for family in self.families)

    @cached_property
    def by_family(self) -> dict[Family, list[int]]:
        """The places of the columns of each family."""
        groups: dict[Family, list[int]] = {}
        for place, family in enumerate(self.families):
            groups.setdefault(family, []).append(place)
        return groups

    @cached_property
    def plain(self) -> bool:
        """True if the families say it all: no names, plain numbers, no reserved shares, nothing ignored."""
        bare = (column.name is None and column.kind == "number" and not column.unseen_share for column in self.columns)
        return not self.ignored and all(bare)

    @cached_property
    def numbers_only(self) -> bool:
        """True if every column holds plain numbers, or true and false, and reserves no share for unseen values."""
        return all(column.kind in ("number", "boolean") and not column.unseen_share for column in self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def position(self, name_or_number: str | int) -> int:
        """The place of a column.

        Parameters
        ----------
        name_or_number : str or int
            Its name, or its index from 0.

        Returns
        -------
        int
            Its index from 0.

        Raises
        ------
        DataError
            If there is no such column; the message suggests the nearest name.
        """
        names = self.names
        if isinstance(name_or_number, str):
            if names is None:
                wrong = f"no column {name_or_number!r}: the columns have no names"
                raise DataError(f"{wrong}; use indices, from 0 for column 1 to {len(self) - 1} for column {len(self)}")
            if name_or_number not in names:
                raise DataError(f"no column {name_or_number!r}{nearest(name_or_number, names)}")
            return names.index(name_or_number)
        if isinstance(name_or_number, bool) or not hasattr(name_or_number, "__index__"):
            raise DataError(f"a column is given by its name or its index, not by {name_or_number!r}")
        number = name_or_number.__index__()
        if not 0 <= number < len(self):
            last = f"{len(self) - 1} for column {len(self)}"
            raise DataError(f"no column of index {number}: indices go from 0 for column 1 to {last}")
        return number

    def to_json(self) -> dict[str, Any]:
        """The schema as JSON values.

        Returns
        -------
        dict
            What model files hold and `from_json` reads.

        Raises
        ------
        OptionError
            If a family has a field that JSON cannot hold.
        """
        document: dict[str, Any] = {"columns": [column.to_json() for column in self.columns]}
        return {**document, "ignored": list(self.ignored)} if self.ignored else document

    @classmethod
    def from_json(cls, document: object) -> Schema:
        """The schema that `to_json` wrote.

        Parameters
        ----------
        document : dict
            JSON values.

        Returns
        -------
        Schema
            Equal to the one that was written.

        Raises
        ------
        FileFormatError
            If it is not a schema.
        """
        if not isinstance(document, Mapping) or not isinstance(document.get("columns"), list):
            raise FileFormatError("a schema must be an object with a list of columns")
        ignored = document.get("ignored", [])
        if not isinstance(ignored, list) or not all(isinstance(name, str) for name in ignored):
            raise FileFormatError("'ignored' must be a list of names")
        read_family = family_reader()
        try:
            return cls(tuple(Column.from_json(column, read_family) for column in document["columns"]), tuple(ignored))
        except OptionError as error:
            raise FileFormatError(str(error)) from error

    def _cells(self) -> list[tuple[str, str, str, str]]:
        rows = []
        for number, column in enumerate(self.columns):
            name = str(number) if column.name is None else column.name
            rows.append((name, _family_words(column.family), _coding_words(column), column.reason))
        return [*rows, *((name, "-", "left out", "not part of the model") for name in self.ignored)]

    def __repr__(self) -> str:
        rows = [("column", "family", "values", "reason"), *self._cells()]
        widths = [max(len(row[place]) for row in rows) for place in range(3)]
        lines = ["  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[3]]) for row in rows]
        return "\n".join(line.rstrip() for line in lines)

    def _repr_html_(self) -> str:
        return rows_table(("column", "family", "values", "reason"), self._cells(), texts=4)


def nearest(name: str, known: Iterable[str]) -> str:
    """`; do you mean 'age'?`, or the names that there are, to end a message about an unknown one."""
    listed = list(known)
    close = get_close_matches(name, listed, n=1)
    if not close:  # upper and lower case mixed up
        close = [other for other in listed if other.lower() == name.lower()]
    if close:
        return f"; do you mean {close[0]!r}?"
    more = ", ..." if len(listed) > 8 else ""
    return f"; there are {', '.join(map(repr, listed[:8]))}{more}"


def _fitting(coding: Coding, family: Family) -> tuple[Value, ...] | None:
    """The categories of a coding; DataError if the family has too few states for them."""
    if coding.categories is not None and isinstance(family, Categorical) and len(coding.categories) > family.states:
        raise DataError(f"{len(coding.categories)} categories do not fit {family!r}")
    return coding.categories


def _check_origin(origin: object, what: str) -> None:
    try:
        datetime.fromisoformat(origin)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise OptionError(f"{what}: origin must be an ISO date such as '2024-01-31', not {shortened(origin)}") from None


def _family_words(family: Family) -> str:
    numbers = {name: value for name, value in vars(family).items() if isinstance(value, int | float)}
    options = ", ".join(
        f"{name}={value:.2g}" if isinstance(value, float) else str(value) for name, value in numbers.items()
    )
    return f"{type(family).__name__}({options})"


def _coding_words(column: Column) -> str:
    if column.categories is not None:
        shown = ", ".join(str(value) for value in column.categories[:SHOWN_CATEGORIES])
        more = f", ... ({len(column.categories)})" if len(column.categories) > SHOWN_CATEGORIES else ""
        share = f"; {column.unseen_share:g} for unseen values" if column.unseen_share else ""
        return f"{shown}{more}{share}"
    if column.kind == "date":
        return f"days since {column.origin}"
    return "false, true" if column.kind == "boolean" else "whole numbers" if column.family.discrete else "numbers"
