"""`--report` of curvature and fit, and the page of the demo."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from cli_helpers import error_line

from circurve.cli import demo


def data_of(path):
    return json.loads(re.search(r'id="data">(.*?)</script>', Path(path).read_text(encoding="utf-8"), re.S)[1])


@pytest.fixture
def parts(rows, folder):
    np.savez("parts.npz", train=rows[:80], valid=rows[80:90], test=rows[90:])
    return "parts.npz"


def test_curvature_opens_with_the_conclusion_of_the_page(invoke, answer, model, parts):
    report = answer(f"curvature {model} {parts} --report page.html")
    assert report["report"] == "page.html"
    page = data_of("page.html")
    assert page["title"] == "parts"
    told = [f"{finding['headline']} {finding['text']}" for finding in page["findings"]]
    assert report["findings"] == told
    assert "the 10 validation rows" in told[0]
    result = invoke(f"curvature {model} {parts}")
    text = " ".join(result.stdout.split())
    assert text.index(told[0]) < text.index("trace (sharpness)")
    assert all(sentence in text for sentence in told)
    assert max(len(line) for line in result.stdout.splitlines()) <= 80
    assert unescape(told[1]) in unescape(Path("page.html").read_text(encoding="utf-8")).replace("</strong><p>", " ")


def test_parts_other_than_training_are_named(answer, model, parts, table):
    for options, start in (
        (f"{parts} --split valid", "The 10 validation rows score"),
        (f"{parts} --split test", "The 10 test rows score"),
        (f"{parts} --split all", "The 100 rows score"),
        (f"{table} --split test", "The 10 test rows score"),
    ):
        report = answer(f"curvature {model} {options} --report page.html")
        assert report["findings"][0].startswith(start)
        assert data_of("page.html")["tiles"][0]["label"].removesuffix(" score") in ("validation", "test", "measured")


def test_the_table_of_the_training_is_compared_with_its_validation_rows(answer, model, table):
    first = answer(f"curvature {model} {table}")["findings"][0]
    assert "The 80 training rows score" in first
    assert "the 10 validation rows" in first


def test_fit_writes_a_page_with_its_training_curves(answer, invoke, table):
    report = answer(f"fit {table} --units 2 --epochs 3 --report fit.html")
    assert report["report"] == "fit.html"
    page = data_of("fit.html")
    assert page["training"][0]["epochs"] == [1, 2, 3]
    assert [tile["label"] for tile in page["tiles"]][:2] == ["training score", "validation score"]
    assert float(page["tiles"][0]["value"].replace("\u2212", "-")) == pytest.approx(report["train_ll"], abs=0.006)
    assert "page   " in invoke(f"fit {table} --units 2 --epochs 1 --report fit.html").stdout


def test_pages_that_cannot_be_written_are_refused_early(invoke, model, table):
    assert "--report page.txt: unknown kind of file '.txt'; use one of .html, .htm" in error_line(
        invoke(f"curvature {model} {table} --report page.txt")
    )
    assert "--report no/page.html: the folder" in error_line(invoke(f"fit {table} --report no/page.html"))
    assert "--report shows the training of one run" in error_line(invoke(f"fit {table} --ensemble 2 --report p.html"))


def test_the_demo_writes_a_page_and_says_where(invoke, answer, monkeypatch):
    for name, value in (("UNITS", 2), ("EPOCHS", 2), ("ROWS", 60)):
        monkeypatch.setattr(demo, name, value)
    result = invoke("demo")
    assert result.exit_code == 0, result.output
    assert "circurve-demo.html (open it in a browser)" in result.stdout
    page = data_of("circurve-demo.html")
    assert [run["name"] for run in page["training"]] == ["vanilla", "global, mu 0.1", "gated by max_norm, mu 0.1"]
    assert answer("demo --report other.html")["report"] == "other.html"
    assert data_of("other.html")["title"].startswith("digits: ")
