"""The upward pass of the reference backend: log-values of all nodes, in plain torch that autograd can differentiate.

Within a sum layer, with m_n the largest log-value among the children of a group for sample n,

    E_cn = exp(L_cn - m_n)          elements, in [0, 1], the largest is 1
    S_kn = sum_c theta_kc E_cn      scaled sums, one batched matrix product
    log p_kn = log S_kn + m_n.

A unit without weight for the largest child can come out *weak*: its own children nearly vanish next to m_n. Such
entries need weights below `SAFE_WEIGHT` (exact zeros, masks). They are computed again in logs, with a maximum of their
own; if no child with positive weight is possible, the unit has probability zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from circurve.engine.numerics import FLUSH, IMPOSSIBLE, LOG_ZERO, MAX_EXPONENT, SAFE_WEIGHT, WEAK_SUM
from circurve.engine.reference.workspace import Rows, SumPlaces

__all__ = [
    "Entries",
    "SumValues",
    "UpwardPass",
    "flushed",
    "matrix_products",
    "never_weak",
    "safe_sum_values",
    "sum_values",
]

ENTRIES_AT_ONCE = 1 << 22
"""Entries x children computed in logs in one go: bounds the memory of a repair."""

Entries = tuple[Tensor, Tensor, Tensor, Tensor]
"""Run, group, unit and sample of P entries of a sum layer, (P,) each."""


@dataclass(frozen=True)
class SumValues:
    """A sum layer after the upward pass."""

    log_value: Tensor  # log p, (R, G, K, N); LOG_ZERO or below for probability zero
    elements: Tensor  # E, (R, G, C, N)
    sums: Tensor  # S, (R, G, K, N); infinite where the entry is weak or impossible, so that F / S is zero there
    log_largest: Tensor  # m, (R, G, 1, N)
    children: Tensor | None  # L, (R, G, C, N), kept only if entries were computed in logs
    weak: Tensor | None  # these entries, (P, 4)

    def weak_entries(self) -> Iterator[Entries]:
        """The weak entries, a bounded number at a time."""
        if self.weak is not None:
            for part in torch.split(self.weak, max(1, ENTRIES_AT_ONCE // self.elements.shape[-2])):
                run, group, unit, sample = part.unbind(1)
                yield run, group, unit, sample


@dataclass(frozen=True)
class UpwardPass:
    """All values of a batch."""

    outputs: Tensor  # log p of the outputs, (R, outputs, N); memory of its own
    values: Rows  # log-values
    sums: tuple[SumValues, ...]  # one for each sum layer


def flushed(values: Tensor) -> Tensor:
    """`values` with zeros below FLUSH; in place where nothing is differentiated."""
    flush = torch.threshold if torch.is_grad_enabled() else torch.threshold_
    return flush(values, FLUSH[values.dtype], 0.0)


def matrix_products(left: Tensor, right: Tensor, out: Tensor | None) -> Tensor:  # (R, G, a, b), (R, G, b, c)
    """`torch.matmul`; without its overhead, which small circuits notice, if there is memory to write to."""
    if out is None:
        return torch.matmul(left, right)
    torch.bmm(left.flatten(0, 1), right.flatten(0, 1), out=out.flatten(0, 1))
    return out


def never_weak(weights: Sequence[Tensor]) -> bool:  # (R, G, K, C) each
    """True if no entry can be weak, whatever the data are; False for weights of NaN."""
    return not weights or bool(torch.stack([layer.detach().amin() for layer in weights]).amin() >= SAFE_WEIGHT)


def safe_sum_values(weights: Tensor, children: Tensor, out: SumPlaces) -> SumValues:
    """A sum layer that is never weak, from its weights (R, G, K, C) and the log-values of its children (R, G, C, N).

    `out.elements` may be the same memory as `children`.
    """
    largest = children.amax(-2, keepdim=True).detach()
    elements = flushed(torch.sub(children, largest, out=out.elements).exp_())
    sums = matrix_products(weights, elements, out.sums)
    return SumValues(torch.log(sums, out=out.log_value).add_(largest), elements, sums, largest, None, None)


def sum_values(weights: Tensor, children: Tensor, mask: Tensor | None, out: SumPlaces) -> SumValues:
    """A sum layer with any weights, masked by (G, K, C), where weak entries are looked for.

    `children` may be overwritten afterwards.
    """
    found = safe_sum_values(weights, children, out)
    sums, largest = found.sums, found.log_largest
    if bool(sums.detach().amin() >= WEAK_SUM[sums.dtype]):  # False if a failed run makes the least sum NaN
        return found
    weak = sums.detach() < WEAK_SUM[sums.dtype]
    possible = (children.detach() > IMPOSSIBLE).to(sums.dtype)
    alive = torch.matmul((weights.detach() > 0).to(sums.dtype), possible) > 0  # (R, G, K, N)
    log_value = torch.where(weak, LOG_ZERO, torch.where(weak, 1.0, sums).log() + largest)
    entries = (weak & alive).nonzero()
    masked = sums.masked_fill(weak, torch.inf)
    found = SumValues(log_value, found.elements, masked, largest, children.clone(), entries)
    return _repaired(found, weights, mask) if len(entries) else found


def _repaired(found: SumValues, weights: Tensor, mask: Tensor | None) -> SumValues:
    """log sum_c theta_c p_c of the weak entries, each with the largest of its own children taken out."""
    log_value, children = found.log_value, found.children
    assert children is not None
    for entries in found.weak_entries():
        run, group, unit, sample = entries
        theta, terms = weights[run, group, unit], children[run, group, :, sample]  # (P, C)
        own = torch.where(theta > 0, terms, 10 * LOG_ZERO).amax(1, keepdim=True).detach()
        # an edge of weight zero may lead to a child larger than `own`
        scaled = (terms - own).clamp(max=MAX_EXPONENT[terms.dtype]).exp()
        if mask is not None:
            scaled = scaled * mask[group, unit]
        exact = (theta * scaled).sum(1).log() + own[:, 0]
        log_value = log_value.index_put(entries, exact)
    return SumValues(log_value, found.elements, found.sums, found.log_largest, found.children, found.weak)
