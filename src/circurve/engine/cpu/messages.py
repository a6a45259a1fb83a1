"""Messages up and flows down a latent tree, in linear space.

With T_k(x) the product of the factors of a product and c its messages,

    E_k = T_k(x) prod_c S_ck        S_k = sum_j theta_kj E_j

up to a scale for each sample: where the largest message of a sample leaves the middle of the floating range, all of
them are divided by it and its logarithm is put aside. Down again, with F the flow of a product, which is the flow
of each of its messages and factors too,

    A_c = F / S_c        F_cj = E_cj sum_k theta_kj A_ck        N_ckj = theta_kj sum_n A_ckn E_cjn.

Only crowded products are multiplied in logs; nothing else with K units sees a logarithm or an exponential, which would
cost more than the matrix products. The price is range: where the largest element of a product comes too close to the
smallest floating number, `upward` gives up, and the samples go to the reference backend.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from circurve.engine.cpu.ranges import RANGES, Range
from circurve.engine.cpu.tally import Tally
from circurve.engine.cpu.views import LevelViews, Views
from circurve.inputs import LOG_ZERO

__all__ = ["flows", "upward"]


def upward(views: Views, weights: Sequence[Tensor], tally: Tally) -> Tensor | None:
    """log p of the outputs, (R, outputs, N), or None where the range does not suffice; E and S stay in the views.

    weights: (G R, K, K) for each level.
    """
    bounds, log_scale = RANGES[weights[0].dtype], tally.log_scale(views)
    for level, weight, tables in zip(*map(reversed, (views.levels, weights, tally.columns)), strict=True):
        if not _multiply(level, tables, log_scale, bounds):
            return None
        torch.bmm(weight, level.elements, out=level.scaled)
        if level.busy is not None and not _kept_in_range(level.busy.scaled, log_scale, bounds, level.busy.elements):
            return None
    root = views.levels[0].scaled
    return (root.log() + log_scale[:, None]).to(root.dtype)[..., : views.samples]


def _multiply(level: LevelViews, tables: Sequence[Tensor], log_scale: Tensor, bounds: Range) -> bool:
    """The products of a level, in `elements`; False where the range does not suffice."""
    for place, table in zip(level.spreads, tables, strict=True):
        if place.spread.turn == 0:
            torch.bmm(table, place.indicator, out=place.elements)
        elif place.spread.crowded:
            torch.baddbmm(place.elements, table, place.indicator, out=place.elements)
        else:
            if place.spread.turn == 2 and not _kept_in_range(place.by_run, log_scale, bounds):
                return False
            place.elements.mul_(torch.bmm(table, place.indicator, out=place.spare))
    for message in level.messages:
        if message.crowded:
            message.elements.add_(torch.log(message.scaled, out=message.spare))
            continue
        if message.third and not _kept_in_range(message.elements, log_scale, bounds):
            return False
        message.elements.mul_(message.scaled)
    if level.crowded is not None:
        largest = level.crowded.amax(-2, keepdim=True)
        if not float(largest.min()) > LOG_ZERO / 2:  # an impossible sample
            return False
        level.crowded.sub_(largest).exp_()
        log_scale += largest.sum((0, 2))
    if level.busy is not None:
        torch.threshold_(level.busy.elements, bounds.flush, 0.0)
    return True


def _kept_in_range(rows: Tensor, log_scale: Tensor, bounds: Range, origin: Tensor | None = None) -> bool:
    """Scale rows (G, R, K, N) where the largest of K is small, and what they were computed from.

    False if the largest is too small for its fellows to be exact.
    """
    largest = rows.amax(-2, keepdim=True)
    least = float(largest.min())
    if least < bounds.small:
        rows.div_(largest)
        if origin is not None:
            origin.div_(largest)
        log_scale += largest.log().sum((0, 2))
    return least >= bounds.lost


def flows(level: LevelViews, weight: Tensor) -> None:
    """A in `scaled` -> the flow of the level's products, in the place of E. `spare` is overwritten."""
    torch.bmm(weight.transpose(1, 2), level.scaled, out=level.spare)
    level.elements.mul_(level.spare)
    torch.threshold_(level.elements, RANGES[weight.dtype].flush, 0.0)
