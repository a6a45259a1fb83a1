"""The reference backend: forward and backward pass in plain torch operations, for any device and precision.

Within a sum layer, with m_n the largest log-value among the children of a group for sample n,

    E_cn = exp(L_cn - m_n)          elements, in [0, 1], the largest is 1
    S_kn = sum_c theta_kc E_cn      scaled sums, one batched matrix product
    log p_kn = log S_kn + m_n

and backwards, with F_kn the flow of unit k,

    A_kn  = F_kn / S_kn
    F_cn += E_cn sum_k theta_kc A_kn            flow to the child
    N_kc  = theta_kc sum_n A_kn E_cn            counts, since r_kc = theta_kc E_c / S_k

so every sum over edges is a matrix product, and no array has samples x edges entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from circurve.engine.batch import Batch
from circurve.engine.bound import BoundWiring, Engine
from circurve.engine.params import Params
from circurve.engine.program import ProductLayer, Program, SumLayer
from circurve.engine.tables import Lookup, make_table, states_of
from circurve.engine.underflow import Repaired, repair_values, repaired_flows
from circurve.inputs import LOG_ZERO

__all__ = ["BySample", "Observer", "SumPass", "backward", "forward", "gather", "root_flow"]

FLUSH = {torch.float32: 1e-30, torch.float64: 1e-290}
"""Scaled values and flows below this become zero: subnormal numbers are slow on a CPU."""


@dataclass(frozen=True)
class SumPass:
    """What the backward pass of one sum layer leaves for the statistics."""

    number: int
    """The position of the layer among the sum layers."""

    layer: SumLayer
    flow: Tensor  # F, (R, G, K, N)
    ratio: Tensor  # A = F / S, (R, G, K, N)
    elements: Tensor  # E, (R, G, C, N)
    scaled: Tensor  # S, (R, G, K, N)
    log_largest: Tensor  # m, (R, G, 1, N)


class Observer(Protocol):
    """Collects statistics while flows go down. It must not keep the tensors: their memory is used again."""

    def on_start(self, batch: Batch, log_value: Tensor, weight: Tensor, possible: Tensor) -> None:
        """The forward pass is done: log p, the weights in use and which samples are possible, all (R, N)."""

    def on_sum(self, step: SumPass) -> None:
        """A sum layer's flow went to its children. `ratio` and `scaled` may be overwritten."""

    def on_table(self, number: int, flow: Tensor, lookup: Lookup) -> None:
        """The flow (R, G, K, N) arrived at a tabulated sum layer; its inputs' statistics follow from it too."""

    def on_repaired(self, number: int, entries: Repaired) -> None:
        """Some entries of sum layer `number` were left out of `ratio` and are given in logs."""

    def on_input(self, number: int, flow: Tensor) -> None:
        """The flow (R, G, K, N) arrived at input layer `number`."""


class BySample:
    """Base of observers that look at every sample of every sum: they need an engine without tables."""

    def on_table(self, number: int, flow: Tensor, lookup: Lookup) -> None:
        """Never called by an engine made with `tables=False`."""
        raise AssertionError("this observer needs an engine without tables")


def gather(wiring: BoundWiring, source: Tensor, out: Tensor, spare: Tensor) -> Tensor:
    """For each target the sum of its rows of `source` (rows, N), written to `out` (R, ..., N) with R x targets rows.

    `spare` is memory of at least the size of `out`: fresh memory would cost a CPU a page fault for every few numbers.
    """
    runs, samples = out.shape[0], out.shape[-1]
    flat = out.view(-1, samples)
    first, *others = wiring.columns
    torch.index_select(source, 0, first[0], out=flat)
    for rows, targets in others:
        more = spare.view(-1)[: len(rows) * samples].view(-1, samples)
        torch.index_select(source, 0, rows, out=more)
        if targets is None:
            flat += more
        elif isinstance(targets, int):
            out.view(runs, wiring.targets, samples)[:, :targets] += more.view(runs, targets, samples)
        else:
            flat.index_add_(0, targets, more)
    if wiring.tail is not None:
        at, rows, offsets = wiring.tail
        flat.index_add_(0, at, torch.nn.functional.embedding_bag(rows, source, offsets, mode="sum"))
    return out


def forward(engine: Engine, params: Params, x: Tensor, observed: Tensor | None) -> Tensor:  # -> (R, outputs, N)
    """Log-values of the outputs; zero probability is LOG_ZERO or below. Inner values stay in the engine's buffers.

    x: (R or 1, V, N) with missing values filled; observed: the same shape (1 or 0), or None if nothing is missing.
    """
    program = engine.program
    skipped = set(engine.tabulated.values())
    for i, (inputs, parameters) in enumerate(zip(program.inputs, params.inputs, strict=True)):
        if i in skipped:
            continue
        variables = engine.variables[i]
        out = engine.values.block(inputs.block, *inputs.shape)
        inputs.family.log_prob(parameters, x.index_select(1, variables), out)
        if observed is not None:
            out *= observed.index_select(1, variables).unsqueeze(-2)
    weights = iter(params.weights)
    for layer in program.layers:
        wiring = engine.children[layer.block]
        if isinstance(layer, ProductLayer):
            block = engine.values.block(layer.block, wiring.targets)
            gather(wiring, engine.values.before(layer.block), block, engine.scratch(1, wiring.targets))
        else:
            weight = next(weights)
            if layer.block in engine.tabulated:
                _table_forward(engine, layer, weight, params, x, observed)
            else:
                _sum_forward(engine, layer, weight)
    outputs = engine.values.matrix.index_select(0, engine.roots)
    return outputs.view(engine.runs, -1, engine.samples)


def _table_forward(
    engine: Engine, layer: SumLayer, weights: Tensor, params: Params, x: Tensor, observed: Tensor | None
) -> None:
    number = engine.tabulated[layer.block]
    variables = engine.variables[number]
    seen = None if observed is None else observed.index_select(1, variables)
    family = engine.program.inputs[number].family
    table = make_table(family, weights, params.inputs[number], missing=seen is not None)
    lookup = Lookup(table, states_of(family, x.index_select(1, variables), seen))
    lookup.spread(engine.values.block(layer.block, layer.shape[0], layer.shape[1]))
    engine.tables[layer.block] = lookup


def _sum_forward(engine: Engine, layer: SumLayer, weights: Tensor) -> None:
    g, k, c = layer.shape
    elements = engine.elements(layer)
    if not engine.overwrites(layer):
        gather(engine.children[layer.block], engine.values.before(layer.block), elements, engine.scratch(1, g, c))
    largest = elements.amax(-2, keepdim=True)  # (R, G, 1, N)
    if engine.keeps:
        engine.largest[layer.block] = largest
    elements.sub_(largest).exp_()
    torch.threshold_(elements, FLUSH[engine.dtype], 0.0)
    scaled = engine.scaled(layer)
    torch.bmm(weights.view(-1, k, c), elements.view(-1, c, engine.samples), out=scaled.view(-1, k, engine.samples))
    log_value = engine.values.block(layer.block, g, k)
    torch.log(scaled, out=log_value).add_(largest)
    if engine.careful:
        repair_values(engine, layer, weights)


def root_flow(batch: Batch, outputs: Tensor, observer: Observer) -> Tensor:  # -> (R, outputs, N)
    """The flow to send down after a forward pass: the sample's weight, at its own output. Tells the observer."""
    runs = outputs.shape[0]
    chosen = None if batch.labels is None else batch.labels.expand(runs, -1).unsqueeze(1)  # (R, 1, N)
    log_value = outputs[:, 0] if chosen is None else outputs.gather(1, chosen).squeeze(1)
    possible = log_value > LOG_ZERO / 2
    weight = possible.to(outputs.dtype) if batch.weights is None else batch.weights * possible
    flow = weight.unsqueeze(1)
    if chosen is not None:
        flow = torch.zeros_like(outputs).scatter_(1, chosen, flow)
    observer.on_start(batch, log_value, weight, possible)
    return flow


def backward(engine: Engine, params: Params, root_flow: Tensor, observer: Observer) -> None:
    """Send the outputs' flow (R, outputs, N) down after a `forward`, and show each layer's to the observer."""
    program = engine.program
    engine.flows.block(0, 1).zero_()
    engine.flows.block(Program.ROOT_FLOWS, root_flow.shape[1]).copy_(root_flow)
    number = len(params.weights)
    for layer in reversed(program.layers):
        if isinstance(layer, SumLayer):
            number -= 1
            if layer.block in engine.tabulated:
                flow = received(engine, layer.block, (layer.shape[0], layer.shape[1]))
                observer.on_table(number, flow, engine.tables[layer.block])
            else:
                _sum_backward(engine, layer, number, params.weights[number], observer)
        elif layer.flow_block is not None:
            wiring = engine.flow[layer.block]
            block = engine.flows.block(layer.flow_block, wiring.targets)
            gather(wiring, engine.flows.before(layer.flow_block), block, engine.scratch(1, wiring.targets))
    skipped = set(engine.tabulated.values())
    for i, inputs in enumerate(program.inputs):
        if i in skipped:
            continue
        observer.on_input(i, received(engine, inputs.block, inputs.shape))


def received(engine: Engine, block: int, shape: tuple[int, int]) -> Tensor:  # -> (R, G, K, N)
    """The flow of a block's rows: a view where one flow block holds exactly them, else gathered into scratch 0."""
    wiring = engine.flow[block]
    if wiring.block is not None:
        return engine.flows.block(wiring.block, *shape)
    return gather(wiring, engine.flows.matrix, engine.scratch(0, *shape), engine.scratch(1, *shape))


def _sum_backward(engine: Engine, layer: SumLayer, number: int, weights: Tensor, observer: Observer) -> None:
    g, k, c = layer.shape
    n = engine.samples
    elements, scaled = engine.elements(layer), engine.scaled(layer)
    flow = received(engine, layer.block, (g, k))
    ratio = torch.div(flow, scaled, out=engine.scratch(1, g, k))
    child_flow = engine.flows.block(layer.flow_block, g, c)
    torch.bmm(weights.view(-1, k, c).transpose(1, 2), ratio.view(-1, k, n), out=child_flow.view(-1, c, n))
    child_flow.mul_(elements)
    if engine.careful:
        for entries in repaired_flows(engine, layer, weights, flow):
            flow_down = entries.flow[:, None] * entries.responsibility  # (P, C)
            child = torch.arange(c, device=engine.device)
            at = (entries.run[:, None], entries.group[:, None], child, entries.sample[:, None])
            child_flow.index_put_(at, flow_down, accumulate=True)
            observer.on_repaired(number, entries)
    torch.threshold_(child_flow, FLUSH[engine.dtype], 0.0)
    observer.on_sum(SumPass(number, layer, flow, ratio, elements, scaled, engine.largest[layer.block]))
