"""Messages up a latent tree, in linear space.

With T_k(x) the product of the factors of a product and c its messages,

    E_k = T_k(x) prod_c S_ck        S_k = sum_j theta_kj E_j

up to a scale for each sample: where the largest message of a sample leaves the middle of the floating range, all of
them are divided by it and its logarithm is stored. For curvature the elements of each product get length 1: then
q = sum_j E_j^2 is 1 throughout. (Their sums S cannot become very small.)

A logarithm or an exponential of everything with K units would cost more than the matrix products. Only where the
largest element of a product comes close to the smallest floating number, its level is computed again in logs. Samples
of probability zero are left to the reference backend.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from circurve.engine.numerics import IMPOSSIBLE, LOG_ZERO, MESSAGES
from circurve.engine.tree.memory import LevelViews, Views
from circurve.engine.tree.tables import JointTables

__all__ = ["OnLevel", "upward"]

OnLevel = Callable[[Views, int], None]
"""Called with the number of each level whose sums S are complete; may overwrite its `spare`."""


def upward(views: Views, weights: Sequence[Tensor], tables: JointTables, on_level: OnLevel | None) -> Tensor | None:
    """log p of the outputs, (R, outputs, N) in float64, or None if a sample is impossible or NaN; E and S stay in the
    views.

    weights: (G L, K, K) for each level. With `on_level` the elements of each product are scaled to length 1.
    """
    log_scale = tables.log_scale(views)
    mix = _mix if on_level is None else _mix_unit
    for number in reversed(range(len(views.levels))):
        level, weight, columns = views.levels[number], weights[number], tables.columns[number]
        done = False
        if number not in tables.in_logs:
            _multiply(level, columns)
            done = mix(level, weight, log_scale)
        if not done:
            tables.in_logs.add(number)
            if not _multiply_in_logs(level, columns, log_scale) or not mix(level, weight, log_scale):
                return None
        if on_level is not None:
            on_level(views, number)
    root = views.levels[0].sums
    return views.joined(root.double().log() + log_scale[:, None])


def _multiply(level: LevelViews, columns: Sequence[Tensor]) -> None:
    """E of a level's products."""
    for place, table in zip(level.spans, columns, strict=True):
        if place.span.position == 0:
            torch.bmm(table, place.indicator, out=place.elements)
        else:
            place.elements.mul_(torch.bmm(table, place.indicator, out=place.spare))
    for message in level.messages:
        message.elements.mul_(message.sums)


def _multiply_in_logs(level: LevelViews, columns: Sequence[Tensor], log_scale: Tensor) -> bool:
    """Multiply with inner products divided by their largest element; False if all elements of one are zero."""
    assert level.inner is not None
    for place, table in zip(level.spans, columns, strict=True):
        if place.span.whole:
            torch.bmm(table, place.indicator, out=place.elements)
            continue
        if place.span.position == 0:
            place.elements.zero_()
        place.elements.baddbmm_(table.log().clamp_min_(LOG_ZERO), place.indicator)
    for message in level.messages:
        message.elements.add_(torch.log(message.sums, out=message.spare))
    largest = level.inner.elements.amax(-2, keepdim=True)
    level.inner.elements.sub_(largest).exp_()
    log_scale += largest.sum((0, 2))
    return float(largest.min()) > IMPOSSIBLE


def _mix(level: LevelViews, weight: Tensor, log_scale: Tensor) -> bool:
    """S = theta E of a level. Where the largest S of an inner product is small, S and E are divided by it.

    False if it is so small that elements may have been lost, or not a number; then nothing is divided.
    """
    bounds, inner = MESSAGES[weight.dtype], level.inner
    if inner is not None:
        torch.threshold_(inner.elements, bounds.flush, 0.0)
    torch.bmm(weight, level.elements, out=level.sums)
    if inner is None:
        return True
    largest = inner.sums.amax(-2, keepdim=True)
    least = float(largest.min())
    if bounds.lost <= least < bounds.small:
        inner.sums.div_(largest)
        inner.elements.div_(largest)
        log_scale += largest.log().sum((0, 2))
    return least >= bounds.lost


def _mix_unit(level: LevelViews, weight: Tensor, log_scale: Tensor) -> bool:
    """S = theta E of a level with elements of length 1. Those of tabulated products have it from their tables.

    False if the length is so small that elements may have been lost, or not a number; then nothing is done.
    """
    bounds, inner = MESSAGES[weight.dtype], level.inner
    if inner is not None:
        length = torch.square(inner.elements, out=inner.spare_elements).sum(-2, keepdim=True).sqrt_()
        if not float(length.min()) >= bounds.lost_squares:
            return False
        inner.elements.mul_(length.reciprocal())
        torch.threshold_(inner.elements, bounds.flush, 0.0)
        log_scale += length.log_().sum((0, 2))
    torch.bmm(weight, level.elements, out=level.sums)
    return True
