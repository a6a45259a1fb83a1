"""From the record of a command to a function that typer can call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from importlib import import_module
from inspect import Parameter, Signature, getdoc
from typing import Any, get_type_hints

from circurve.cli.signals import leave_at_once

__all__ = ["Command"]


@dataclass(frozen=True)
class Command:
    """A command: its name, the record of what was typed, and the function that takes the record."""

    name: str
    record: type[Any]
    module: str
    function: str

    def parameters(self) -> list[Parameter]:
        """A parameter for each option, in the order of the help."""
        return list(_parameters(self.record))

    def as_function(self) -> Callable[..., None]:
        """A function with these parameters; it imports the module of the command and runs it."""

        def run(**given: Any) -> None:
            with leave_at_once():
                work = getattr(import_module(self.module), self.function)
            work(_record(self.record, given))

        parameters = self.parameters()
        run.__name__, run.__doc__ = self.name, getdoc(self.record)
        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run


def _parameters(record: type[Any]) -> Iterator[Parameter]:
    """The fields of a record; a field that is a record itself is replaced by its fields."""
    hints = get_type_hints(record, include_extras=True)
    for own in fields(record):
        if is_dataclass(hints[own.name]):
            yield from _parameters(hints[own.name])
        else:
            default = Parameter.empty if own.default is MISSING else own.default
            yield Parameter(own.name, Parameter.KEYWORD_ONLY, default=default, annotation=hints[own.name])


def _record(record: type[Any], given: dict[str, Any]) -> Any:
    hints = get_type_hints(record, include_extras=True)
    return record(
        **{
            own.name: _record(hints[own.name], given) if is_dataclass(hints[own.name]) else given[own.name]
            for own in fields(record)
        }
    )
