"""d_Sigma: how many sum edges are above each unit, without a walk over paths.

The depths go down the flow wiring of the compiled program, like flows do: a slot carries the depth of the edges that
feed it, and a row takes the minimum, the maximum and the flow-weighted mean over its slots.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from circurve.engine.program import ProductLayer, Program, SumLayer, Wiring

__all__ = ["SumDepth", "fixed_depths", "sum_depths"]

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class SumDepth:
    """Depths of the units of a sum layer: fewest and most sum edges on a path from the root, and the mean."""

    low: Vector
    high: Vector
    mean: Vector


@dataclass(frozen=True)
class _Range:
    """The fewest and the most sum edges above rows or slots."""

    low: Vector
    high: Vector


@dataclass(frozen=True)
class _Mean:
    """The mean number of sum edges above rows or slots, and the flow that it is weighted by."""

    mean: Vector
    flow: Vector


def sum_depths(program: Program, counts: list[Vector], outputs: Vector) -> list[SumDepth]:
    """The depths of the units of each sum layer, (G x K,).

    counts: the mean edge flows N_nc of each layer (G, K, C). outputs: the mean flow that enters at each output.
    mean: D_n = sum over parents of (flow from the parent / flow of n) (D_parent + 1 if the parent is a sum), an output
    being a parent of depth 0; the fewest where n has no flow. All are infinite for a unit that no path reaches.
    """
    ranges, fewest = _ranges(program)
    slots = _Mean(np.zeros(program.flows.rows), np.zeros(program.flows.rows))
    slots.flow[1 : 1 + len(outputs)] = outputs
    found: list[SumDepth] = []
    number = len(counts)
    for (layer, wiring, at), known in zip(_downward(program), ranges, strict=True):
        rows = _receive(wiring, slots, known.low)
        if isinstance(layer, SumLayer):
            number -= 1
            found.append(_tidied(known, rows.mean))
            rows = _sent(layer, rows.mean, counts[number], fewest[at])
        slots.mean[at], slots.flow[at] = rows.mean, rows.flow
    return found[::-1]


def fixed_depths(program: Program) -> list[SumDepth] | None:
    """`sum_depths` where flows make no difference, as in trees: all paths to a unit have as many sum edges."""
    ranges, _ = _ranges(program)
    pairs = zip(_downward(program), ranges, strict=True)
    found = [_tidied(known, known.low) for (layer, *_), known in pairs if isinstance(layer, SumLayer)]
    return found[::-1] if all(np.array_equal(depth.low, depth.high) for depth in found) else None


def _downward(program: Program) -> Iterator[tuple[SumLayer | ProductLayer, Wiring, slice]]:
    """The layers that hand flow on, parents first: what each receives, and the slots that it fills.

    Products with several parents have slots of their own; those with one share its slots and are passed over.
    """
    for layer in reversed(program.layers):
        if layer.flow is not None:
            assert layer.flow_block is not None
            yield layer, layer.flow, program.flows.span(layer.flow_block)


_RANGES: WeakKeyDictionary[Program, tuple[list[_Range], Vector]] = WeakKeyDictionary()
"""Found once for each program, and gone with it."""


def _ranges(program: Program) -> tuple[list[_Range], Vector]:
    """What does not depend on flows: the range of each layer of `_downward`, and the fewest edges above each slot."""
    if program not in _RANGES:
        _RANGES[program] = _find_ranges(program)
    return _RANGES[program]


def _find_ranges(program: Program) -> tuple[list[_Range], Vector]:
    slots = _Range(np.zeros(program.flows.rows), np.zeros(program.flows.rows))
    slots.low[0], slots.high[0] = np.inf, -np.inf
    found = []
    for layer, wiring, at in _downward(program):
        rows = _Range(np.full(wiring.targets, np.inf), np.full(wiring.targets, -np.inf))
        targets, sources = wiring.edges()
        np.minimum.at(rows.low, targets, slots.low[sources])
        np.maximum.at(rows.high, targets, slots.high[sources])
        found.append(rows)
        sent = _sent_range(layer, rows) if isinstance(layer, SumLayer) else rows
        slots.low[at], slots.high[at] = sent.low, sent.high
    return found, slots.low


def _sent_range(layer: SumLayer, units: _Range) -> _Range:
    """One more sum edge, to each element that has an edge from the unit."""
    g, k, c = layer.shape
    low, high = units.low.reshape(g, k, 1), units.high.reshape(g, k, 1)
    if layer.mask is not None:
        low = np.where(layer.mask, low, np.inf)
        high = np.where(layer.mask, high, -np.inf)
    ends = (np.broadcast_to(end, (g, c)).reshape(-1) + 1 for end in (low.min(1), high.max(1)))
    return _Range(*ends)


def _receive(wiring: Wiring, slots: _Mean, fewest: Vector) -> _Mean:
    """Combine the slots of each target."""
    flow, weighted = np.zeros(wiring.targets), np.zeros(wiring.targets)
    targets, sources = wiring.edges()
    np.add.at(flow, targets, slots.flow[sources])
    np.add.at(weighted, targets, slots.flow[sources] * slots.mean[sources])
    return _Mean(_mean(weighted, flow, fewest), flow)


def _sent(layer: SumLayer, depth: Vector, counts: Vector, fewest: Vector) -> _Mean:
    """The mean over the units that send flow to an element, one edge deeper than they are."""
    g, k, _ = layer.shape
    flow = counts.sum(1).reshape(-1)  # (G x C,)
    weighted = (counts * (depth.reshape(g, k, 1) + 1)).sum(1).reshape(-1)
    return _Mean(_mean(weighted, flow, fewest), flow)


def _mean(weighted: Vector, flow: Vector, low: Vector) -> Vector:
    """weighted / flow; the fewest where there is no flow, and 0 where there is no path: it meets flows of zero only."""
    fewest = np.where(np.isfinite(low), low, 0)
    return np.where(flow > 0, weighted / np.where(flow > 0, flow, 1), fewest)


def _tidied(bounds: _Range, mean: Vector) -> SumDepth:
    """Infinite depths where there is no path, and means without the rounding that leads out of the bounds."""
    high = np.where(np.isfinite(bounds.low), bounds.high, np.inf)
    return SumDepth(bounds.low, high, np.clip(mean, bounds.low, high))
