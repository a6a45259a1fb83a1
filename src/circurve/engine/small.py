"""A few rows at a time on a CPU: the upward pass in numpy, whose operations start several times faster than torch's.

With one row, each operation has almost no work, so that the cost is the number of operations times the overhead of
each. Everything that depends on the parameters alone is therefore made once: tables of the inputs by state, weights as
arrays that share memory with the parameters, and the rows that each layer reads.

The sums are those of `reference.upward`: with m_n the largest log-value among the children of a group,

    log p_kn = m_n + log sum_c theta_kc exp(L_cn - m_n),

with log-values in float64 and products in the precision of the parameters. Where a sum could lose its children to
rounding, nothing is returned, and a backend computes the rows.

It is no backend itself: a backend is given parameters with every call and always answers, while this belongs to one set
of parameters, whose tables it keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from circurve.engine.numerics import IMPOSSIBLE, WEAK_SUM
from circurve.engine.params import Params
from circurve.engine.program import InputLayer, ProductLayer, Program, SumLayer, Wiring
from circurve.engine.states import state_logs
from circurve.inputs import Indicator
from circurve.inputs.family import counts_from_zero

__all__ = ["SmallBatches"]

Array: TypeAlias = NDArray[Any]
Observed: TypeAlias = NDArray[np.bool_] | None
Step: TypeAlias = Callable[[Array], bool]
"""Writes the values of one layer, given all values (rows + 1, N); False if a sum may have lost its children."""

MAX_VALUES = 1 << 18
"""Values of all units and samples up to which numpy is faster than a backend. (Measured: benchmarks/latency.py.)"""

MAX_TABLE_STATES = 1024
"""Inputs with more states, and more than they have parameters, get no table."""

MAX_PADDING = 4
"""Children of products are padded to the largest number in the layer, if that makes the list at most this many times
longer."""


class SmallBatches:
    """One run of a program on a CPU. Nothing is kept between calls but what the parameters determine."""

    def __init__(self, program: Program, params: Params) -> None:
        self.max_samples = MAX_VALUES // (program.values.rows + 1) if _fits(program, params) else 0
        """The most samples that are worth it; 0 if the program does not fit at all."""

        self._rows, self._roots = program.values.rows, program.roots
        if not self.max_samples:
            return
        bound = WEAK_SUM[params.dtype] if params.may_underflow() else None
        inputs = zip(program.inputs, params.inputs, strict=True)
        self._inputs = [_input_step(program, layer, values.detach()) for layer, values in inputs]
        weights = iter(params.weights)
        self._layers: list[Step] = [
            _ProductStep.of(program, layer)
            if isinstance(layer, ProductLayer)
            else _SumStep.of(program, layer, next(weights).detach(), bound)
            for layer in program.layers
        ]

    def log_prob(self, x: Array, observed: Observed) -> Array | None:
        """Log-probabilities (outputs, N) in float64, or None if a backend has to compute them.

        x: (V, N) float64, values that their families take, 0 where nothing is observed. observed: (V, N), or None if
        nothing is missing.
        """
        values = np.empty((self._rows + 1, x.shape[1]))
        values[-1] = 0  # what products with fewer children than others read
        for write in self._inputs:
            write(values, x, observed)
        for step in self._layers:
            if not step(values):
                return None
        found: Array = values[self._roots]
        found[found <= IMPOSSIBLE] = -np.inf
        return found


def _fits(program: Program, params: Params) -> bool:
    if params.device.type != "cpu" or params.runs != 1:
        return False
    products = (layer.children for layer in program.layers if isinstance(layer, ProductLayer))
    return all(_most_children(w) * w.targets <= MAX_PADDING * len(w.edges()[0]) for w in products)


def _most_children(wiring: Wiring) -> int:
    return int(np.bincount(wiring.edges()[0]).max())


def _input_step(program: Program, layer: InputLayer, parameters: Tensor) -> _TableStep | _FamilyStep:
    span = program.values.span(layer.block)
    variables = np.array([node.variable for node in layer.nodes])
    support = None if isinstance(layer.family, Indicator) else layer.family.support()
    most = max(MAX_TABLE_STATES, parameters.shape[-1])
    if support is None or len(support) > most or not counts_from_zero(support):
        return _FamilyStep(layer, parameters, variables, span)
    logs = state_logs(layer.family, parameters, missing=True)[0]  # (G, K, S + 1)
    table = logs.transpose(1, 2).flatten(0, 1).double().numpy()
    starts = np.arange(len(variables))[:, None] * logs.shape[2]
    return _TableStep(table, variables, starts, len(support), span, layer.shape)


@dataclass(frozen=True)
class _TableStep:
    """Inputs with few states: each sample picks a row of a table."""

    table: Array  # log p of each state and of "missing", (G (S + 1), K)
    variables: Array  # (G,)
    starts: Array  # the first row of each input, (G, 1)
    missing: int  # S, the state that means a missing value
    span: slice
    shape: tuple[int, int]  # (G, K)

    def __call__(self, values: Array, x: Array, observed: Observed) -> None:
        states = x[self.variables]  # (G, N)
        if observed is not None:
            states[~observed[self.variables]] = self.missing
        picked = self.table[states.astype(np.int64) + self.starts]  # (G, N, K)
        values[self.span].reshape(*self.shape, -1)[...] = picked.transpose(0, 2, 1)


@dataclass(frozen=True)
class _FamilyStep:
    """Inputs of any family, which computes in torch."""

    layer: InputLayer
    parameters: Tensor  # (1, G, K, P)
    variables: Array  # (G,)
    span: slice

    def __call__(self, values: Array, x: Array, observed: Observed) -> None:
        chosen = torch.from_numpy(x[self.variables]).to(self.parameters.dtype)
        with torch.no_grad():
            logs = self.layer.family.log_prob(self.parameters, chosen.unsqueeze(0))[0].numpy()  # (G, K, N)
        if observed is not None:
            logs = logs * observed[self.variables][:, None]
        values[self.span] = logs.reshape(-1, logs.shape[-1])


@dataclass(frozen=True)
class _ProductStep:
    """Products: the sum of their children's rows."""

    children: Array  # the j-th child of each product, or the row of zeros, (most children, targets)
    span: slice

    @classmethod
    def of(cls, program: Program, layer: ProductLayer) -> _ProductStep:
        targets, sources = layer.children.edges()
        counts = np.bincount(targets)
        place = np.arange(len(targets)) - np.repeat(np.cumsum(counts) - counts, counts)
        children = np.full((int(counts.max()), layer.children.targets), program.values.rows)
        children[place, targets] = sources
        return cls(children, program.values.span(layer.block))

    def __call__(self, values: Array) -> bool:
        np.add.reduce(values.take(self.children, axis=0), axis=0, out=values[self.span])
        return True


@dataclass(frozen=True)
class _SumStep:
    """Sums: one batched matrix product."""

    weights: Array  # (G, K, C)
    children: slice | Array
    span: slice
    bound: float | None  # a sum below this may have lost its children; None if there cannot be one

    @classmethod
    def of(cls, program: Program, layer: SumLayer, weights: Tensor, bound: float | None) -> _SumStep:
        sources = layer.children.single
        assert sources is not None, "an element of a sum has one source"
        first = int(sources[0])
        in_order = np.array_equal(sources, np.arange(first, first + len(sources)))
        children = slice(first, first + len(sources)) if in_order else sources
        return cls(weights[0].numpy(), children, program.values.span(layer.block), bound)

    def __call__(self, values: Array) -> bool:
        groups, units, child_units = self.weights.shape
        children = values[self.children].reshape(groups, child_units, -1)
        largest = np.maximum.reduce(children, axis=1, keepdims=True)  # (G, 1, N)
        elements = np.subtract(children, largest).astype(self.weights.dtype, copy=False)
        np.exp(elements, out=elements)
        sums = np.matmul(self.weights, elements)  # (G, K, N)
        if self.bound is not None and not sums.min() >= self.bound:
            return False
        np.log(sums, out=sums)
        np.add(sums, largest, out=values[self.span].reshape(groups, units, -1))
        return True
