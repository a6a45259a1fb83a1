"""The page of options: every command with its arguments and options, from the program itself."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

import typer
from pages import table

from circurve.cli import app

__all__ = ["options_page"]

OF_THE_SHELL = ("help", "install_completion", "show_completion")


def options_page() -> str:
    """One section for each command."""
    program = typer.main.get_command(app)
    sections = "\n\n".join(section(name, command) for name, command in commands("circurve", program))
    return f"""# Options of the command line

<!-- written by docs/make_pages.py from the program itself; do not edit -->

The help texts of all commands (`circurve COMMAND --help`) on one page. In Python, `circurve.fit` takes the options of
training under the same names, and `circurve.Vanilla`, `circurve.Global` and `circurve.Gated` those of a method.

{sections}
"""


def commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """All commands that do something, by their full names."""
    if not hasattr(command, "commands"):
        yield name, command
        return
    for part in command.commands.values():
        yield from commands(f"{name} {part.name}", part)


def section(name: str, command: Any) -> str:
    """What a command does, and a table of what it takes."""
    rows = [describe(parameter) for parameter in command.params if parameter.name not in OF_THE_SHELL]
    text = " ".join((command.help or "").split("\n\n")[0].split())
    return f"## {name}\n\n{text}\n\n{table(['option', 'default', 'what it is'], rows)}"


def describe(parameter: Any) -> list[str]:
    """Name, default and help of an argument or option."""
    if parameter.param_type_name == "argument":
        label = f"`{parameter.metavar or parameter.name.upper()}`"
    else:
        names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
        label = names if parameter.is_flag else f"{names} `{values_of(parameter)}`"
    return [cell(text) for text in (label, default_of(parameter), " ".join((parameter.help or "").split()))]


def values_of(parameter: Any) -> str:
    """What may follow an option."""
    kind = parameter.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " | ".join(choice.value for choice in kind)
    return parameter.metavar or getattr(kind, "__name__", "value").upper()


def default_of(parameter: Any) -> str:
    """The default as the help shows it."""
    if parameter.required:
        return "required"
    if isinstance(parameter.show_default, str):
        return parameter.show_default
    value = parameter.default
    return "" if value is None or value is False or callable(value) else str(getattr(value, "value", value))


def cell(text: str) -> str:
    """Text for a cell of a table."""
    return text.replace("|", "\\|")
