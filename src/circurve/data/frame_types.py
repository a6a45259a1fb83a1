"""The types of columns that several files share, although each file may have its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from circurve.errors import DataError

__all__ = ["common_schema"]


def common_schema(schemas: Sequence[Any], paths: Sequence[Path], columns: Sequence[str]) -> Any:
    """The schema of pyarrow that holds the columns of all files: whole numbers and reals are reals, gaps are anything.

    DataError if two files have types of a column that have nothing in common, such as numbers and text.
    """
    import pyarrow as pa  # noqa: PLC0415 - optional, and slow to import

    return pa.schema([(name, _common_type([s.field(name).type for s in schemas], paths, name)) for name in columns])


def _common_type(kinds: Sequence[Any], paths: Sequence[Path], name: str) -> Any:
    import pyarrow as pa  # noqa: PLC0415

    known = {kind: path for kind, path in zip(reversed(kinds), reversed(paths), strict=True)}  # noqa: C416 - first path
    encoded = [pa.types.is_dictionary(kind) for kind in known if not pa.types.is_null(kind)]
    common = kinds[0]
    for kind in kinds[1:] if len(known) > 1 else ():
        pair = [k.value_type if pa.types.is_dictionary(k) and not all(encoded) else k for k in (common, kind)]
        try:
            merged = pa.unify_schemas([pa.schema([(name, k)]) for k in pair], promote_options="permissive")
        except pa.ArrowException:
            raise DataError(
                f"{known[kind]}: column {name!r} holds {kind}, but in {paths[0]} it holds {kinds[0]}"
            ) from None
        common = merged.field(0).type
    return common
