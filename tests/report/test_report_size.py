"""A page about a circuit of the size of bbc with 100 units stays below 5 MB."""

from __future__ import annotations

import numpy as np
import pytest

import circurve as cc
from circurve.report import conditionals


def test_a_page_for_1058_columns_and_100_units_is_below_5_mb(monkeypatch):
    rng = np.random.default_rng(0)
    rows = (rng.random((4, 1058)) < 0.2).astype(np.uint8)
    rows[:2] = [[0], [1]]
    circuit = cc.hmm(1058, 100)  # as many sums, weights and inputs as a hidden Chow-Liu tree
    model = cc.fit(circuit, rows, epochs=0).model
    share = 16
    most = conditionals.MAX_OPERATIONS
    monkeypatch.setattr(conditionals, "MAX_OPERATIONS", most / share)  # passes of minutes
    report = cc.report(model, rows)
    plain = report.page.plain
    assert len(plain["columns"]) == 1058
    assert len(report.page.explorer.total) == 105_701
    tried = sum(len(values) for values in report.page.playground.values)
    assert tried == pytest.approx(most / share / circuit.describe().edges, abs=1)
    from circurve.report.pack import json_for_html

    more = (share - 1) * len(json_for_html(plain["playground"]["influences"]))
    assert len(report.html.encode()) + more < 5e6
