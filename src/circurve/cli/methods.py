"""From names on the command line to methods of learning, and back to words for reports."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from circurve.cli.options import DEFAULT_GATE, GATE_NAMES, Estimator, MethodName
from circurve.errors import OptionError
from circurve.learning import Gated, Global, Grid, Method, Vanilla
from circurve.learning.gates import gate_name
from circurve.learning.methods import as_gate

if TYPE_CHECKING:
    from circurve.cli.option_records import MethodOptions

__all__ = [
    "Mu",
    "build_methods",
    "describe_method",
    "method_label",
    "parse_gate",
    "parse_gates",
    "parse_methods",
    "parse_mu",
    "parse_mus",
    "split_commas",
]

Mu: TypeAlias = float | Grid | Literal["auto"]
"""A strength, or several to choose from by validation likelihood."""


COMMON, OF_GATES = ("pseudocount", "simplex", "penalty", "mu_scale"), ("estimator", "gate_memory", "ratio_floor")
"""The options of both penalised methods, and those of `gated` alone."""


def build_methods(
    names: Sequence[MethodName], mus: Sequence[Mu] | None, gates: Sequence[str] | None, options: MethodOptions
) -> list[Method]:
    """One record for each method, each gate of `gated` and each mu, in this order; None for what was not given."""
    _refuse_strays(names, mus is not None, gates is not None, options)
    if options.ratio_floor is not None and options.estimator is not Estimator.clipped:
        raise OptionError("--ratio-floor has no effect without --estimator clipped")
    methods: list[Method] = []
    for name in names:
        if name is MethodName.vanilla:
            methods.append(Vanilla(options.pseudocount))
        elif name is MethodName.global_:
            methods += [Global(mu, **_given(options, *COMMON)) for mu in mus or ("auto",)]
        else:
            given = _given(options, *COMMON, *OF_GATES)
            methods += [Gated(mu, gate, **given) for gate in gates or (DEFAULT_GATE,) for mu in mus or ("auto",)]
    return methods


def _given(options: MethodOptions, *names: str) -> dict[str, Any]:
    """The options that were typed; the method has its own defaults for the others."""
    values = {name: getattr(options, name) for name in names}
    return {n: v.value if isinstance(v, StrEnum) else v for n, v in values.items() if v is not None}


def _refuse_strays(names: Sequence[MethodName], mu: bool, gate: bool, options: MethodOptions) -> None:
    """Refuse an option that no chosen method uses."""
    shared = [*(["mu"] if mu else []), *_given(options, *COMMON[1:])]
    gated = [*(["gate"] if gate else []), *_given(options, *OF_GATES)]
    for readers, given in ((("global", "gated"), shared), (("gated",), gated)):
        stray = next(iter(given), None)
        if stray is not None and not any(name.value in readers for name in names):
            chosen, meant = ", ".join(names), " or ".join(readers)
            raise OptionError(f"--{stray.replace('_', '-')} has no effect with {chosen}; use {meant}")


def parse_mu(text: str) -> Mu:
    """`0.1`, or `0.01,0.1` or `auto` for a choice by validation likelihood."""
    if text == "auto":
        return "auto"
    values = parse_mus(text)
    return values[0] if len(values) == 1 else Grid(values)


def parse_mus(text: str) -> tuple[float, ...]:
    """`0.001,0.01,0.1`."""
    parts = split_commas(text, "--mu")
    try:
        values = tuple(float(part) for part in parts)
    except ValueError:
        raise OptionError(f"--mu must be a number, or numbers with commas between them, not {text!r}") from None
    for value in values:
        if not 0 <= value < float("inf"):
            raise OptionError(f"--mu must be finite and >= 0, not {value:g}")
    return values


def parse_methods(text: str) -> tuple[MethodName, ...]:
    """`vanilla,global,gated`."""
    known = {name.value: name for name in MethodName}
    parts = split_commas(text, "--methods")
    for part in parts:
        if part not in known:
            raise OptionError(f"--methods must be some of {', '.join(known)}, not {part!r}")
    return tuple(known[part] for part in parts)


def parse_gate(text: str) -> str:
    """A gate's name, checked."""
    if text != "auto":
        try:
            as_gate(text)
        except OptionError as error:
            why = f": {error}" if text.startswith(("top_fraction:", "power:")) else ""
            raise OptionError(f"--gate must be one of {GATE_NAMES}, auto, not {text!r}{why}") from None
    return text


def parse_gates(text: str) -> tuple[str, ...]:
    """`max_norm,rank`; each gate of a sweep is named, so that none is left to be chosen."""
    gates = tuple(parse_gate(part) for part in split_commas(text, "--gates"))
    if "auto" in gates:
        raise OptionError("--gates lists the gates to compare; auto is only for --gate of circurve fit")
    return gates


def split_commas(text: str, option: str) -> tuple[str, ...]:
    """The parts between commas, each one once."""
    parts = tuple(part.strip() for part in text.split(","))
    if "" in parts:
        raise OptionError(f"{option} has a gap between its commas: {text!r}")
    return tuple(dict.fromkeys(parts))


def describe_method(method: Method) -> dict[str, Any]:
    """The fields of a report; None for what the method does not have. A mu that was chosen is a number by now."""
    names = ("mu", "gate", "estimator", "ratio_floor", "gate_memory", "simplex", "penalty", "mu_scale", "pseudocount")
    fields = {"method": type(method).__name__.lower(), **{name: getattr(method, name, None) for name in names}}
    return {**fields, "gate": gate_name(method.gate) if isinstance(method, Gated) else None}


def method_label(fields: dict[str, Any]) -> str:
    """A method in a few words: `vanilla`, `global, mu 0.1`, `gated by max_norm, mu 0.1`."""
    gate = f" by {fields['gate']}" if fields["gate"] else ""
    return f"{fields['method']}{gate}" + ("" if fields["mu"] is None else f", mu {fields['mu']:g}")
