"""What an E-step returns: sums over samples, which add up over chunks, batches and processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

__all__ = ["CurvatureSums", "EdgeSums", "Request", "Statistics"]


@dataclass(frozen=True)
class Request:
    """Which sums an E-step collects in addition to the counts."""

    curvature: bool = False
    """Sums of F^2, t and T of each sum unit."""

    mean_ratio: bool = False
    """Sums of rho_nc of each edge, for the estimator sum_c (mean rho)^2."""

    second_moment: bool = False
    """Sums of F_nc^2 of each edge, for the exact penalty."""

    flow_weighted: bool = False
    """Sums of F, F t and F log t of each sum unit, for the means of t weighted by flow."""

    squared_ratio: bool = False
    """Sums of rho_nc^2 of each edge, for clipped ratios and for the part of t that single edges make up."""

    @property
    def any(self) -> bool:
        """Whether anything is asked for."""
        return self.unit_kinds > 0 or self.mean_ratio or self.second_moment or self.squared_ratio

    @property
    def unit_kinds(self) -> int:
        """How many kinds of sums a backend collects for each unit: F^2, t, T, and then F t, F log t, F."""
        return 6 if self.flow_weighted else 3 if self.curvature else 0


@dataclass(frozen=True)
class EdgeSums:
    """Weighted sums over samples of each edge, (R, G, K, C) for each sum layer, None if not asked."""

    ratio: tuple[Tensor, ...] | None = None
    second_moment: tuple[Tensor, ...] | None = None
    squared_ratio: tuple[Tensor, ...] | None = None


@dataclass(frozen=True)
class CurvatureSums:
    """Weighted sums over samples for each sum layer: (R, G, K) for units, (R, G, K, C) for edges, None if not asked."""

    flow_squared: tuple[Tensor, ...] | None = None  # sum of F_n^2
    local: tuple[Tensor, ...] | None = None  # sum of t_n
    total: tuple[Tensor, ...] | None = None  # sum of T_n = F_n^2 t_n
    ratio: tuple[Tensor, ...] | None = None  # sum of rho_nc
    second_moment: tuple[Tensor, ...] | None = None  # sum of F_nc^2
    flow_local: tuple[Tensor, ...] | None = None  # sum of F_n t_n
    flow_log_local: tuple[Tensor, ...] | None = None  # sum of F_n log t_n
    flow: tuple[Tensor, ...] | None = None  # sum of F_n
    squared_ratio: tuple[Tensor, ...] | None = None  # sum of rho_nc^2

    @classmethod
    def collect(cls, request: Request, units: Sequence[tuple[Tensor, ...]], edges: EdgeSums) -> CurvatureSums:
        """The sums that were asked for. units: for each kind of `Request.unit_kinds` (R, G, K) by layer."""
        names = ("flow_squared", "local", "total") if request.curvature else ()
        kinds = dict(zip(names, units[:3], strict=False))
        if request.flow_weighted:
            kinds |= dict(zip(("flow_local", "flow_log_local", "flow"), units[3:], strict=True))
        return cls(**kinds, **vars(edges))

    def trace(self) -> Tensor:  # (R,)
        """The sum over samples of the trace of the Hessian."""
        assert self.total is not None, "the curvature sums were not asked for"
        return sum((layer.sum((1, 2)) for layer in self.total), torch.zeros((), dtype=torch.float64))

    def __add__(self, other: CurvatureSums) -> CurvatureSums:
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return CurvatureSums(*(None if a is None or b is None else _add(a, b) for a, b in pairs))


@dataclass(frozen=True)
class Statistics:
    """Sums over the samples of an E-step, for each run.

    Samples of probability zero are counted and left out of all other sums. Samples whose log-probability is NaN are
    counted, and left out of log-likelihood and weight; the counts of their run may be NaN, and training notices that.
    """

    counts: tuple[Tensor, ...]
    """N_nc = sum of F_nc, (R, G, K, C) for each sum layer."""

    inputs: tuple[Tensor, ...]
    """Flow-weighted sufficient statistics, (R, G, K, S) for each input layer."""

    log_likelihood: Tensor  # (R,) float64, sum of weight * log p over possible samples
    weight: Tensor  # (R,) float64, sum of the weights of possible samples
    impossible: Tensor  # (R,) int64, how many samples with positive weight have probability zero
    broken: Tensor  # (R,) int64, how many samples with positive weight have NaN for a log-probability
    curvature: CurvatureSums | None = None

    def unit_flow(self) -> tuple[Tensor, ...]:
        """The sum of F_n over samples of each sum unit, (R, G, K) for each sum layer, float64."""
        return tuple(count.sum(-1, dtype=torch.float64) for count in self.counts)

    @property
    def mean_log_likelihood(self) -> Tensor:  # (R,)
        """The weighted mean over all samples: NaN if one of them has it, else -inf if one has probability zero."""
        mean = torch.where(self.impossible > 0, -torch.inf, self.log_likelihood / self.weight)
        return torch.where(self.broken > 0, torch.nan, mean)

    def __add__(self, other: Statistics) -> Statistics:
        both = self.curvature is not None and other.curvature is not None
        return Statistics(
            counts=_add(self.counts, other.counts),
            inputs=_add(self.inputs, other.inputs),
            log_likelihood=self.log_likelihood + other.log_likelihood,
            weight=self.weight + other.weight,
            impossible=self.impossible + other.impossible,
            broken=self.broken + other.broken,
            curvature=self.curvature + other.curvature if both else None,  # type: ignore[operator]
        )


def _add(a: tuple[Tensor, ...], b: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(x + y for x, y in zip(a, b, strict=True))
