"""docs/reliability.md is what the committed records say."""

import sys
from importlib import import_module
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_the_page_is_what_the_records_say(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    page = import_module("make_reliability").page()
    for name in ("make_reliability", "pages"):
        sys.modules.pop(name, None)
    assert page == (DOCS / "reliability.md").read_text(), "make it again: python docs/make_reliability.py"
    first = page.index("\n- ")
    assert "0 findings" not in page
    assert first < page.index("\n## ")
