"""The examples, and the statements in README.md and docs, run and print what is written beside them."""

import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

from circurve.queries.questions import Questions
from printed import difference

DOCS = Path(__file__).parents[1] / "docs"
SCRIPTS = ("anomalies", "classify_with_holes", "own_pytorch", "synthetic_rows", "table_with_holes")
PAGES = ("README.md", "questions.md", "estimators.md", "files.md", "many-machines.md")
AGAIN = "if the new output is right, write it down: python docs/run_examples.py"


@pytest.fixture
def examples(monkeypatch):
    """The module that runs them."""
    monkeypatch.syspath_prepend(str(DOCS))
    yield import_module("run_examples")
    sys.modules.pop("run_examples", None)


def test_every_script_and_page_is_here(examples):
    assert tuple(script.stem for script in examples.SCRIPTS) == SCRIPTS
    assert tuple(page.name for page in examples.PAGES) == PAGES


def test_a_script_prints_what_is_written_beside_it(examples, tmp_path):
    for script, printed in examples.run_scripts(tmp_path).items():
        wrong = difference(printed, examples.output_file(script).read_text())
        assert wrong is None, f"{script.name}: {wrong}\n{AGAIN}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="the pages show the draws of a CPU")
@pytest.mark.parametrize("number", range(len(PAGES)), ids=PAGES)
def test_a_page_shows_what_its_statements_print(examples, number):
    results = examples.run_page(examples.PAGES[number].read_text())
    assert results
    for example, output in results:
        wrong = difference(output, example.want)
        assert wrong is None, f">>> {example.source}{wrong}\n{AGAIN}"


def test_output_is_put_after_the_statement(examples):
    code = ">>> 1 + 1\n3\n>>> x = [\n...     2]\n>>> x\n>>> x[1]\nIndexError\n"
    page = f"Text.\n\n```pycon\n{code}```\n\nMore:\n\n```\n3\n```\n"
    wanted = page.replace("\n3\n>>> x =", "\n2\n>>> x =").replace(">>> x\n", ">>> x\n[2]\n")
    wanted = wanted.replace("\nIndexError\n", "\nIndexError: list index out of range\n")
    assert examples.page_with_output(page) == wanted
    assert examples.page_with_output(wanted) == wanted


def test_an_unexpected_error_is_raised(examples):
    with pytest.raises(ZeroDivisionError):
        examples.run_page(">>> 1 / 0\n")


def test_every_question_has_an_example():
    page = (DOCS / "questions.md").read_text()
    asked = [name for name in dir(Questions) if not name.startswith("_") and callable(getattr(Questions, name))]
    assert len(asked) > 10
    assert [name for name in asked if f"model.{name}(" not in page] == []


@pytest.mark.parametrize(
    ("found", "same"),
    [
        ("Oslo  301.9 on 2024-01-30, 12 of 14", True),
        ("Oslo 302.0 on 2024-02-01, 12 of 14", True),
        ("Rome 302.0 on 2024-01-31, 12 of 14", False),
        ("Oslo 330.0 on 2024-01-31, 12 of 14", False),
        ("Oslo 302.0 on 2024-02-20, 12 of 14", False),
        ("Oslo 302.0 on 2024-01-31, 13 of 14", False),
        ("Oslo 302.0 on 2024-01-31, 12 of 14\nmore", False),
        ("Oslo -302.0 on 2024-01-31, 12 of 14", False),
        ("Oslo nan on 2024-01-31, 12 of 14", False),
    ],
)
def test_words_are_compared_exactly_and_numbers_nearly(found, same):
    assert (difference(found, "Oslo 302.0 on 2024-01-31, 12 of 14") is None) is same
