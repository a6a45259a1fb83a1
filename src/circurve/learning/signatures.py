"""`fit` and `fit_fleet` as `help` and `inspect` show them: every option by name, from the records that hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import Field, fields
from inspect import Parameter, signature
from typing import Any

from circurve.learning.option_texts import options_in_words
from circurve.learning.options import Run, Settings

__all__ = ["show_options"]

AFTER = "refit"
"""The options of training stand before this one, and those of a run before them."""


def show_options(fit: Callable[..., Any], fit_fleet: Callable[..., Any]) -> None:
    """Replace `**options` in both signatures by the options themselves, and fill in the docstring of `fit`."""
    own = signature(fit)
    shared = signature(fit_fleet)
    fleet = list(_spelled_out(shared.parameters.values(), [_parameter(option) for option in fields(Settings)]))
    of_run = [own.parameters[name] for name in ("method", "seed", "init")]
    first = next(place for place, parameter in enumerate(fleet) if parameter.name == fields(Settings)[0].name)
    alone = [parameter for parameter in [*fleet[:first], *of_run, *fleet[first:]] if parameter.name != "runs"]
    fit.__signature__ = own.replace(parameters=alone)  # type: ignore[attr-defined]
    fit_fleet.__signature__ = shared.replace(parameters=fleet)  # type: ignore[attr-defined]
    if fit.__doc__ is not None:  # python -OO has none
        texts = {"run": options_in_words(Run).strip(), "settings": options_in_words(Settings).strip()}
        fit.__doc__ = fit.__doc__.format(**texts)


def _spelled_out(parameters: Any, options: list[Parameter]) -> Iterator[Parameter]:
    for parameter in parameters:
        if parameter.name == AFTER:
            yield from options
        if parameter.kind is not Parameter.VAR_KEYWORD:
            yield parameter


def _parameter(option: Field[Any]) -> Parameter:
    return Parameter(option.name, Parameter.KEYWORD_ONLY, default=option.default, annotation=option.type)
