"""Probabilities near the weights of a model, as multiples of those at its weights, for second derivatives.

With v_n the value of a unit at the weights of the model, r_n = p_n / v_n is a polynomial in the weights:

    sum      r_n = sum_c theta_nc rho_nc r_c,   rho_nc = v_c / v_n
    product  r_n = product of the r_c

At the weights of the model every r is 1, and all derivatives of r are sums of positive terms, so that none of them
cancel. (Derivatives of log p_n do: where a node has flow F and an edge of ratio rho, they contain F rho^2, of which
F^2 rho^2 is left. With F = 1e-31 and rho = 1e31, no digit of it is.)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from circurve.engine import Batch, Params, Reference
from circurve.engine.numerics import IMPOSSIBLE
from circurve.engine.program import SumLayer
from circurve.engine.reference import Rows

__all__ = ["RelativeValues"]

LARGEST_LOG_SCALE = 300.0
"""Nats. A unit is weak if the largest child of its node is larger by more than that: its ratios are listed then."""

LARGEST_LOG_RATIO = 690.0
"""Larger ratios would be infinite in float64, and infinity times a flow of zero is not a number."""


@dataclass(frozen=True)
class _WeakUnits:
    """Weak units, P of them, each in one sample."""

    group: Tensor  # (P,)
    unit: Tensor  # (P,)
    sample: Tensor  # (P,)
    ratio: Tensor  # (P, C)


@dataclass(frozen=True)
class _SumConstants:
    """rho_nc = scale_n elements_c, but for weak units."""

    elements: Tensor  # v_c over the largest of the group, (G, C, N)
    scale: Tensor  # that largest over v_n; 0 if unit n is impossible or weak, (G, K, N)
    weak: _WeakUnits


class RelativeValues:
    """p(x) / v(x) of each row of a batch as a function of the weights, for a model of one run in float64."""

    @torch.no_grad()
    def __init__(self, reference: Reference, params: Params, batch: Batch) -> None:
        self.reference, self.labels, self.samples = reference, batch.labels, batch.size
        values = reference.upward(params, batch).values
        self.sums = [self._constants(layer, number, values) for number, layer in enumerate(reference.program.sums)]

    def _constants(self, layer: SumLayer, number: int, values: Rows) -> _SumConstants:
        g, k, _ = layer.shape
        children = self.reference.child_values(layer, values)[0]  # (G, C, N)
        own = values.blocks[layer.block][0].view(g, k, -1)  # (G, K, N)
        largest = children.amax(-2, keepdim=True)  # (G, 1, N)
        possible, weak = own > IMPOSSIBLE, largest - own > LARGEST_LOG_SCALE
        scale = torch.where(possible & ~weak, (largest - own).clamp_max(LARGEST_LOG_SCALE).exp(), 0.0)
        group, unit, sample = (possible & weak).nonzero(as_tuple=True)
        log_ratio = children[group, :, sample] - own[group, unit, sample, None]  # (P, C)
        ratio, mask = log_ratio.clamp_max(LARGEST_LOG_RATIO).exp(), self.reference.masks[number]
        ratio = ratio if mask is None else ratio.masked_fill(mask[group, unit] == 0, 0.0)
        return _SumConstants((children - largest).exp(), scale, _WeakUnits(group, unit, sample, ratio))

    def __call__(self, weights: list[Tensor]) -> Tensor:  # (G, K, C) each -> (N,)
        """r of the output that each row belongs to."""
        program, rows, number = self.reference.program, Rows(), 0
        for layer in program.inputs:
            g, k = layer.shape
            rows.put(layer.block, torch.ones(1, g * k, self.samples, dtype=torch.float64))
        for step in program.layers:
            factors = self.reference.children[step.block].product(rows)  # (1, rows, N)
            if isinstance(step, SumLayer):
                found = _sum(weights[number], factors[0].view(step.shape[0], step.shape[2], -1), self.sums[number])
                factors, number = found.flatten(0, 1)[None], number + 1
            rows.put(step.block, factors)
        outputs = self.reference.outputs(rows)[0]  # (outputs, N)
        return outputs[0] if self.labels is None else outputs.gather(0, self.labels)[0]


def _sum(weights: Tensor, children: Tensor, known: _SumConstants) -> Tensor:  # (G, K, C), (G, C, N) -> (G, K, N)
    result = (weights @ (known.elements * children)) * known.scale
    weak = known.weak
    if not len(weak.group):
        return result
    terms = weights[weak.group, weak.unit] * weak.ratio * children.transpose(1, 2)[weak.group, weak.sample]  # (P, C)
    return result.index_put((weak.group, weak.unit, weak.sample), terms.sum(-1))
