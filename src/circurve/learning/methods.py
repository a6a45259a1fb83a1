"""How sum weights are re-estimated: frozen records of options, read by the M-step.

All three methods are one update with the strength mu * omega_n for node n: omega is 0 for `Vanilla`, 1 for `Global` and
the gate's value for `Gated`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import Field, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from circurve.errors import Argument, OptionError
from circurve.learning.checks import check_at_least_zero, check_choice, is_number
from circurve.learning.option_texts import option
from circurve.learning.schedules import Schedule, by_overfitting
from circurve.names import ESTIMATORS, PLAIN_GATES, RATIO_FLOOR, Estimator

if TYPE_CHECKING:
    from circurve.learning.gates import Gate

__all__ = ["Gated", "Global", "Grid", "Method", "Strength", "Vanilla", "as_gate", "describe"]

PSEUDOCOUNT = "Count added to each sum in every step, to smooth its weights."
MU = "Strength of the penalty of global and gated."
SIMPLEX = (
    "normalize: solve for each weight alone, then scale the weights of a sum; exact: solve for all of them together."
)
PENALTY = "surrogate: the penalty of the paper; exact: the true trace."
MU_SCALE = (
    "What mu is compared with. count: the counts of a batch; mean: their mean; data: the counts of all training rows."
)
"""The help texts of options that several methods have."""

MAX_PSEUDOCOUNT = 1e18
"""The largest pseudocount. Its sum with the counts of any data does not overflow float32."""


@dataclass(frozen=True)
class Grid:
    """Strengths to try; validation likelihood chooses the best. mu="auto" has its own grid and its own rule.

    Parameters
    ----------
    values : tuple of float
        At least one number >= 0.

    Examples
    --------
    >>> import circurve as cc
    >>> cc.Gated(mu=cc.Grid((0.001, 0.01, 0.1)))
    Gated(mu=Grid(values=(0.001, 0.01, 0.1)))
    """

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        given: object = self.values
        values = tuple(given) if isinstance(given, Iterable) else ()
        if not values:
            raise OptionError(f"Grid needs a list of at least one mu, not {given!r}")
        object.__setattr__(self, "values", values)
        for value in self.values:
            check_at_least_zero("mu", value)


Strength: TypeAlias = float | Schedule | by_overfitting | Grid | Literal["auto"]
"""mu: a number, a schedule, a rule driven by overfitting, a grid, or "auto"."""


def _fields(method: object) -> tuple[Field[Any], ...]:
    return fields(cast("Any", method))


class _Shown:
    def __repr__(self) -> str:
        """`Gated(mu=0.1, gate=rank)`: what differs from the defaults, gates by their name."""
        defaults = {own.name: as_gate(own.default) if own.name == "gate" else own.default for own in _fields(self)}
        values = [(name, getattr(self, name), default) for name, default in defaults.items()]
        parts = [f"{n}={getattr(v, '__name__', None) or repr(v)}" for n, v, default in values if v != default]
        return f"{type(self).__name__}({', '.join(parts)})"


@dataclass(frozen=True, repr=False)
class Vanilla(_Shown):
    """Plain EM: theta~ is proportional to N_nc + pseudocount / children.

    Parameters
    ----------
    pseudocount : float, default 0
        Added to the counts of each sum node in every M-step, shared evenly among its children; inputs get the same
        for each unit. Small numbers such as 0.01 smooth; 0.1 and more can smooth too much in batches of 200.

    Examples
    --------
    >>> import circurve as cc
    >>> data = cc.load_dataset("digits")
    >>> circuit = cc.hclt(data.train, units=4)
    >>> result = cc.fit(circuit, data.train, valid=data.valid, epochs=3, method=cc.Vanilla(pseudocount=0.01))
    >>> round(result.valid_ll, 1)
    -24.5
    """

    pseudocount: float = option(0.0, PSEUDOCOUNT)

    def __post_init__(self) -> None:
        check_at_least_zero("pseudocount", self.pseudocount, MAX_PSEUDOCOUNT)


@dataclass(frozen=True, repr=False)
class Global(_Shown):
    """Penalise the curvature of every sum node with the same strength mu.

    All forms are computed in the precision of the training: with "float64", the roots of an exact simplex sum to one
    within 1e-10 before any division.

    Parameters
    ----------
    mu : float, schedule, Grid or "auto"
        The strength of the penalty; "auto" and a grid choose it by validation likelihood.
    pseudocount : float, default 0
        As in `Vanilla`.
    simplex : {"normalize", "exact"}, default "normalize"
        "normalize" takes the root at lambda = `multiplier` and divides by the sum, as the paper does; "exact" solves
        for the lambda of each node.
    penalty : {"surrogate", "exact"}, default "surrogate"
        "surrogate" is sum_c N / theta, the paper's; "exact" is sum_c S / theta^2, the true trace.
    mu_scale : {"count", "mean", "data"}, default "count"
        "count" leaves N a sum over the batch, as the paper does; "mean" divides it by the batch's number of samples,
        so that one mu means the same at every batch size; "data" then multiplies by the number of training rows. With
        simplex="exact" the update does not depend on the scale of N.
    multiplier : float, default 1
        lambda, for simplex="normalize".

    Examples
    --------
    >>> import circurve as cc
    >>> data = cc.load_dataset("digits")
    >>> circuit = cc.hclt(data.train, units=4)
    >>> result = cc.fit(circuit, data.train, valid=data.valid, epochs=3, method=cc.Global(mu=0.001))
    >>> round(result.valid_ll, 1)
    -24.5
    """

    mu: Strength = field(metadata={"help": MU})
    pseudocount: float = option(0.0, PSEUDOCOUNT)
    simplex: Literal["normalize", "exact"] = option("normalize", SIMPLEX)
    penalty: Literal["surrogate", "exact"] = option("surrogate", PENALTY)
    mu_scale: Literal["count", "mean", "data"] = option("count", MU_SCALE)
    multiplier: float = 1.0

    def __post_init__(self) -> None:
        _check_regularised(self)


@dataclass(frozen=True, repr=False)
class Gated(_Shown):
    """Penalise each sum node with mu * omega_n: omega_n, from 0 to 1, follows how sharp the node is.

    Parameters
    ----------
    mu : float, schedule, Grid or "auto"
        The strength of the penalty; "auto" and a grid choose it by validation likelihood.
    gate : function, str or "auto", default "max_norm"
        How sharpness becomes omega_n: a function of `gates` or its name, or a function of your own.
    estimator : str, default "mean_trace"
        How the local curvature t(x) = sum_c rho_c(x)^2 of a node becomes one number. "mean_trace" is its mean over
        samples and "mean_ratio" is sum_c (mean rho_c)^2, both of the paper; without smoothing, a few edges with
        weights near zero can dominate them. "flow_weighted" and "geometric" are its arithmetic and geometric mean
        weighted by the node's flow, and "clipped" is its mean with ratios r_c / max(theta_c, ratio_floor).
    gate_memory : float, default 0
        The weight of earlier batches in a running mean of the curvature, below 1; 0 uses each batch alone.
    pseudocount, simplex, penalty, mu_scale, multiplier : as in `Global`
        With the same meaning and defaults.
    ratio_floor : float, default 1e-4
        For estimator="clipped".
    gates_from : {"batch", "epoch", "first"}, default "batch"
        "batch" takes the gates of an M-step from its own batch; "epoch" from all batches of the epoch before; "first"
        keeps those of the first epoch. In the first epoch of the last two they are 0.

    Examples
    --------
    >>> import circurve as cc
    >>> data = cc.load_dataset("digits")
    >>> circuit = cc.hclt(data.train, units=4)
    >>> method = cc.Gated(mu=0.1, gate="rank", estimator="geometric")
    >>> result = cc.fit(circuit, data.train, valid=data.valid, epochs=3, method=method)
    >>> round(result.valid_ll, 1)
    -24.5
    """

    mu: Strength = field(metadata={"help": MU})
    gate: Gate | str = field(default="max_norm", metadata={"help": "How gated distributes the penalty over the sums."})
    estimator: Estimator = option(
        "mean_trace",
        "The estimate of curvature that gates use: mean_trace, mean_ratio, flow_weighted, geometric or clipped.",
    )
    gate_memory: float = option(
        0.0,
        "Weight of earlier batches in the curvature that gates use, from 0 to below 1; 0 uses the current batch only.",
    )
    pseudocount: float = option(0.0, PSEUDOCOUNT)
    simplex: Literal["normalize", "exact"] = option("normalize", SIMPLEX)
    penalty: Literal["surrogate", "exact"] = option("surrogate", PENALTY)
    mu_scale: Literal["count", "mean", "data"] = option("count", MU_SCALE)
    multiplier: float = 1.0
    ratio_floor: float = option(RATIO_FLOOR, "Smallest weight in the ratios of the estimator clipped.")
    gates_from: Literal["batch", "epoch", "first"] = option(
        "batch", "batch: gates of each batch; epoch: gates of the previous epoch; first: gates of the first epoch."
    )

    def __post_init__(self) -> None:
        _check_regularised(self)
        check_choice("estimator", self.estimator, ESTIMATORS)
        if not is_number(self.ratio_floor) or not 0 < self.ratio_floor <= 1:
            raise OptionError(Argument("ratio_floor"), f" must be above 0 and at most 1, not {self.ratio_floor!r}")
        if not is_number(self.gate_memory) or not 0 <= self.gate_memory < 1:
            raise OptionError(Argument("gate_memory"), f" must be from 0 to below 1, not {self.gate_memory!r}")
        check_choice("gates_from", self.gates_from, ("batch", "epoch", "first"))
        if self.gate_memory and self.gates_from != "batch":
            raise OptionError(
                f"gate_memory has no effect with gates_from={self.gates_from!r}; leave one of the two out"
            )
        if self.gate != "auto":
            object.__setattr__(self, "gate", as_gate(self.gate))


Method: TypeAlias = Vanilla | Global | Gated


def describe(method: Method) -> str:
    """A method in a few words: `vanilla`, `global, mu 0.1`, `gated by max_norm, mu 0.1`."""
    from circurve.learning.gates import gate_name  # noqa: PLC0415 - gates need torch, which takes a second to import

    gate = f" by {gate_name(method.gate)}" if isinstance(method, Gated) else ""
    mu = None if isinstance(method, Vanilla) else method.mu
    return f"{type(method).__name__.lower()}{gate}" + ("" if mu is None else f", mu {_in_words(mu)}")


def _in_words(mu: Strength) -> str:
    if isinstance(mu, Grid | by_overfitting):
        return "of a grid" if isinstance(mu, Grid) else "by overfitting"
    return "by schedule" if callable(mu) else mu if isinstance(mu, str) else f"{mu:g}"


def as_gate(gate: object) -> Gate:
    """A gate by its name (also "top_fraction:0.1", "top_fraction:0.1:total", "power:2"), or a function as it is."""
    if callable(gate):
        return gate
    from circurve.learning.gates import GATES, power, top_fraction  # noqa: PLC0415 - they need torch

    if isinstance(gate, str):
        name, *arguments = gate.split(":")
        try:
            if gate in GATES:
                return GATES[gate]
            if name == "power" and len(arguments) == 1:
                return power(float(arguments[0]))
            if name == "top_fraction" and 1 <= len(arguments) <= 2:
                return top_fraction(float(arguments[0]), *arguments[1:])  # type: ignore[arg-type]
        except ValueError as error:
            raise OptionError(f"gate {gate!r}: {error}") from error
    known = ", ".join([*PLAIN_GATES, "top_fraction:Q", "power:P"])
    raise OptionError(f"gate must be a function or one of {known}, not {gate!r}")


def _check_regularised(method: Global | Gated) -> None:
    mu = method.mu
    if isinstance(mu, Callable):  # type: ignore[arg-type]
        for progress in (0.0, 1.0):
            check_at_least_zero("mu", mu(progress))  # type: ignore[operator]
    elif not isinstance(mu, by_overfitting | Grid) and not (isinstance(mu, str) and mu == "auto"):
        check_at_least_zero("mu", mu)
    check_at_least_zero("pseudocount", method.pseudocount, MAX_PSEUDOCOUNT)
    check_choice("simplex", method.simplex, ("normalize", "exact"))
    check_choice("penalty", method.penalty, ("surrogate", "exact"))
    check_choice("mu_scale", method.mu_scale, ("count", "mean", "data"))
    check_at_least_zero("multiplier", method.multiplier)
    if method.multiplier == 0:
        raise OptionError("multiplier must be positive, not 0")
