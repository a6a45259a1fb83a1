"""What notebooks show of models, circuits, curvatures and results: escaped, small, without colours of its own."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

import circurve as cc

HOSTILE = "<img src=x onerror=alert(1)>"


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.text = [], set(), ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.seen.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += f"{data} "


@pytest.fixture(scope="module")
def fleet():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({HOSTILE: rng.integers(0, 2, 60), "b": rng.integers(0, 2, 60), "c": rng.integers(0, 2, 60)})
    runs = [cc.Run(seed=0), cc.Run(seed=1, label=HOSTILE)]
    return cc.fit_fleet(cc.hclt(table, 2), table, runs, valid=table[:20], epochs=2), table


def test_cards_are_well_formed_escaped_and_small(fleet):
    results, table = fleet
    model = results[0].model
    shown = [results, results[0], model, model.circuit, cc.curvature(model, table)]
    for thing in shown:
        html = thing._repr_html_()
        tags = Tags(html)
        assert tags.open == []
        assert tags.seen <= {"div", "p", "b", "table", "thead", "tbody", "tr", "td", "th"}
        assert len(html) < 6000
        assert "color:#" not in html  # a dark page has its own colours


def test_cards_tell_the_numbers(fleet):
    results, table = fleet
    text = Tags(results._repr_html_()).text
    assert "2 runs, 0 failed" in text
    assert f"{results[1].valid_ll:,.4f}" in text
    assert HOSTILE in text
    text = Tags(results[0]._repr_html_()).text
    assert f"{results[0].train_ll:,.4f} nats" in text
    assert "vanilla, seed 0" in text
    assert HOSTILE in Tags(results[0].model._repr_html_()).text
    curv = cc.curvature(results[0].model, table)
    text = Tags(curv._repr_html_()).text
    assert f"{curv.trace:,.4g}, mean over 60 rows" in text
    assert f"{curv.total.max() / curv.trace:.1%}" in text
    assert "sums 3 nodes" in " ".join(Tags(results[0].model.circuit._repr_html_()).text.split())


def test_report_is_a_function_and_a_package():
    import pickle

    import circurve.report

    assert cc.report is circurve.report
    assert callable(cc.report)
    assert pickle.loads(pickle.dumps(cc.report)) is circurve.report
