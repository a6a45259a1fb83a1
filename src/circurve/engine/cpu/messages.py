"""Messages up and flows down a latent tree, in linear space.

With T_k(x) the product of the factors of a product and c its messages,

    E_k = T_k(x) prod_c S_ck        S_k = sum_j theta_kj E_j

up to a scale for each sample: where the largest message of a sample leaves the middle of the floating range, all of
them are divided by it and its logarithm is put aside. Down again, with F the flow of a product, which is the flow
of each of its messages and factors too,

    A_c = F / S_c        F_cj = E_cj sum_k theta_kj A_ck        N_ckj = theta_kj sum_n A_ckn E_cjn.

Curvature wants elements of length 1: then q = sum_j E_j^2 is 1 throughout. (Their sums S cannot become very small.)

A logarithm or an exponential of everything with K units would cost more than the matrix products. Only where the
largest element of a product comes close to the smallest floating number, its level is done again in logs. Samples of
probability zero are left to the reference backend.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from circurve.engine.cpu.ranges import RANGES
from circurve.engine.cpu.tally import Tally
from circurve.engine.cpu.views import LevelViews, Views
from circurve.inputs import LOG_ZERO

__all__ = ["Sent", "flows", "upward"]

Sent = Callable[[Views, int], None]
"""Is told the number of each level whose messages are there; may overwrite its `spare`."""


def upward(views: Views, weights: Sequence[Tensor], tally: Tally, sent: Sent | None) -> Tensor | None:
    """log p of the outputs, (R, outputs, N), or None if a sample is impossible; E and S stay in the views.

    weights: (G L, K, K) for each level. With `sent` the elements of each product are scaled to length 1.
    """
    log_scale = tally.log_scale(views)
    mix = _mix if sent is None else _mix_unit
    for number in reversed(range(len(views.levels))):
        level, weight, tables = views.levels[number], weights[number], tally.columns[number]
        done = False
        if number not in tally.in_logs:
            _multiply(level, tables)
            done = mix(level, weight, log_scale)
        if not done:
            tally.in_logs.add(number)
            if not _multiply_in_logs(level, tables, log_scale) or not mix(level, weight, log_scale):
                return None
        if sent is not None:
            sent(views, number)
    root = views.levels[0].scaled
    return views.from_lanes((root.log() + log_scale[:, None]).to(root.dtype))


def _multiply(level: LevelViews, tables: Sequence[Tensor]) -> None:
    """The products of a level, in `elements`."""
    for place, table in zip(level.spreads, tables, strict=True):
        if place.spread.turn == 0:
            torch.bmm(table, place.indicator, out=place.elements)
        else:
            place.elements.mul_(torch.bmm(table, place.indicator, out=place.spare))
    for message in level.messages:
        message.elements.mul_(message.scaled)


def _multiply_in_logs(level: LevelViews, tables: Sequence[Tensor], log_scale: Tensor) -> bool:
    """The same, with busy products divided by their largest element; False if all elements of one are zero."""
    assert level.busy is not None
    for place, table in zip(level.spreads, tables, strict=True):
        if place.spread.quiet:
            torch.bmm(table, place.indicator, out=place.elements)
            continue
        if place.spread.turn == 0:
            place.elements.zero_()
        place.elements.baddbmm_(table.log().clamp_min_(LOG_ZERO), place.indicator)
    for message in level.messages:
        message.elements.add_(torch.log(message.scaled, out=message.spare))
    largest = level.busy.elements.amax(-2, keepdim=True)
    level.busy.elements.sub_(largest).exp_()
    log_scale += largest.sum((0, 2))
    return float(largest.min()) > LOG_ZERO / 2


def _mix(level: LevelViews, weight: Tensor, log_scale: Tensor) -> bool:
    """S = theta E of a level. Where the largest S of a busy product is small, S and E are divided by it.

    False if it is so small that elements may have been lost, or not a number; then nothing is divided.
    """
    bounds, busy = RANGES[weight.dtype], level.busy
    if busy is not None:
        torch.threshold_(busy.elements, bounds.flush, 0.0)
    torch.bmm(weight, level.elements, out=level.scaled)
    if busy is None:
        return True
    largest = busy.scaled.amax(-2, keepdim=True)
    least = float(largest.min())
    if bounds.lost <= least < bounds.small:
        busy.scaled.div_(largest)
        busy.elements.div_(largest)
        log_scale += largest.log().sum((0, 2))
    return least >= bounds.lost


def _mix_unit(level: LevelViews, weight: Tensor, log_scale: Tensor) -> bool:
    """S = theta E of a level with elements of length 1. Those of quiet products have it from their tables.

    False if the length is so small that elements may have been lost, or not a number; then nothing is done.
    """
    bounds, busy = RANGES[weight.dtype], level.busy
    if busy is not None:
        length = torch.square(busy.elements, out=busy.spare_elements).sum(-2, keepdim=True).sqrt_()
        if not float(length.min()) >= bounds.lost_squares:
            return False
        busy.elements.mul_(length.reciprocal())
        torch.threshold_(busy.elements, bounds.flush, 0.0)
        log_scale += length.log_().sum((0, 2))
    torch.bmm(weight, level.elements, out=level.scaled)
    return True


def flows(level: LevelViews, weight: Tensor) -> None:
    """A in `scaled` -> the flow of the level's products, in the place of E. `spare` is overwritten."""
    torch.bmm(weight.transpose(1, 2), level.scaled, out=level.spare)
    level.elements.mul_(level.spare)
    torch.threshold_(level.elements, RANGES[weight.dtype].flush, 0.0)
