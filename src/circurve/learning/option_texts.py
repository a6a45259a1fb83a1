"""Options that carry their own help text, so that Python and the command line say the same about them."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Mapping
from dataclasses import Field, field, fields
from difflib import get_close_matches
from typing import Any, TypeVar

from circurve.errors import OptionError

__all__ = ["help_of", "option", "options_in_words", "refuse_unknown", "shown_default"]

T = TypeVar("T")

WIDTH = 116
INDENT = "    "


def option(default: T, help: str, *, python: str = "", shown: str | None = None) -> T:
    """A field of a record of options.

    help: one or two sentences for Python and the command line alike; python: more words for Python; shown: what stands
    for the default where that is None.
    """
    made: T = field(default=default, metadata={"help": help, "python": python, "shown": shown})
    return made


def help_of(record: type, name: str) -> str:
    """The help text of an option."""
    text: str = _field(record, name).metadata["help"]
    return text


def shown_default(record: type, name: str) -> str:
    """The default of an option in words."""
    found = _field(record, name)
    shown = found.metadata["shown"]
    return str(found.default) if shown is None else str(shown)


def _field(record: type, name: str) -> Field[Any]:
    return next(found for found in fields(record) if found.name == name)


def options_in_words(record: type) -> str:
    """All options of a record with their help texts, as the lines of a docstring."""
    lines = []
    for found in fields(record):
        if "help" in found.metadata:
            words = " ".join(text for text in (found.metadata["help"], found.metadata["python"]) if text)
            lines += textwrap.wrap(f"{found.name}: {words}", WIDTH, subsequent_indent=INDENT)
    return textwrap.indent("\n".join(lines), INDENT)


def refuse_unknown(
    given: Mapping[str, object], known: Mapping[str, object], function: str, of_run: Collection[str] = ()
) -> None:
    """One error for an option that does not exist, with the nearest name that does; of_run: what each Run has."""
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            cure = f"did you mean {near[0]!r}?" if near else f"help({function}) lists all of them"
            cure = f"it belongs to each run: Run({name}=...)" if name in of_run else cure
            raise OptionError(f"{function} has no option {name!r}; {cure}")
