"""The tables in docs are what the committed result files say."""

import json
import shutil
import sys
from importlib import import_module
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture
def tables(monkeypatch):
    """The module that writes them."""
    monkeypatch.syspath_prepend(str(DOCS))
    yield import_module("make_tables")
    for name in ("make_tables", "comparison", "pages"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", ["../README.md", "questions.md", "estimators.md", "tables.md"])
def test_a_page_has_the_numbers_of_the_result_files(tables, name):
    text = (DOCS / name).read_text()
    assert tables.PART.search(text)
    assert tables.written(text) == text, "write it again: python docs/make_tables.py"


def test_every_part_is_on_a_page(tables):
    found = [part[2] for name in tables.PAGES for part in tables.PART.finditer((DOCS / name).read_text())]
    assert sorted(found) == sorted(tables.PARTS)


def test_rates_on_a_gpu_are_added_where_they_were_measured(tables, tmp_path, monkeypatch):
    file = "queries.json"
    shutil.copy(tables.RESULTS / file, tmp_path / file)
    results = json.loads((tmp_path / file).read_text())
    for module in ("make_tables", "pages"):
        monkeypatch.setattr(f"{module}.RESULTS", tmp_path)
    before = tables.speed()
    assert "PyJuice" not in before
    results["environment"]["gpu"] = "GPU Z"
    results["results"]["versions"] = {"pyjuice": "9.9"}
    for size in results["results"]["sizes"]:
        del size["versions"]
        for task in ("sample", "conditional"):
            peer = {**size[task].pop("spflow"), "times_slower_per_row": 12.34}
            size[task] = {"circurve": size[task]["circurve"], "pyjuice": peer}
    (tmp_path / "queries_cuda.json").write_text(json.dumps(results))
    after = tables.speed()
    assert after.startswith(before)
    assert "(12.3 x slower)" in after
    assert "PyJuice 9.9. " in after
    assert "on GPU Z" in after


def test_ties_go_to_the_circuit_and_losses_are_named(tables):
    def scores(**means):
        return {name: {"error": {"mean": mean, "stderr": 0.1}} for name, mean in means.items()}

    found = {
        "results": {"tables": {"a": scores(own=1, peer=1), "b": scores(own=2, peer=1), "c": scores(own=1, peer=0.95)}}
    }
    said = tables.verdict(found, "error", min, "own")
    assert said.startswith("The circuit has the best mean on 1 of 3 tables: a (level with peer). It is behind on ")
    assert "b (2.000 against 1.000 of peer); c (1.000 against 0.950 of peer, level)" in said
