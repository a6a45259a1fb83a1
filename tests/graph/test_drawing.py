"""`circuit.draw()`: a readable picture of a small circuit, a clear error for a large one."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

import circurve as cc
from circurve.errors import StructureError
from circurve.graph.drawing import MAX_DRAWN

SVG = "{http://www.w3.org/2000/svg}"


def boxes(root):
    """Left, right and vertical middle of every shape with the text next to it, as far as it is known."""
    found = []
    for rect in root.iter(f"{SVG}rect"):
        x, y, width, height = (float(rect.get(key)) for key in ("x", "y", "width", "height"))
        found.append((x, x + width, y + height / 2))
    for circle in root.iter(f"{SVG}circle"):
        x, y, r = (float(circle.get(key)) for key in ("cx", "cy", "r"))
        found.append((x - r, x + r, y))
    return found


def test_all_nodes_are_drawn_by_name_and_none_covers_another():
    table = pd.DataFrame(
        {"<age>": [1.0, 2.5, 4.0, 0.5], "b & c": [0, 1, 1, 0], "a very long name of a column": [1, 0, 1, 0]}
    )
    circuit = cc.hclt(table, 2)
    drawing = circuit.draw()
    root = ElementTree.fromstring(drawing.svg)
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"<age>", "b & c", "a very long name …"} <= set(texts)
    assert texts.count("+") == len(circuit.sums)
    assert len(list(root.iter(f"{SVG}line"))) == sum(len(node.children) for node in circuit.nodes)
    shapes = boxes(root)
    assert len(shapes) == len(circuit.nodes)
    for i, (left, right, y) in enumerate(shapes):
        assert 0 <= left < right <= drawing.width
        assert 0 <= y <= drawing.height
        for other_left, other_right, other_y in shapes[i + 1 :]:
            assert y != other_y or right < other_left or other_right < left


@pytest.mark.parametrize("repetitions", [1, 2])
def test_circuits_that_share_nodes_are_drawn_without_overlap(repetitions):
    circuit = cc.random_binary_trees(6, 2, repetitions=repetitions)
    shapes = boxes(ElementTree.fromstring(circuit.draw().svg))
    rows = {}
    for left, right, y in shapes:
        rows.setdefault(y, []).append((left, right))
    for row in rows.values():
        row.sort()
        assert all(a[1] < b[0] for a, b in pairwise(row))


def test_columns_without_names_have_numbers_and_the_picture_is_saved(tmp_path):
    drawing = cc.mixture([cc.Bernoulli()] * 2, 3).draw()
    assert {"x0", "x1"} <= set(re.findall(r">(x\d)<", drawing.svg))
    drawing.save(tmp_path / "circuit.svg")
    assert (tmp_path / "circuit.svg").read_text(encoding="utf-8") == str(drawing)
    assert drawing.svg in drawing._repr_html_()


def test_a_large_circuit_is_refused_with_the_limit():
    circuit = cc.hclt(np.random.default_rng(0).integers(0, 2, (50, MAX_DRAWN)), 2)
    with pytest.raises(StructureError, match=rf"up to {MAX_DRAWN} nodes, and this one has \d+; circurve.report"):
        circuit.draw()
