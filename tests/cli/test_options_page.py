"""The page of options says what the program says."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_what_the_program_says(monkeypatch):
    pytest.importorskip("typer", minversion="0.29", reason="other versions word some types of options in another way")
    monkeypatch.syspath_prepend(str(DOCS))
    page = import_module("option_pages").options_page()
    for name in ("option_pages", "pages"):
        sys.modules.pop(name, None)
    assert page == (DOCS / "options.md").read_text(), "make it again: python docs/make_pages.py"
