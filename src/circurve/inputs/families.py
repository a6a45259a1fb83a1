"""All input families by name, and their form in model files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Any, TypeVar, cast

from circurve.bounds import shortened
from circurve.errors import FileFormatError, OptionError
from circurve.inputs.bernoulli import Bernoulli
from circurve.inputs.binomial import Binomial
from circurve.inputs.categorical import Categorical
from circurve.inputs.family import Family
from circurve.inputs.gaussian import Gaussian
from circurve.inputs.indicator import Indicator
from circurve.inputs.poisson import Poisson

__all__ = ["FAMILIES", "family_from_json", "family_reader", "family_to_json", "register_family"]

Own = TypeVar("Own", bound=type[Family])

FAMILIES: dict[str, type[Family]] = {
    kind.name: kind for kind in (Bernoulli, Binomial, Categorical, Gaussian, Indicator, Poisson)
}
"""The final classes by their names: those of this package, and those that users register."""

PLAIN = (bool, int, float, str, type(None))
"""What hyperparameters in model files are, alone or in tuples."""

BUILT_IN = frozenset(FAMILIES)


def register_family(kind: Own) -> Own:
    """Register an input family of your own by its name, so that models with it can be saved and loaded.

    Parameters
    ----------
    kind : type
        A frozen dataclass derived from `circurve.inputs.Family`, which lists the methods. The page "Input families of
        your own" has a whole example. A class takes the place of one with the same module and name, as when a
        notebook cell runs again.

    Returns
    -------
    type
        The same class, so that the function works as a decorator.

    Raises
    ------
    OptionError
        If the class is not complete; the message lists everything that is missing.

    Examples
    --------
    >>> import circurve as cc
    >>> class Empty(cc.inputs.Family):
    ...     name, discrete = "empty", True
    >>> try:
    ...     cc.register_family(Empty)
    ... except cc.OptionError as error:
    ...     print(str(error).split(";")[0])
    the input family Empty is not complete
    """
    given: object = kind
    if not isinstance(given, type) or not issubclass(given, Family):
        raise OptionError(f"register_family takes a class derived from circurve.inputs.Family, not {given!r}")
    lacking = _lacking(given)
    if lacking:
        raise OptionError(f"the input family {given.__qualname__} is not complete; it lacks {'; '.join(lacking)}")
    known = FAMILIES.get(given.name)
    if known is not None and (given.name in BUILT_IN or _full_name(known) != _full_name(given)) and known is not given:
        raise OptionError(
            f"the name {given.name!r} of {given.__qualname__} is used by {_full_name(known)}: choose another name"
        )
    FAMILIES[given.name] = given
    return kind


def _lacking(kind: type[Family]) -> list[str]:
    """What a class has to have and does not, in words."""
    lacking = [f"the {_kind_of(kind, name)} {name}" for name in sorted(getattr(kind, "__abstractmethods__", ()))]
    name, discrete = getattr(kind, "name", None), getattr(kind, "discrete", None)
    if not (isinstance(name, str) and name.isidentifier()):
        lacking.append("a class attribute name: ClassVar[str], a word such as 'exponential'")
    if not isinstance(discrete, bool):
        lacking.append("a class attribute discrete: ClassVar[bool]")
    own: Any = vars(kind).get("__dataclass_params__")  # not that of a class it derives from
    if own is None or not own.frozen:
        lacking.append("the decorator @dataclass(frozen=True)")
    elif vars(kind).get("__hash__") is None:
        lacking.append("a hash (leave eq of the dataclass as it is)")
    return lacking


def _kind_of(kind: type[Family], name: str) -> str:
    return "property" if isinstance(getattr(kind, name, None), property) else "method"


def _full_name(kind: type[Family]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def family_to_json(family: Family) -> dict[str, Any]:
    """The name and the hyperparameters: `{"name": "categorical", "states": 4}`."""
    options = {f.name: getattr(family, f.name) for f in fields(cast("Any", family))}
    listed = {key: list(value) if isinstance(value, tuple) else value for key, value in options.items()}
    for key, value in listed.items():
        if not all(isinstance(each, PLAIN) for each in (value if isinstance(value, list) else [value])):
            raise OptionError(f"{family!r}: model files hold numbers, text and tuples of them, not {key}={value!r}")
    return {"name": family.name, **listed}


def family_from_json(document: Mapping[str, Any]) -> Family:
    """The family that `family_to_json` wrote; FileFormatError for an unknown name or unknown, missing, wrong fields."""
    if not isinstance(document, Mapping) or "name" not in document:
        raise FileFormatError(f"an input family must be an object with a name, not {shortened(document)}")
    name, options = document["name"], {key: value for key, value in document.items() if key != "name"}
    kind = FAMILIES.get(name) if isinstance(name, str) else None
    if kind is None:
        own = "; if it is your own family, call circurve.register_family first"
        raise FileFormatError(f"unknown input family {shortened(name)}; there are {', '.join(sorted(FAMILIES))}{own}")
    known, required = _field_names(kind)
    unknown, missing = options.keys() - known, required - options.keys()
    if unknown or missing:
        wrong = f"unknown field {min(unknown)!r}" if unknown else f"no field {min(missing)!r}"
        raise FileFormatError(f"input family '{name}': {wrong}")
    try:
        return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in options.items()})
    except (OptionError, TypeError, ValueError, OverflowError) as error:
        raise FileFormatError(f"input family '{name}': {error}") from error


@cache
def _field_names(kind: type[Family]) -> tuple[frozenset[str], frozenset[str]]:
    """The hyperparameters of a family, and those without a default."""
    listed = fields(cast("Any", kind))
    return frozenset(f.name for f in listed), frozenset(f.name for f in listed if f.default is MISSING)


def family_reader() -> Callable[[Any], Family]:
    """A `family_from_json` for all families of one file: those that are written alike are one object."""
    known: dict[object, Family] = {}

    def read(document: Any) -> Family:
        types = tuple(map(type, document.values())) if isinstance(document, dict) else (None,)
        if not {int, float, str}.issuperset(types):
            return family_from_json(document)
        key = (types, *document.items())  # the types: 1 equals 1.0
        family = known.get(key)
        if family is None:
            family = known[key] = family_from_json(document)
        return family

    return read
