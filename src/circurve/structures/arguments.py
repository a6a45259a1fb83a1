"""The arguments that all builders share: one family for each variable, and counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

from circurve.data import RowSource, align, align_source, as_source, as_table, infer_schema, is_streamed
from circurve.errors import Argument, OptionError
from circurve.inputs import Bernoulli, Family
from circurve.schema import Schema
from circurve.words import counted

__all__ = ["Families", "as_families", "as_table_with_schema", "check_count", "schema_of"]

Families: TypeAlias = int | tuple[Family, int] | Sequence[Family] | Schema
"""One family for each variable: a sequence of them, `(family, count)`, a count alone for binary variables, or a schema,
which the circuit then keeps."""


def schema_of(families: Families | Family) -> Schema | None:
    """The schema, where one was given in place of families."""
    return families if isinstance(families, Schema) else None


def as_families(families: Families | Family, variables: int | None = None) -> tuple[Family, ...]:
    """One family for each variable, from any of the forms of `Families`.

    If the number of `variables` is known from data, one family alone is used for all of them, and
    any other number of families is an OptionError.
    """
    if isinstance(families, Family):
        if variables is None:
            raise OptionError(
                f"families={families!r} does not say how many columns there are: write ({families!r}, count)"
            )
        return (families,) * variables
    if isinstance(families, Schema):
        families = families.families
    if isinstance(families, int | np.integer):
        listed: tuple[object, ...] = (Bernoulli(),) * check_count("families", families)
    else:
        listed = tuple(families) if isinstance(families, Iterable) else (families,)
        if len(listed) == 2 and isinstance(listed[1], int | np.integer):
            listed = listed[:1] * check_count("families", listed[1])
    checked = tuple(family for family in listed if isinstance(family, Family))
    if not checked or len(checked) < len(listed):
        raise OptionError(
            f"families must be a count, (family, count) or one input family for each variable, not {families!r}"
        )
    if variables is not None and len(checked) != variables:
        raise OptionError(f"families has {len(checked)} entries for {counted(variables, 'variable')}")
    return checked


def as_table_with_schema(
    data: object, families: Families | Family | None, schema: Schema | None, missing: int | None
) -> tuple[RowSource, Schema]:
    """The data as a table or stream, and what its columns mean: `schema`, `families` of the numbers, or inferred."""
    if families is not None and schema is not None:
        raise OptionError("pass families= or schema=, not both: a schema contains the families")
    if is_streamed(data):
        source = as_source(data, missing)
        if families is not None and schema is None and schema_of(families) is None:
            schema = Schema.of(as_families(families, source.shape[1]), source.columns)
        schema = schema or (None if families is None else schema_of(families)) or infer_schema(source)
        return align_source(source, schema, unseen="error"), schema
    table = as_table(data, missing=missing)
    schema = schema or (None if families is None else schema_of(families))
    if families is None or schema is not None:
        schema = schema or infer_schema(table)
        return align(table, schema, unseen="error"), schema
    return table, Schema.of(as_families(families, table.shape[1]), table.columns, table.codings)


def check_count(option: str, value: object, at_least: int = 1) -> int:
    """Return `value` as an int; raise OptionError, naming the option, unless it is a whole number >= `at_least`."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < at_least:
        raise OptionError(Argument(option), f" must be a whole number >= {at_least}, not {value!r}")
    return int(value)
