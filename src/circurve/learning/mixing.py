"""Several models as one: their mixture, a circuit of its own, and back."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from circurve.budget import Need
from circurve.data.convert import column_label
from circurve.engine import by_node
from circurve.errors import OptionError, StructureError
from circurve.graph import Circuit, Input, Node, Product, Sum
from circurve.inputs.family import same_values
from circurve.model import Model
from circurve.model_checks import structure_cost
from circurve.schema import Column, Schema
from circurve.words import counted

__all__ = ["components", "member_weights", "members_of", "mix"]

NAME = "mixture"
"""The name of the root sum of a mixture."""

MIXED_BYTES = 5 * 8
"""What each parameter of a member takes while a mixture is built."""

OF_MODEL = re.compile(r" of model \d+$")
"""How the names of nodes in a mixture end."""

Floats = NDArray[np.float64]


def mix(
    models: Sequence[Model],
    weights: Sequence[float] | Floats | None = None,
    *,
    memory_budget: int | None = None,
) -> Model:
    """The mixture p(x) = sum_m w_m p_m(x) of M models of the same columns, as one model.

    Its circuit has one more sum, over copies of the models' roots, so every question can be asked of it. The models may
    have different circuits; columns with names are put in the order of the first model's. A model that is a mixture
    itself is replaced by its members. The result has the device of the first model and the highest precision of all.

    Parameters
    ----------
    models : sequence of Model
        At least one.
    weights : sequence of float, optional
        One number >= 0 for each model, divided by their sum; None is 1/M. A model of weight 0 adds no circuit; columns,
        precision and device are still as above.
    memory_budget : int, optional
        Memory limit for the mixture and what is made while it is built, in bytes; checked before memory is allocated.

    Returns
    -------
    Model
        The mixture.

    Raises
    ------
    StructureError
        If the models have different columns.

    Examples
    --------
    >>> import circurve as cc
    >>> data = cc.load_dataset("digits")
    >>> circuit = cc.hclt(data.train, units=4)
    >>> models = [cc.fit(circuit, data.train, epochs=2, seed=seed, valid=False).model for seed in range(2)]
    >>> both = cc.mix(models, weights=[3, 1])
    >>> [round(float(model.log_prob(data.test).mean()), 1) for model in (*models, both)]
    [-26.6, -27.2, -26.6]
    """
    listed = _checked(models)
    shares = _normalised(weights, len(listed))
    if len(listed) == 1:
        return listed[0]
    schema = listed[0].schema
    _check_memory([model for model, share in zip(listed, shares, strict=True) if share > 0], memory_budget)
    members: list[tuple[Model, float]] = []
    for number, (model, share) in enumerate(zip(listed, shares.tolist(), strict=True)):
        _check_columns(schema, model.schema, number)
        if share > 0:
            parts, inner = components(model)
            members += [(part, share * own) for part, own in zip(parts, inner.tolist(), strict=True)]
    dtype = torch.float64 if any(model.dtype == torch.float64 for model in listed) else torch.float32
    mixed = _alone(members[0][0], schema, dtype) if len(members) == 1 else _together(members, schema, dtype)
    return mixed if mixed.device == listed[0].device else mixed.to(listed[0].device)


def _alone(model: Model, schema: Schema, dtype: torch.dtype) -> Model:
    """A model with the columns of a schema in their order, in this precision; the model itself if it has them so."""
    if (model.schema.names, model.schema.ignored, model.dtype) == (schema.names, schema.ignored, dtype):
        return model
    copies = _copies(model.circuit, "", _places(model.schema, schema))
    values = {copies[node]: value for node, value in by_node(model.program, model.params).items()}
    root = copies[model.circuit.roots[0]]
    return _model(Circuit(root, schema=_schema(Circuit(root), schema)), values, dtype)


def _together(members: Sequence[tuple[Model, float]], schema: Schema, dtype: torch.dtype) -> Model:
    """One sum over copies of the models, with these shares; columns in the order of the schema."""
    roots: list[Node] = []
    values: dict[Node, Tensor] = {}
    for number, (model, _) in enumerate(members):
        copies = _copies(model.circuit, f" of model {number}", _places(model.schema, schema))
        values |= {copies[node]: value for node, value in by_node(model.program, model.params).items()}
        roots += [copies[root] for root in model.circuit.roots]
    root = Sum(roots, 1, name=NAME)
    values[root] = torch.tensor([[share for _, share in members]], dtype=torch.float64)
    return _model(Circuit(root, schema=_schema(Circuit(root), schema)), values, dtype)


def _check_memory(models: Sequence[Model], memory_budget: int | None) -> None:
    """The parameters of all models node by node, in float64, stacked, and as they are kept; and the circuit of all."""
    numbers = sum(model.program.parameters for model in models)
    parts = {"parameters": MIXED_BYTES * numbers}
    parts["structure"] = sum(structure_cost(model.circuit.nodes).bytes for model in models)
    Need("mix", parts, "mix fewer models, or smaller ones").left(memory_budget)


def components(model: Model) -> tuple[tuple[Model, ...], Floats]:  # M models, (M,)
    """The members of a mixture and their weights; any other model is the one member of itself.

    A mixture is a circuit whose root is one sum unit over nodes of one unit each that share no node below.
    """
    roots = model.circuit.roots
    root = roots[0]
    single = len(roots) == 1 and isinstance(root, Sum) and root.units == 1 and len(root.children) > 1
    if not single or any(child.units != 1 for child in root.children) or not _apart(root.children):
        return (model,), np.ones(1)
    values = by_node(model.program, model.params)
    weights = values[root][0].double().cpu().numpy()
    parts = []
    for child in (child for child, weight in zip(root.children, weights, strict=True) if weight > 0):
        copies = _copies(Circuit(child), None, range(model.circuit.variables))
        own = {copy: values[node] for node, copy in copies.items() if node in values}
        circuit = Circuit(copies[child])
        parts.append(
            _model(Circuit(copies[child], schema=_schema(circuit, model.schema)), own, model.dtype).to(model.device)
        )
    return tuple(parts), weights[weights > 0] / weights.sum()


def members_of(circuit: Circuit) -> tuple[Node, ...]:
    """The roots of the members of a circuit that `mix` made; none for any other circuit."""
    root = circuit.roots[0]
    mixed = isinstance(root, Sum) and root.name == NAME and root.units == 1 and len(root.children) > 1
    return root.children if mixed else ()


def member_weights(model: Model) -> Floats | None:  # (M,)
    """The weights of the members of a model that `mix` made; None for any other model."""
    if not members_of(model.circuit):
        return None
    weights: Floats = np.asarray(model.weights(NAME), dtype=np.float64)[0]
    return weights


def _model(circuit: Circuit, values: Mapping[Node, Tensor], dtype: torch.dtype) -> Model:
    weights: dict[Node, Tensor] = {node: value for node, value in values.items() if isinstance(node, Sum)}
    inputs: dict[Node, Tensor] = {node: value for node, value in values.items() if isinstance(node, Input)}
    return Model.from_parameters(circuit, weights, inputs, dtype=dtype)


def _apart(roots: Sequence[Node]) -> bool:
    """Whether no node is below two of these."""
    seen: set[Node] = set()
    for root in roots:
        own = set(Circuit(root).nodes)
        if seen & own:
            return False
        seen |= own
    return True


def _copies(circuit: Circuit, label: str | None, places: Sequence[int]) -> dict[Node, Node]:
    """A copy of each node. Variable v becomes places[v]; `label` ends the names, None takes such an ending away."""
    found: dict[Node, Node] = {}
    for node in circuit.nodes:
        name = node.name
        if name is not None:
            name = OF_MODEL.sub("", name) if label is None else f"{name}{label}"
        children = [found[child] for child in node.children]
        if isinstance(node, Input):
            found[node] = Input(places[node.variable], node.family, node.units, name=name)
        elif isinstance(node, Product):
            found[node] = Product(children, node.select, name=name)
        else:
            found[node] = Sum(children, node.units, node.mask, name=name)
    return found


def _schema(circuit: Circuit, schema: Schema) -> Schema:
    """The schema with the families of a circuit: of several inputs of a column, it takes the narrowest family."""
    pairs = zip(schema.columns, circuit.families, strict=True)
    return Schema(tuple(replace(column, family=family) for column, family in pairs), schema.ignored)


def _places(own: Schema, first: Schema) -> list[int]:
    """Where each column of a model is in the first one's order."""
    if own.names is None or first.names is None:
        return list(range(len(own)))
    return [first.names.index(name) for name in own.names]


def _checked(models: Sequence[Model]) -> list[Model]:
    """The models as a list; a mixture is of densities only."""
    given: object = models
    if not isinstance(given, Sequence) or not given:
        raise OptionError(f"mix takes a list of at least one Model, not {given!r}")
    for number, model in enumerate(given):
        if not isinstance(model, Model):
            raise OptionError(f"mix takes models only; member {number} is {type(model).__name__}")
        if model.circuit.outputs != 1:
            raise StructureError(f"mix takes circuits of one output; member {number} has {model.circuit.outputs}")
    return list(given)


def _normalised(weights: Sequence[float] | Floats | None, count: int) -> Floats:  # (M,)
    if weights is None:
        return np.full(count, 1 / count)
    try:
        given = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        given = np.full(1, np.nan)
    if given.shape != (count,) or not np.isfinite(given).all() or (given < 0).any() or not given.sum() > 0:
        raise OptionError(
            f"weights must be {counted(count, 'number')} >= 0, one for each model, not all zero, not {weights!r}"
        )
    shares: Floats = given / given.sum()
    return shares


def _check_columns(first: Schema, other: Schema, number: int) -> None:
    """Refuse a member whose columns are others than those of member 0; the error names the difference."""
    who = f"member {number} cannot be mixed with member 0"
    if len(first) != len(other):
        raise StructureError(f"{who}: it has {counted(len(other), 'column')}, not {len(first)}")
    if first.names is not None and other.names is not None:
        lacking = [name for name in first.names if name not in other.names]
        if lacking:
            more = next(name for name in other.names if name not in first.names)
            raise StructureError(f"{who}: it has no column {lacking[0]!r}, but a column {more!r}")
    for place, column in zip(_places(other, first), other.columns, strict=True):
        difference = _difference(first.columns[place], column)
        if difference is not None:
            label = column_label(first.names, place)
            raise StructureError(f"{who}: {label} {difference}; build all circuits with the same schema=")


def _difference(first: Column, other: Column) -> str | None:
    """Why the values of two columns do not mean the same; None if they do."""
    if first.coding != other.coding:
        return f"is coded as {other.coding!r}, not as {first.coding!r}"
    if first.unseen_share != other.unseen_share:
        return f"keeps {other.unseen_share:g} for unseen values, not {first.unseen_share:g}"
    one, two = first.family, other.family
    if one.discrete != two.discrete or not same_values(one.support(), two.support()):
        return f"is {two!r}, not {one!r}"
    return None
