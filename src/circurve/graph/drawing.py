"""A small circuit as a picture: the root on top, one row for each level, inputs with the names of their columns."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from os import PathLike
from pathlib import Path

from circurve.errors import StructureError
from circurve.graph.nodes import Input, Node, Product, Sum
from circurve.words import counted

__all__ = ["MAX_DRAWN", "Drawing", "draw"]

MAX_DRAWN = 150
"""Nodes of a circuit up to which a picture is readable."""

GAP, ROW, MARGIN = 24.0, 78.0, 26.0
RADIUS, HALF_BOX = 15.0, 13.0
COUNT_WIDTH = 44.0
"""Space for the number of units next to a node."""

LETTER = 7.0
"""The width of a letter, about."""

MAX_NAME = 18
SWEEPS = 8
SUM_COLOUR, PRODUCT_COLOUR, INPUT_COLOUR = "#0072b2", "#7a7f85", "#d55e00"


@dataclass(frozen=True)
class Drawing:
    """A picture as SVG text; notebooks show it."""

    svg: str = field(repr=False)
    width: float
    height: float

    def save(self, path: str | PathLike[str]) -> None:
        """Write the picture to an .svg file."""
        Path(path).write_text(self.svg, encoding="utf-8")

    def __str__(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        return f'<div style="overflow-x:auto">{self.svg}</div>'


def draw(nodes: Sequence[Node], roots: Sequence[Node], names: Sequence[str] | None) -> Drawing:
    """Nodes with children before parents. names: of the columns; without them column 3 is called x3."""
    if len(nodes) > MAX_DRAWN:
        raise StructureError(
            f"draw() shows circuits of up to {MAX_DRAWN} nodes, and this one has {len(nodes):,}; "
            "circurve.report(model, data) explores circuits of any size, describe() counts their nodes"
        )
    labels = {node: _label(node, names) for node in nodes}
    widths = {node: _width(node, labels[node]) for node in nodes}
    levels = _levels(nodes, roots)
    x = _positions(nodes, levels, widths)
    left = min(x[node] - widths[node] / 2 for node in nodes) - MARGIN
    right = max(x[node] + widths[node] / 2 for node in nodes) + MARGIN
    place = {node: (x[node] - left, MARGIN + ROW * levels[node]) for node in nodes}
    width, height = right - left, 2 * MARGIN + ROW * max(levels.values()) + 16
    lines = [_edge(place[node], place[child]) for node in nodes for child in node.children]
    shapes = [_shape(node, place[node], labels[node], widths[node]) for node in nodes]
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img" aria-label="A circuit of {len(nodes)} nodes" '
        f'font-family="system-ui, sans-serif" font-size="12">{"".join(lines)}{"".join(shapes)}</svg>'
    )
    return Drawing(svg, width, height)


def _label(node: Node, names: Sequence[str] | None) -> str:
    if isinstance(node, Sum):
        return "+"
    if isinstance(node, Product):
        return "\u00d7"
    name = f"x{node.variable}" if names is None else names[node.variable]
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}\u2026"


def _width(node: Node, label: str) -> float:
    """The width of a node's shape, with the text in it or next to it."""
    if isinstance(node, Input):
        return max(len(label) * LETTER + 16, COUNT_WIDTH)
    return 2 * (RADIUS + COUNT_WIDTH / 2)


def _levels(nodes: Sequence[Node], roots: Sequence[Node]) -> dict[Node, int]:
    """The longest way from a root; all edges lead down."""
    found = dict.fromkeys(nodes, 0)
    for node in reversed(nodes):
        for child in node.children:
            found[child] = max(found[child], found[node] + 1)
    return found


def _positions(nodes: Sequence[Node], levels: Mapping[Node, int], widths: Mapping[Node, float]) -> dict[Node, float]:
    """Leaves side by side in the order of a walk, others above the middle of their children; then pushed apart."""
    x: dict[Node, float] = {}
    end = 0.0
    for node in nodes:  # children first
        if node.children:
            x[node] = sum(x[child] for child in node.children) / len(node.children)
        else:
            x[node] = end + widths[node] / 2
            end += widths[node] + GAP
    parents: dict[Node, list[Node]] = {node: [] for node in nodes}
    for node in nodes:
        for child in node.children:
            parents[child].append(node)
    rows: dict[int, list[Node]] = {}
    for node in nodes:
        rows.setdefault(levels[node], []).append(node)
    for sweep in range(SWEEPS):
        for level in sorted(rows, reverse=sweep % 2 == 0):
            for node in rows[level]:
                near = [*node.children, *parents[node]]
                if near and sweep:
                    x[node] = 0.5 * x[node] + 0.5 * sum(x[other] for other in near) / len(near)
            _push_apart(rows[level], x, widths)
    return x


def _push_apart(row: list[Node], x: dict[Node, float], widths: Mapping[Node, float]) -> None:
    """Keep the order and the middle of a row, with room between neighbours."""
    row.sort(key=lambda node: x[node])
    wanted = sum(x[node] for node in row) / len(row)
    for before, node in pairwise(row):
        x[node] = max(x[node], x[before] + (widths[before] + widths[node]) / 2 + GAP)
    shift = wanted - sum(x[node] for node in row) / len(row)
    for node in row:
        x[node] += shift


def _edge(upper: tuple[float, float], lower: tuple[float, float]) -> str:
    return (
        f'<line x1="{upper[0]:.1f}" y1="{upper[1]:.1f}" x2="{lower[0]:.1f}" y2="{lower[1] - HALF_BOX:.1f}" '
        'stroke="#8a9299" stroke-width="1"/>'
    )


def _shape(node: Node, place: tuple[float, float], label: str, width: float) -> str:
    x, y = place
    text = html.escape(label)
    units = counted(node.units, "unit")
    kind = type(node.family).__name__ if isinstance(node, Input) else type(node).__name__
    title = html.escape(f"{kind} {node.name or ''}: {units}".replace(" :", ":"))
    note = 'font-size="10" fill="#7a838c"'
    if isinstance(node, Input):
        box = (
            f'<rect x="{x - width / 2:.1f}" y="{y - HALF_BOX:.1f}" width="{width:.1f}" height="{2 * HALF_BOX:.0f}" '
            f'rx="6" fill="{INPUT_COLOUR}" fill-opacity="0.16" stroke="{INPUT_COLOUR}"/>'
        )
        word = f'<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle" fill="currentColor">{text}</text>'
        count = f'<text x="{x:.1f}" y="{y + 27:.1f}" text-anchor="middle" {note}>{units}</text>'
    else:
        colour = SUM_COLOUR if isinstance(node, Sum) else PRODUCT_COLOUR
        box = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS:.0f}" fill="{colour}"/>'
        word = f'<text x="{x:.1f}" y="{y + 6:.1f}" text-anchor="middle" font-size="18" fill="#ffffff">{text}</text>'
        # above the middle: edges to children leave below it, those from parents end at the top of the disc
        count = f'<text x="{x + RADIUS + 3:.1f}" y="{y - 4:.1f}" {note}>{units}</text>'
    return f"<g><title>{title}</title>{box}{word}{count}</g>"
