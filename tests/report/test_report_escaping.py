"""Strings of the data cannot become markup, and a page loads nothing."""

from __future__ import annotations

import base64
import hashlib
import html
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_helpers import HOSTILE, Elements

from circurve.report.pack import json_for_html, plain


def test_hostile_names_and_values_stay_data(made):
    elements = Elements(made.report.html)
    assert [tag for tag, _ in elements.found].count("script") == 2
    assert not any("onerror" in attributes for _, attributes in elements.found)
    assert HOSTILE in [column["name"] for column in made.data["columns"]]
    assert "<b>Kyoto</b>" in made.data["columns"][1]["labels"]
    assert "alert(1)</script>" not in made.report.html
    assert "\u2028" not in made.report.html


def test_nothing_is_loaded_and_only_our_script_runs(made):
    elements = Elements(made.report.html)
    for tag, attributes in elements.found:
        assert "src" not in attributes
        assert tag not in ("link", "img", "iframe", "object", "embed", "base", "form")
        assert attributes.get("href", "#").startswith("#")
    policies = [a["content"] for _, a in elements.found if a.get("http-equiv") == "Content-Security-Policy"]
    digest = base64.b64encode(hashlib.sha256(elements.scripts[1].encode()).digest()).decode()
    assert policies[0].startswith("default-src 'none'; ")
    assert f"script-src 'sha256-{digest}'" in policies[0]


def test_what_a_part_holds_is_not_read_as_a_template(made):
    from dataclasses import replace

    from circurve.report.page import render

    text = render(replace(made.report.page, title="{{data}} {{script}}"))
    assert f"<h1>{html.escape('{{data}} {{script}}')}</h1>" in text


@given(st.recursive(st.text() | st.integers() | st.booleans() | st.none(), lambda inner: st.lists(inner, max_size=3)))
def test_json_for_html_reads_back_and_holds_no_markup(value):
    text = json_for_html(value)
    assert json.loads(text) == value
    assert not set("<>&\u2028\u2029") & set(text)


def test_numbers_that_are_not_finite_are_null_and_vectors_keep_their_bits():
    assert plain([np.nan, -np.inf, 1.0, np.float32(0.25), np.int64(3)]) == [None, None, 1, 0.25, 3]
    for array in (np.array([1.5, np.pi]), np.array([1e-40, 3], np.float32), np.array([300], np.uint16)):
        packed = plain(array)
        back = np.frombuffer(base64.b64decode(packed["data"]), array.dtype)
        np.testing.assert_array_equal(back, array)
    with pytest.raises(KeyError):
        plain(np.array([1]))  # the page has no 64-bit whole numbers
