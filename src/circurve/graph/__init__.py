"""What a circuit is: nodes, the circuit, and its structural checks."""

from circurve.graph.circuit import Circuit, Summary
from circurve.graph.nodes import Input, Node, Product, Sum

__all__ = ["Circuit", "Input", "Node", "Product", "Sum", "Summary"]
