"""Numbers and the nouns that they count."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import circurve as cc
from circurve.words import counted


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 units"), (1, "1 unit"), (2, "2 units"), (1000, "1,000 units"), (-1, "-1 units")]
)
def test_a_noun_is_singular_for_one_only(number, text):
    assert counted(number, "unit") == text


def test_other_plurals_are_given():
    assert [counted(n, "row has", "rows have") for n in (1, 2)] == ["1 row has", "2 rows have"]


def test_what_people_read_of_a_tiny_model_is_singular():
    circuit = cc.mixture(1, components=1)
    result = cc.fit(circuit, [[0], [1]], epochs=1, device="cpu")
    told = [repr(circuit), repr(result.model), str(circuit.describe()), circuit._repr_html_(), repr(circuit.roots[0])]
    told += [result.model._repr_html_(), repr(cc.Examples([[0], [1]])[:1])]
    wrong = re.compile(r"(?<![\d,.])(?<!x )1 [a-z]+s\b(?! [a-z]*s )")
    assert not [found for text in told for found in wrong.findall(text) if not found.endswith("ss")]


def test_no_message_counts_members_of_one_by_hand():
    """Places that write `row{'s' * (n != 1)}` have a helper."""
    sources = Path(cc.__file__).parent.rglob("*.py")
    assert not [path.name for path in sources if re.search(r"'s' \* \(|\"s\" \* \(", path.read_text("utf-8"))]
