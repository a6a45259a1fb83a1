"""Several models as one: their mixture, a circuit of its own."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from circurve.engine import by_node
from circurve.graph import Circuit, Input, Node, Product, Sum
from circurve.model import Model

__all__ = ["ensemble"]


def ensemble(models: Sequence[Model]) -> Model:
    """The mixture p(x) = (1/M) sum_m p_m(x) of M models of the same columns.

    One circuit, a sum over copies of the models' roots, so that every question to a model can be put to it.
    """
    if len(models) == 1:
        return models[0]
    roots: list[Node] = []
    values: dict[Node, Tensor] = {}
    for number, model in enumerate(models):
        copies = _copies(model.circuit, f" of model {number}")
        values |= {copies[node]: value for node, value in by_node(model.program, model.params).items()}
        roots += [copies[root] for root in model.circuit.roots]
    weights: dict[Node, Tensor] = {node: value for node, value in values.items() if isinstance(node, Sum)}
    inputs: dict[Node, Tensor] = {node: value for node, value in values.items() if isinstance(node, Input)}
    mixed = Circuit(Sum(roots, 1, name="mixture"), schema=models[0].schema)
    return Model.from_parameters(mixed, weights, inputs, dtype=models[0].dtype).to(models[0].device)


def _copies(circuit: Circuit, label: str) -> dict[Node, Node]:
    """A copy of each node, with `label` at the end of its name."""
    found: dict[Node, Node] = {}
    for node in circuit.nodes:
        name = f"{node.name}{label}" if node.name else None
        children = [found[child] for child in node.children]
        if isinstance(node, Input):
            found[node] = Input(node.variable, node.family, node.units, name=name)
        elif isinstance(node, Product):
            found[node] = Product(children, node.select, name=name)
        else:
            found[node] = Sum(children, node.units, node.mask, name=name)
    return found
