"""A checked circuit: its nodes in topological order, their scopes' sizes and depths."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from circurve.cards import card, facts_table
from circurve.errors import StructureError
from circurve.graph.checks import check_scopes, name_of, topological_order
from circurve.graph.drawing import MAX_DRAWN, Drawing, draw
from circurve.graph.nodes import Input, Node, Product, Sum
from circurve.inputs import Bernoulli, Binomial, Categorical, Family
from circurve.inputs.common import LARGEST_WHOLE
from circurve.schema import Schema
from circurve.words import counted

__all__ = ["Circuit", "Summary"]

LIMITED = (Bernoulli, Binomial, Categorical)
"""Families that take the values of their support, in ascending order, and no others."""


@dataclass(frozen=True)
class Summary:
    """Counts that describe a circuit; `str()` of it is a readable paragraph."""

    variables: int
    roots: int
    inputs: int
    products: int
    sums: int
    input_units: int
    product_units: int
    sum_units: int
    edges: int
    parameters: int
    depth: int
    sum_depth: int

    def in_words(self) -> dict[str, str]:
        """What is counted, and the count as text."""
        return {
            "variables": f"{self.variables:,}",
            "roots": f"{self.roots:,}",
            "inputs": f"{counted(self.inputs, 'node')}, {counted(self.input_units, 'unit')}",
            "products": f"{counted(self.products, 'node')}, {counted(self.product_units, 'unit')}",
            "sums": f"{counted(self.sums, 'node')}, {counted(self.sum_units, 'unit')}",
            "sum edges": f"{self.edges:,}",
            "parameters": f"{self.parameters:,}",
            "depth": f"{self.depth:,} ({counted(self.sum_depth, 'sum')})",
        }

    def __str__(self) -> str:
        return "\n".join(f"{label:<12}{text}" for label, text in self.in_words().items())


@dataclass(frozen=True, eq=False)
class Circuit:
    """A smooth and decomposable circuit over variables 0..V-1, checked when it is made.

    Parameters
    ----------
    roots : Node or iterable of Node
        One node, or several (one for each class); every unit of a root is one output.
    nodes : list of Node, optional
        All nodes that you built; a node that cannot be reached from a root is then an error.
    schema : Schema, optional
        What the variables mean: names, categories, dates; its families are those of the inputs.

    Raises
    ------
    StructureError
        If children of a sum have different variables, children of a product share one, or a node is not reached.

    Examples
    --------
    >>> import circurve as cc
    >>> rain, wind = (cc.Input(v, cc.Bernoulli(), units=2) for v in range(2))
    >>> circuit = cc.Circuit(cc.Sum(cc.Product([rain, wind])))
    >>> circuit
    <Circuit: 2 variables, 4 nodes, 1 output>
    >>> print(circuit.describe())
    variables   2
    roots       1
    inputs      2 nodes, 4 units
    products    1 node, 2 units
    sums        1 node, 1 unit
    sum edges   2
    parameters  6
    depth       2 (1 sum)
    """

    roots: tuple[Node, ...]
    nodes: tuple[Node, ...] = field(repr=False)
    """All nodes, children before parents."""

    scope_sizes: tuple[int, ...] = field(repr=False)
    """The number of variables below each node, in the order of `nodes`."""

    variables: int
    families: tuple[Family, ...] = field(repr=False)
    """The family of each variable; of several, the one that takes the fewest values: those fit all of them."""

    schema: Schema | None = field(repr=False)
    """What the columns of data mean; None: plain numbers without names."""

    def __init__(
        self, roots: Node | Iterable[Node], nodes: Sequence[Node] | None = None, schema: Schema | None = None
    ) -> None:
        listed = (roots,) if isinstance(roots, Input | Product | Sum) else tuple(roots)
        order = topological_order(listed, nodes)
        sizes, variables = check_scopes(order, listed)
        object.__setattr__(self, "roots", listed)
        object.__setattr__(self, "nodes", order)
        object.__setattr__(self, "scope_sizes", sizes)
        object.__setattr__(self, "variables", variables)
        object.__setattr__(self, "families", _families(order, variables))
        if schema is not None:
            _check_schema(schema, self.families)
        object.__setattr__(self, "schema", None if schema is None or schema.plain else schema)

    @property
    def outputs(self) -> int:
        """How many root units there are: 1 for a density, several for classes."""
        return sum(root.units for root in self.roots)

    @property
    def sums(self) -> tuple[Sum, ...]:
        """The sum nodes, children before parents."""
        return tuple(node for node in self.nodes if isinstance(node, Sum))

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The input nodes."""
        return tuple(node for node in self.nodes if isinstance(node, Input))

    @property
    def free_parameters(self) -> int:
        """How many numbers determine a distribution of this form: probabilities that sum to one count one less."""
        sums = sum(node.edges - node.units for node in self.sums)
        return sums + sum(n.units * (n.family.parameter_count - isinstance(n.family, Categorical)) for n in self.inputs)

    def name_of(self, node: Node) -> str:
        """What error messages call a node: its kind, with its own name or its position.

        Parameters
        ----------
        node : Node
            A node of this circuit.

        Returns
        -------
        str
            Kind and name, or kind and position in `nodes`; of an unnamed node of another circuit, the kind alone.

        Examples
        --------
        >>> circuit.name_of(circuit.roots[0]), circuit.name_of(cc.Sum(rain, name="wet"))
        ('Sum #3', "Sum 'wet'")
        """
        return name_of(node, self.nodes)

    def describe(self) -> Summary:
        """Counts by kind, units, parameters, edges, depth, sum depth.

        Returns
        -------
        Summary
            The counts as fields; `print` shows them as a list.

        Examples
        --------
        >>> circuit.describe().parameters
        6
        """
        inputs, sums = self.inputs, self.sums
        products = [node for node in self.nodes if isinstance(node, Product)]
        edges = sum(node.edges for node in sums)
        depth: dict[Node, int] = {}
        sum_depth: dict[Node, int] = {}
        for node in self.nodes:
            depth[node] = 1 + max((depth[c] for c in node.children), default=-1)
            below = max((sum_depth[c] for c in node.children), default=0)
            sum_depth[node] = below + isinstance(node, Sum)
        return Summary(
            variables=self.variables,
            roots=len(self.roots),
            inputs=len(inputs),
            products=len(products),
            sums=len(sums),
            input_units=sum(n.units for n in inputs),
            product_units=sum(n.units for n in products),
            sum_units=sum(n.units for n in sums),
            edges=edges,
            parameters=edges + sum(n.units * n.family.parameter_count for n in inputs),
            depth=max(depth[r] for r in self.roots),
            sum_depth=max(sum_depth[r] for r in self.roots),
        )

    def draw(self) -> Drawing:
        """A picture of a small circuit as SVG, with the root on top.

        Returns
        -------
        Drawing
            Notebooks show it; its method `save` writes it to a file.

        Raises
        ------
        StructureError
            If the circuit has more than 150 nodes, which would not be readable.

        Examples
        --------
        >>> str(circuit.draw())[:4]
        '<svg'
        """
        return draw(self.nodes, self.roots, None if self.schema is None else self.schema.names)

    def _repr_html_(self) -> str:
        parts = [facts_table(self.describe().in_words())]
        if len(self.nodes) <= MAX_DRAWN:
            parts.append("<p>draw() gives a picture.</p>")
        return card(f"Circuit over {counted(self.variables, 'column')}", *parts)

    def __reduce__(self) -> tuple[Callable[..., Circuit], tuple[tuple[Node, ...], tuple[Node, ...], Schema | None]]:
        """Pickled and copied node by node, children first: a deep circuit needs no deep recursion."""
        return _from_nodes, (self.nodes, self.roots, self.schema)

    def __repr__(self) -> str:
        counts = ((self.variables, "variable"), (len(self.nodes), "node"), (self.outputs, "output"))
        return f"<Circuit: {', '.join(counted(number, noun) for number, noun in counts)}>"


def _from_nodes(nodes: tuple[Node, ...], roots: tuple[Node, ...], schema: Schema | None = None) -> Circuit:
    return Circuit(roots, nodes, schema)


def _check_schema(schema: Schema, families: Sequence[Family]) -> None:
    if not isinstance(schema, Schema):
        raise StructureError(f"schema must be a Schema, not {type(schema).__name__}")
    if len(schema) != len(families):
        raise StructureError(
            f"the schema has {counted(len(schema), 'column')}, the circuit has {counted(len(families), 'variable')}"
        )
    for variable, (column, family) in enumerate(zip(schema.columns, families, strict=True)):
        if column.family != family:
            name = f" ({column.name!r})" if column.name is not None else ""
            raise StructureError(
                f"variable {variable}{name} is {column.family!r} in the schema, {family!r} in the circuit"
            )


def _families(nodes: Sequence[Node], variables: int) -> tuple[Family, ...]:
    """One family for each variable: a column has one kind of value, whatever the number of its inputs."""
    found: dict[int, Input] = {}
    for node in nodes:
        if not isinstance(node, Input):
            continue
        first = found.setdefault(node.variable, node)
        if type(first.family) is not type(node.family) and first.family.discrete != node.family.discrete:
            raise StructureError(
                f"variable {node.variable} is given to {first.family!r} by {name_of(first, nodes)} "
                f"and to {node.family!r} by {name_of(node, nodes)}: one is discrete, the other is not"
            )
        if first.family != node.family and _largest_value(node.family) < _largest_value(first.family):
            found[node.variable] = node
    return tuple(found[v].family for v in range(variables))


def _largest_value(family: Family) -> float:
    """The largest whole number that a family takes; infinite if there is none."""
    support = family.support()
    if type(family) in LIMITED and support is not None:
        return math.inf if support[-1] >= LARGEST_WHOLE else support[-1]
    if support is None or family.check_values(np.array([LARGEST_WHOLE])) is None:
        return math.inf
    return support[-1] if isinstance(support, range) else max(support)
