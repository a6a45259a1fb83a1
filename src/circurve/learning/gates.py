"""Gates: functions that turn the curvature of all sum nodes into the share of the penalty, from 0 to 1, of each.

A gate is a plain function of a `NodeCurvature`. The gates of this file work along the last axis, and so compute all
runs of a fleet in one call; a user's own function is called for one run at a time with vectors, and its result is
checked.

Gates that put nodes in order (`rank`, `flow_local`, `top_fraction`) compare values rounded to about four digits, so
that the order does not depend on a backend's last bits; see `rounded` in engine/numerics.py.

Examples
--------
>>> import torch
>>> import circurve as cc
>>> sharpness, use = torch.tensor([1.0, 4.0, 2.0]), torch.ones(3)
>>> curvature = cc.gates.NodeCurvature(local=sharpness, total=use * sharpness, flow_squared=use)
>>> cc.gates.max_norm(curvature)
tensor([0.2500, 1.0000, 0.5000])
>>> cc.gates.rank(curvature)
tensor([0.0000, 1.0000, 0.5000])
>>> sorted(cc.gates.GATES)
['flow_local', 'log_norm', 'max_norm', 'ones', 'rank', 'sigmoid', 'unused_sharp']
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from circurve.engine.numerics import rounded
from circurve.errors import OptionError

__all__ = [
    "GATES",
    "Gate",
    "NodeCurvature",
    "apply_gate",
    "flow_local",
    "gate_name",
    "is_ours",
    "log_norm",
    "max_norm",
    "ones",
    "power",
    "rank",
    "sigmoid",
    "top_fraction",
    "unused_sharp",
]


@dataclass(frozen=True)
class NodeCurvature:
    """Means over samples for all M sum units of the circuit: (M,) for one run, (R, M) for a fleet."""

    local: Tensor  # t^, by the estimator that the method asks for
    total: Tensor  # T^
    flow_squared: Tensor  # F^2


Gate: TypeAlias = Callable[[NodeCurvature], Tensor]


def ones(curvature: NodeCurvature) -> Tensor:
    """omega_n = 1: the whole penalty for every node, as in `Global`."""
    return torch.ones_like(curvature.local)


def max_norm(curvature: NodeCurvature) -> Tensor:
    """omega_n = t^_n / max_m t^_m, the gate of the paper; zero while nothing was measured."""
    return _share_of_largest(curvature.local)


def log_norm(curvature: NodeCurvature) -> Tensor:
    """omega_n = log(1 + t^_n) / max_m log(1 + t^_m): for curvatures that span orders of magnitude."""
    most = torch.finfo(curvature.local.dtype).max / 1024  # above half of the largest number, torch 2.6 gives infinity
    return _share_of_largest(curvature.local.clamp_max(most).log1p())


def rank(curvature: NodeCurvature) -> Tensor:
    """omega_n = the share of the other nodes with a smaller t^: evenly spread, independent of scale; ties share a
    rank."""
    return _rank(rounded(curvature.local))


def sigmoid(curvature: NodeCurvature) -> Tensor:
    """omega_n = logistic of the standardised log t^_n: soft, centred on the typical node."""
    log_local = curvature.local.clamp_min(1e-30).log()
    spread = log_local.std(-1, correction=0, keepdim=True)
    standard = (log_local - log_local.mean(-1, keepdim=True)) / spread.clamp_min(1e-12)
    return torch.where(curvature.local > 0, standard.sigmoid(), 0.0)


def flow_local(curvature: NodeCurvature) -> Tensor:
    """omega_n = sqrt(rank of F^2_n * rank of t^_n): joint, for nodes that are both used and sharp."""
    return (_rank(rounded(curvature.flow_squared)) * _rank(rounded(curvature.local))).sqrt()


def unused_sharp(curvature: NodeCurvature) -> Tensor:
    """omega_n = (1 - F^2_n / max F^2) t^_n / max t^: joint, for sharp nodes that hardly any sample uses."""
    return (1 - _share_of_largest(curvature.flow_squared)) * _share_of_largest(curvature.local)


@dataclass(frozen=True)
class power:  # noqa: N801 - used like a function, printed like a record
    """omega_n = (t^_n / max_m t^_m)^p: like `max_norm`, but with a larger p, nodes of medium curvature get less
    penalty."""

    p: float

    def __post_init__(self) -> None:
        if isinstance(self.p, bool) or not isinstance(self.p, int | float) or not 0 < self.p < float("inf"):
            raise OptionError(f"power: p must be positive and finite, not {self.p!r}")

    def __call__(self, curvature: NodeCurvature) -> Tensor:
        return _share_of_largest(curvature.local) ** self.p


@dataclass(frozen=True)
class top_fraction:  # noqa: N801 - used like a function, printed like a record
    """omega_n = 1 for the fraction q of nodes with the largest t^ (or T^), else 0; at least one node, ties by order."""

    q: float
    by: Literal["local", "total"] = "local"

    def __post_init__(self) -> None:
        if isinstance(self.q, bool) or not isinstance(self.q, int | float) or not 0 < self.q <= 1:
            raise OptionError(f"top_fraction: q must be above 0 and at most 1, not {self.q!r}")
        if self.by not in ("local", "total"):
            raise OptionError(f"top_fraction: by must be 'local' or 'total', not {self.by!r}")

    def __call__(self, curvature: NodeCurvature) -> Tensor:
        values = rounded(curvature.local if self.by == "local" else curvature.total)
        count = max(1, round(self.q * values.shape[-1]))
        chosen = values.argsort(dim=-1, descending=True, stable=True)[..., :count]
        return torch.zeros_like(values).scatter_(-1, chosen, 1.0)


_PLAIN: tuple[Gate, ...] = (ones, max_norm, log_norm, rank, sigmoid, flow_local, unused_sharp)
GATES: dict[str, Gate] = {gate.__name__: gate for gate in _PLAIN}
"""The gates that need no argument, by name."""


def gate_name(gate: Gate | str) -> str:
    """What `Gated(gate=...)` takes for this gate; a user's function has its own name."""
    if isinstance(gate, str):
        return gate
    if isinstance(gate, power):
        return f"power:{gate.p:g}"
    if isinstance(gate, top_fraction):
        return f"top_fraction:{gate.q:g}" + (":total" if gate.by == "total" else "")
    return next((name for name, ours in GATES.items() if ours is gate), getattr(gate, "__name__", repr(gate)))


def is_ours(gate: Gate) -> bool:
    """Whether a gate is from this file: it then computes a whole fleet at once, and needs no check."""
    return isinstance(gate, top_fraction | power) or any(gate is ours for ours in GATES.values())


def apply_gate(gate: Gate, curvature: NodeCurvature) -> Tensor:  # (R, M) -> (R, M)
    """Call a gate for a fleet: a gate of this file in one call, any other run by run with a check of its result."""
    if is_ours(gate):
        return gate(curvature)
    parts = zip(curvature.local, curvature.total, curvature.flow_squared, strict=True)
    return torch.stack([_checked(gate, NodeCurvature(*part)) for part in parts])


def _checked(gate: Gate, curvature: NodeCurvature) -> Tensor:
    name = getattr(gate, "__name__", repr(gate))
    values = gate(curvature)
    if not isinstance(values, Tensor):
        raise OptionError(f"gate {name} must return a tensor, not {type(values).__name__}")
    if values.shape != curvature.local.shape:
        raise OptionError(f"gate {name} returned shape {tuple(values.shape)}, expected {tuple(curvature.local.shape)}")
    values = values.to(curvature.local)
    if not bool(values.isfinite().all()):
        raise OptionError(f"gate {name} returned a value that is not finite")
    low, high = float(values.min()), float(values.max())
    if low < 0 or high > 1:
        raise OptionError(f"gate {name} returned {low if low < 0 else high:g}, outside [0, 1]")
    return values


def _share_of_largest(values: Tensor) -> Tensor:
    largest = values.amax(-1, keepdim=True)
    return torch.where(largest > 0, values / largest.clamp_min(torch.finfo(values.dtype).tiny), 0.0)


def _rank(values: Tensor) -> Tensor:
    """(number of smaller values + half of the other equal ones) / (M - 1); 1 for a single node."""
    count = values.shape[-1]
    if count == 1:
        return torch.ones_like(values)
    ordered = values.sort(dim=-1).values
    below = torch.searchsorted(ordered, values.contiguous(), side="left")
    up_to = torch.searchsorted(ordered, values.contiguous(), side="right")
    return (below + (up_to - below - 1) / 2).to(values) / (count - 1)
