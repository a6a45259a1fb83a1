"""d_Sigma: how many sum edges lie above each unit, without a walk over paths.

The depths go down the flow wiring of the compiled program, like flows do: a slot carries the depth of the edges that
feed it, and a row takes the minimum, the maximum and the flow-weighted mean over its slots.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from circurve.engine.program import ProductLayer, Program, SumLayer, Wiring

__all__ = ["SumDepth", "sum_depths"]

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class SumDepth:
    """Depths of rows or slots: fewest and most sum edges on a path from the root, the mean, and the flow behind it."""

    low: Vector
    high: Vector
    mean: Vector
    flow: Vector


def sum_depths(program: Program, counts: list[Vector], outputs: Vector) -> list[SumDepth]:
    """The depths of the units of each sum layer, (G x K,).

    counts: the mean edge flows N_nc of each layer (G, K, C). outputs: the mean flow that enters at each output.
    mean: D_n = sum over parents of (flow from the parent / flow of n) (D_parent + 1 if the parent is a sum), an output
    being a parent of depth 0; the fewest where n has no flow. All are infinite for a unit that no path reaches.
    """
    slots = SumDepth(*(np.zeros(program.flows.rows) for _ in range(4)))
    slots.low[0], slots.high[0] = np.inf, -np.inf
    slots.flow[1 : 1 + len(outputs)] = outputs
    found: list[SumDepth] = []
    number = len(counts)
    for layer in reversed(program.layers):
        if isinstance(layer, SumLayer):
            number -= 1
            units = _receive(layer.flow, slots)
            found.append(_tidied(units))
            _send(program, layer, units, counts[number], slots)
        elif layer.flow is not None:
            _store(program, layer, _receive(layer.flow, slots), slots)
    return found[::-1]


def _receive(wiring: Wiring, slots: SumDepth) -> SumDepth:
    """Combine the slots of each target."""
    low, high = np.full(wiring.targets, np.inf), np.full(wiring.targets, -np.inf)
    flow, weighted = np.zeros(wiring.targets), np.zeros(wiring.targets)
    for targets, sources in _pairs(wiring):
        np.minimum.at(low, targets, slots.low[sources])
        np.maximum.at(high, targets, slots.high[sources])
        np.add.at(flow, targets, slots.flow[sources])
        np.add.at(weighted, targets, slots.flow[sources] * slots.mean[sources])
    return SumDepth(low, high, _mean(weighted, flow, low), flow)


def _mean(weighted: Vector, flow: Vector, low: Vector) -> Vector:
    """weighted / flow; the fewest where there is no flow, and 0 where there is no path: it meets flows of zero only."""
    fewest = np.where(np.isfinite(low), low, 0)
    return np.where(flow > 0, weighted / np.where(flow > 0, flow, 1), fewest)


def _tidied(units: SumDepth) -> SumDepth:
    """Infinite depths where there is no path, and means without the rounding that leads out of the bounds."""
    high = np.where(np.isfinite(units.low), units.high, np.inf)
    return replace(units, high=high, mean=np.clip(units.mean, units.low, high))


def _pairs(wiring: Wiring) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    pairs = []
    for column in wiring.columns:
        targets = column.targets
        if targets is None or isinstance(targets, int):
            targets = np.arange(len(column.sources))
        pairs.append((targets, column.sources))
    if wiring.tail is not None:
        sizes = np.diff(wiring.tail.offsets, append=len(wiring.tail.sources))
        pairs.append((np.repeat(wiring.tail.targets, sizes), wiring.tail.sources))
    return pairs


def _send(program: Program, layer: SumLayer, units: SumDepth, counts: Vector, slots: SumDepth) -> None:
    """One more sum edge, to each element that has an edge from the unit."""
    g, k, c = layer.shape
    low, high = units.low.reshape(g, k, 1), units.high.reshape(g, k, 1)
    if layer.mask is not None:
        low = np.where(layer.mask, low, np.inf)
        high = np.where(layer.mask, high, -np.inf)
    flow = counts.sum(1)  # (G, C)
    weighted = (counts * (units.mean.reshape(g, k, 1) + 1)).sum(1)
    at = _block(program, layer.flow_block)
    slots.low[at] = np.broadcast_to(low.min(1), (g, c)).reshape(-1) + 1
    slots.high[at] = np.broadcast_to(high.max(1), (g, c)).reshape(-1) + 1
    slots.flow[at] = flow.reshape(-1)
    slots.mean[at] = _mean(weighted.reshape(-1), slots.flow[at], slots.low[at])


def _store(program: Program, layer: ProductLayer, rows: SumDepth, slots: SumDepth) -> None:
    """Products with several parents have slots of their own."""
    assert layer.flow_block is not None
    at = _block(program, layer.flow_block)
    slots.low[at], slots.high[at], slots.mean[at], slots.flow[at] = rows.low, rows.high, rows.mean, rows.flow


def _block(program: Program, number: int) -> slice:
    start = int(program.flows.starts[number])
    return slice(start, start + int(program.flows.sizes[number]))
