"""From names on the command line to methods of learning, and back to words for reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from circurve.errors import OptionError
from circurve.learning import Gated, Global, Grid, Method, Vanilla
from circurve.learning.gates import GATES, gate_name
from circurve.learning.methods import as_gate

__all__ = [
    "DEFAULT_GATE",
    "Estimator",
    "MethodName",
    "MethodOptions",
    "Mu",
    "MuScale",
    "Penalty",
    "Simplex",
    "build_methods",
    "describe_method",
    "method_label",
    "parse_gate",
    "parse_gates",
    "parse_methods",
    "parse_mu",
    "parse_mus",
]

DEFAULT_GATE = gate_name(Gated.gate)

Mu: TypeAlias = float | Grid | Literal["auto"]
"""A strength, or several to choose from by validation likelihood."""


class MethodName(StrEnum):
    """How sum weights are learned."""

    vanilla = "vanilla"
    global_ = "global"
    gated = "gated"


class Estimator(StrEnum):
    """How the gates' curvature is averaged over samples."""

    mean_trace = "mean_trace"
    mean_ratio = "mean_ratio"


class Simplex(StrEnum):
    """How the weights of a sum are made to add up to 1."""

    normalize = "normalize"
    exact = "exact"


class Penalty(StrEnum):
    """What is penalised."""

    surrogate = "surrogate"
    exact = "exact"


class MuScale(StrEnum):
    """Whether mu weighs against counts or against their mean over the batch."""

    count_ = "count"
    mean = "mean"


@dataclass(frozen=True)
class MethodOptions:
    """What all methods of a command have in common; None where it was not given."""

    pseudocount: float = Vanilla.pseudocount
    simplex: Simplex | None = None
    penalty: Penalty | None = None
    mu_scale: MuScale | None = None
    estimator: Estimator | None = None
    gate_memory: float | None = None


def build_methods(
    names: Sequence[MethodName], mus: Sequence[Mu] | None, gates: Sequence[str] | None, options: MethodOptions
) -> list[Method]:
    """One record for each method, each gate of `gated` and each mu, in this order; None for what was not given."""
    _refuse_strays(names, mus is not None, gates is not None, options)
    methods: list[Method] = []
    for name in names:
        if name is MethodName.vanilla:
            methods.append(Vanilla(options.pseudocount))
        elif name is MethodName.global_:
            methods += [_global(mu, options) for mu in mus or ("auto",)]
        else:
            methods += [_gated(mu, gate, options) for gate in gates or (DEFAULT_GATE,) for mu in mus or ("auto",)]
    return methods


def _global(mu: Mu, options: MethodOptions) -> Global:
    return Global(mu, **_given(options, "pseudocount", "simplex", "penalty", "mu_scale"))


def _gated(mu: Mu, gate: str, options: MethodOptions) -> Gated:
    names = ("pseudocount", "simplex", "penalty", "mu_scale", "estimator", "gate_memory")
    return Gated(mu, gate=gate, **_given(options, *names))


def _given(options: MethodOptions, *names: str) -> dict[str, Any]:
    """The options that were typed; the method has its own defaults for the others."""
    values = {name: getattr(options, name) for name in names}
    return {n: v.value if isinstance(v, StrEnum) else v for n, v in values.items() if v is not None}


def _refuse_strays(names: Sequence[MethodName], mu: bool, gate: bool, options: MethodOptions) -> None:
    """An option that no chosen method reads is a mistake, not a detail."""
    shared = {"--mu": mu, **{f"--{n}": getattr(options, n) is not None for n in ("simplex", "penalty", "mu_scale")}}
    gated = {"--gate": gate, **{f"--{n}": getattr(options, n) is not None for n in ("estimator", "gate_memory")}}
    for readers, given in ((("global", "gated"), shared), (("gated",), gated)):
        stray = next((option for option, is_given in given.items() if is_given), None)
        if stray is not None and not any(name.value in readers for name in names):
            chosen = ", ".join(names)
            raise OptionError(f"{stray.replace('_', '-')} says nothing to {chosen}; it is for {' and '.join(readers)}")


def parse_mu(text: str) -> Mu:
    """`0.1`, or `0.01,0.1` or `auto` for a choice by validation likelihood."""
    if text == "auto":
        return "auto"
    values = parse_mus(text)
    return values[0] if len(values) == 1 else Grid(values)


def parse_mus(text: str) -> tuple[float, ...]:
    """`0.001,0.01,0.1`."""
    parts = _parts(text, "--mu")
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
    parts = _parts(text, "--methods")
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
            known = ", ".join([*GATES, "top_fraction:Q[:total]", "power:P", "auto"])
            why = f": {error}" if text.startswith(("top_fraction:", "power:")) else ""
            raise OptionError(f"--gate must be one of {known}, not {text!r}{why}") from None
    return text


def parse_gates(text: str) -> tuple[str, ...]:
    """`max_norm,rank`; each gate of a sweep is named, so that none is left to be chosen."""
    gates = tuple(parse_gate(part) for part in _parts(text, "--gates"))
    if "auto" in gates:
        raise OptionError("--gates names the gates to compare; auto is for --gate of circurve fit")
    return gates


def _parts(text: str, option: str) -> tuple[str, ...]:
    """The parts between commas, each one once."""
    parts = tuple(part.strip() for part in text.split(","))
    if "" in parts:
        raise OptionError(f"{option} has a gap between its commas: {text!r}")
    return tuple(dict.fromkeys(parts))


def describe_method(method: Method) -> dict[str, Any]:
    """The fields of a report; None for what the method does not have. A mu that was chosen is a number by now."""
    names = ("mu", "gate", "estimator", "gate_memory", "simplex", "penalty", "mu_scale", "pseudocount")
    fields = {"method": type(method).__name__.lower(), **{name: getattr(method, name, None) for name in names}}
    return {**fields, "gate": gate_name(method.gate) if isinstance(method, Gated) else None}


def method_label(fields: dict[str, Any]) -> str:
    """A method in a few words: `vanilla`, `global, mu 0.1`, `gated by max_norm, mu 0.1`."""
    gate = f" by {fields['gate']}" if fields["gate"] else ""
    return f"{fields['method']}{gate}" + ("" if fields["mu"] is None else f", mu {fields['mu']:g}")
