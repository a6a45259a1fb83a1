"""Questions as they are typed: `income | age=30..40, sex=F`.

Left of the bar is what is asked, right of it what is known. A column by its name alone asks for its distribution;
`name=value` and `name=low..high` (an end may be left out) ask for a probability, or say what is known. Names and values
with a comma, a bar or an equals sign are put in quotes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from circurve.errors import DataError, OptionError
from circurve.schema import Column, Schema, nearest

__all__ = ["Question", "read_evidence", "read_question"]

TRUE, FALSE = ("true", "yes", "t", "y", "1"), ("false", "no", "f", "n", "0")
QUOTES = "'\""


@dataclass(frozen=True)
class Question:
    """What is asked, and what is known."""

    names: tuple[str, ...]
    """Columns whose distributions are asked for."""

    event: dict[str | int, Any]
    """Columns whose values or intervals are asked for, together; only one of the two is not empty."""

    given: dict[str | int, Any]


def read_question(text: str, schema: Schema) -> Question:
    """The question in a text, checked against the columns of a model."""
    asked, bar, known = _partition(text, "|")
    if bar and "|" in _unquoted(known):
        raise OptionError(f"the question {text!r} has more than one bar; write 'what is asked | what is known'")
    items = [_item(part, schema) for part in _split(asked, ",")]
    if not items:
        raise OptionError(
            f"the question {text!r} is empty on the left of the bar; write a column, or column=value, there"
        )
    names = tuple(name for name, value in items if value is None)
    if names and len(names) < len(items):
        raise OptionError(f"{names[0]!r} has no value, but other columns have one: give all of them a value, or none")
    given = read_evidence(known, schema)
    both = next((name for name, _ in items if schema.position(_key(name, schema)) in _places(given, schema)), None)
    if both is not None:
        raise OptionError(f"the column {both!r} is on both sides of the bar; write it on one side only")
    return Question(names, {} if names else _by_column(items, schema), given)


def read_evidence(text: str, schema: Schema) -> dict[str | int, Any]:
    """`age=30, sex=F` as evidence by column."""
    items = [_item(part, schema) for part in _split(text, ",")]
    bare = next((name for name, value in items if value is None), None)
    if bare is not None:
        raise OptionError(f"the column {bare!r} has no value; write {bare}=VALUE")
    return _by_column(items, schema)


def _by_column(items: list[tuple[str, Any]], schema: Schema) -> dict[str | int, Any]:
    found: dict[str | int, Any] = {}
    for name, value in items:
        key = _key(name, schema)
        if key in found:
            raise OptionError(f"the column {name!r} is given twice")
        found[key] = value
    return found


def _places(given: dict[str | int, Any], schema: Schema) -> set[int]:
    return {schema.position(key) for key in given}


def _key(name: str, schema: Schema) -> str | int:
    """The column's name, or its number where columns have no names."""
    if schema.names is None and name.lstrip("-").isdigit():
        return int(name)
    return name


def _item(text: str, schema: Schema) -> tuple[str, Any]:
    """The name of a column, and a value, an interval (low, high) or None."""
    left, sign, right = _partition(text, "=")
    name = _bare(left)
    column = schema.columns[schema.position(_key(name, schema))]
    if not sign:
        return name, None
    value = right.strip()
    if not value:
        raise OptionError(f"there is no value after {name}=")
    if ".." in _unquoted(value) and column.kind != "category":
        low, _, high = value.partition("..")
        return name, (_end(low, column, name), _end(high, column, name))
    return name, _value(_bare(value), column, name)


def _end(text: str, column: Column, name: str) -> Any:
    return _value(_bare(text), column, name) if text.strip() else None


def _value(text: str, column: Column, name: str) -> Any:
    if column.kind == "date":
        return text
    if column.kind == "boolean":
        if text.lower() in (*TRUE, *FALSE):
            return text.lower() in TRUE
        raise DataError(f"column {name!r} holds true and false, not {text!r}")
    if column.categories is not None:
        known = {str(value): value for value in column.categories}
        if text not in known:
            raise DataError(f"column {name!r}: {text!r} was not seen in training{nearest(text, known)}")
        return known[text]
    try:
        return float(text)
    except ValueError:
        raise DataError(f"column {name!r} holds numbers, not {text!r}") from None


# --- text with quotes ---


def _unquoted(text: str) -> str:
    """The text with everything in quotes replaced by blanks, of the same length."""
    found, quote = [], ""
    for sign in text:
        inside = bool(quote)
        if quote:
            quote = "" if sign == quote else quote
        elif sign in QUOTES:
            quote, inside = sign, True
        found.append(" " if inside else sign)
    if quote:
        raise OptionError(f"there is no closing quote in {text!r}")
    return "".join(found)


def _partition(text: str, sign: str) -> tuple[str, str, str]:
    at = _unquoted(text).find(sign)
    return (text, "", "") if at < 0 else (text[:at], sign, text[at + 1 :])


def _split(text: str, sign: str) -> list[str]:
    """The parts between unquoted signs; none for a blank text."""
    parts, rest, found = [], text, sign if text.strip() else ""
    while found:
        part, found, rest = _partition(rest, sign)
        if not part.strip():
            raise OptionError(f"there is nothing between two {sign!r}, or next to one, in {text.strip()!r}")
        parts.append(part)
    return parts


def _bare(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] in QUOTES and text[-1] == text[0] else text
