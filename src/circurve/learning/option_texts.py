"""Options that carry their own help text: `help`, `inspect` and the command line show the same words and defaults."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Collection, Mapping
from dataclasses import Field, field, fields
from difflib import get_close_matches
from inspect import Parameter, cleandoc, signature
from typing import Any, TypeVar

from circurve.errors import OptionError

__all__ = ["help_of", "option", "refuse_unknown", "show_options", "show_records", "shown_default"]

T = TypeVar("T")

WIDTH = 116
INDENT = "    "

LITERAL = re.compile(r"Literal\[(.*?)\]")
"""A choice in a type, which docstrings show as {'a', 'b'}."""

NEXT_OPTION = "refit"
"""The options of training come before this one, and those of a run before them."""


def option(default: T, help: str, *, python: str = "", shown: str | None = None) -> T:
    """A field of a record of options.

    help: one or two sentences for Python and the command line alike; python: more words for Python; shown: the text for
    a default that is None.
    """
    made: T = field(default=default, metadata={"help": help, "python": python, "shown": shown})
    return made


def help_of(record: type, name: str) -> str:
    """The help text of an option."""
    return str(_field(record, name).metadata["help"])


def shown_default(record: type, name: str) -> str:
    """The default of an option in words."""
    found = _field(record, name)
    return str(found.default if found.metadata["shown"] is None else found.metadata["shown"])


def _field(record: type, name: str) -> Field[Any]:
    return next(found for found in fields(record) if found.name == name)


def show_options(fit: Callable[..., Any], fit_fleet: Callable[..., Any], run: type, settings: type) -> None:
    """Replace `**options` in both signatures by the options themselves, and fill in the docstring of `fit`."""
    own, shared = signature(fit), signature(fit_fleet)
    kept = [parameter for parameter in shared.parameters.values() if parameter.kind is not Parameter.VAR_KEYWORD]
    first = [parameter.name for parameter in kept].index(NEXT_OPTION)
    kind = Parameter.KEYWORD_ONLY
    fleet = [Parameter(own.name, kind, default=own.default, annotation=own.type) for own in fields(settings)]
    of_run = [own.parameters[name] for name in ("method", "seed", "init")]
    before = [parameter for parameter in kept[:first] if parameter.name != "runs"]
    fit.__signature__ = own.replace(parameters=[*before, *of_run, *fleet, *kept[first:]])  # type: ignore[attr-defined]
    fit_fleet.__signature__ = shared.replace(parameters=[*kept[:first], *fleet, *kept[first:]])  # type: ignore[attr-defined]
    if fit.__doc__ is not None:  # python -OO has none
        fit.__doc__ = cleandoc(fit.__doc__).format(run=_in_words(run), settings=_in_words(settings))


def show_records(function: Callable[..., Any], **records: type) -> None:
    """Replace `**options` in a signature by the fields of records, and `{name}` in the docstring by their texts."""
    own = signature(function)
    kept = [parameter for parameter in own.parameters.values() if parameter.kind is not Parameter.VAR_KEYWORD]
    kind = Parameter.KEYWORD_ONLY
    added = [
        Parameter(given.name, kind, default=given.default, annotation=given.type)
        for record in records.values()
        for given in fields(record)
    ]
    function.__signature__ = own.replace(parameters=[*kept, *added])  # type: ignore[attr-defined]
    if function.__doc__ is not None:  # python -OO has none
        words = {name: _in_words(record) for name, record in records.items()}
        function.__doc__ = cleandoc(function.__doc__).format(**words)


def _in_words(record: type) -> str:
    """All options of a record with their types, defaults and help texts, as entries of a numpydoc section."""
    lines = []
    for found in fields(record):
        if "help" in found.metadata:
            kind = LITERAL.sub(r"{\1}", str(found.type)).removesuffix(" | None").replace(" | ", " or ")
            default = "optional" if found.default is None else f"default {found.default!r}"
            words = f"{found.metadata['help']} {found.metadata['python']}".rstrip()
            lines += [f"{found.name} : {kind}, {default}"]
            lines += textwrap.wrap(words, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT)
    return "\n".join(lines)


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
