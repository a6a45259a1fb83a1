"""Every public name has a numpydoc docstring whose parameters are those of its signature, and examples that run."""

import re
import sys
from functools import cached_property
from importlib import import_module
from inspect import getdoc, isclass, isfunction, ismodule
from pathlib import Path

import pytest
import torch
from numpydoc.docscrape import get_doc_object
from numpydoc.validate import validate

import circurve as cc
from circurve.learning.history import FitResult, FleetResult
from circurve.report.build import Report
from printed import difference

DOCS = Path(__file__).parents[1] / "docs"
NAMES = sorted(set(cc.__all__) - {"__version__"} | {f"plots.{name}" for name in cc.plots.__all__})
API = sorted((DOCS / "api").glob("*.md"))

CHECKS = {"GL07", "GL08", "PR01", "PR02", "PR03", "PR04", "PR07", "RT01", "EX01"}
"""Order of sections; a docstring; parameters: all, no others, in order, with type and text; returns; examples."""

RECORDS = ("Curvature", "Table")
"""Made by functions, not by hand: their fields are documented one by one."""


def public(name):
    """What a public name stands for; the packages `curvature` and `report` are called like their functions."""
    if name.startswith("plots."):
        return getattr(cc.plots, name.removeprefix("plots."))
    found = getattr(cc, name)
    return getattr(found, name) if name in ("curvature", "report") else found


def methods_of(found):
    """The public methods of a class that this package defines, by name."""
    kept = {}
    for base in reversed(found.__mro__):
        if base.__module__.startswith("circurve"):
            members = {name: getattr(member, "__func__", member) for name, member in vars(base).items()}
            kept |= {name: member for name, member in members.items() if isfunction(member) and name[0] != "_"}
    return kept


def own_methods(found):
    """Those of `methods_of` that a class does not share with `Model`."""
    return {name: method for name, method in methods_of(found).items() if methods_of(cc.Model).get(name) is not method}


def properties_of(found):
    """The public properties of a class that this package defines, by name."""
    bases = [base for base in reversed(found.__mro__) if base.__module__.startswith("circurve")]
    members = {name: member for base in bases for name, member in vars(base).items() if name[0] != "_"}
    return {name: member for name, member in members.items() if isinstance(member, property | cached_property)}


METHODS = sorted(methods_of(cc.Model))

CLASSES = {
    found.__name__: found
    for found in (
        cc.Circuit,
        cc.Curvature,
        FitResult,
        FleetResult,
        cc.Ensemble,
        cc.Models,
        cc.Schema,
        cc.Column,
        cc.Table,
        cc.Stream,
        cc.CircuitModule,
        cc.Run,
        Report,
        cc.DensityEstimator,
        cc.CircuitClassifier,
        cc.CircuitImputer,
        cc.OutlierDetector,
    )
}
"""The classes besides `Model` whose methods are documented one by one; an example is not required of each."""

ONE_LINE = {
    "Curvature": {"by", "save", "to_bytes", "with_local"},
    "Schema": {"of"},
    "Column": {"from_json"},
    "Table": {"span", "take"},
}
"""Methods without sections: their files have no lines left for them."""

OTHER_METHODS = [
    (owner, name) for owner in CLASSES for name in sorted(own_methods(CLASSES[owner]).keys() - ONE_LINE.get(owner, ()))
]


@pytest.fixture(scope="module")
def examples():
    """The module that runs the statements of pages."""
    sys.path.insert(0, str(DOCS))
    yield import_module("run_examples")
    sys.path.remove(str(DOCS))
    sys.modules.pop("run_examples", None)


@pytest.mark.parametrize("name", NAMES)
def test_a_docstring_follows_numpydoc(name):
    found = public(name)
    wrong = [] if ismodule(found) else validate(get_doc_object(found))["errors"]
    caught = isclass(found) and issubclass(found, Exception)  # users catch these, and do not make them
    skipped = {"PR01"} if name in RECORDS or caught else {"RT01"} if isclass(found) else set()
    assert [error for error in wrong if error[0] in CHECKS - skipped] == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="the examples show the numbers of a CPU")
@pytest.mark.parametrize("name", NAMES)
def test_the_examples_of_a_docstring_run(examples, name):
    _, found, text = getdoc(public(name)).partition("\nExamples\n--------\n")
    assert found, f"{name} has no section Examples"
    results = examples.run_page(text + "\n")
    assert results
    for example, output in results:
        wrong = difference(output, example.want)
        assert wrong is None, f">>> {example.source}{wrong}"


@pytest.mark.parametrize("name", METHODS)
def test_the_docstring_of_a_method_of_a_model_follows_numpydoc(name):
    wrong = validate(get_doc_object(methods_of(cc.Model)[name]))["errors"]
    assert [error for error in wrong if error[0] in CHECKS] == []


@pytest.mark.parametrize(("owner", "name"), OTHER_METHODS)
def test_the_docstring_of_a_method_of_another_class_follows_numpydoc(owner, name):
    wrong = validate(get_doc_object(own_methods(CLASSES[owner])[name]))["errors"]
    assert [error for error in wrong if error[0] in CHECKS - {"EX01"}] == []


@pytest.mark.parametrize("owner", ONE_LINE)
def test_only_methods_without_sections_are_listed_as_such(owner):
    found = own_methods(CLASSES[owner])
    assert [name for name in ONE_LINE[owner] if not getdoc(found[name]) or "\n---" in getdoc(found[name])] == []


@pytest.mark.parametrize("owner", CLASSES)
def test_every_property_has_a_docstring(owner):
    found = properties_of(CLASSES[owner])
    assert [name for name, member in found.items() if not (member.__doc__ or "").strip()] == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="the examples show the numbers of a CPU")
@pytest.mark.parametrize("owner", CLASSES)
def test_the_examples_of_methods_of_another_class_run_after_those_of_the_class(examples, owner):
    docstrings = [getdoc(CLASSES[owner]), *(getdoc(found) for found in own_methods(CLASSES[owner]).values())]
    results = examples.run_page("\n\n".join(text.partition("\nExamples\n--------\n")[2] for text in docstrings) + "\n")
    assert results or all(">>>" not in text for text in docstrings)
    for example, output in results:
        wrong = difference(output, example.want)
        assert wrong is None, f">>> {example.source}{wrong}"


@pytest.mark.skipif(torch.cuda.is_available(), reason="the examples show the numbers of a CPU")
def test_the_examples_of_methods_run_after_those_of_their_class(examples):
    docstrings = [getdoc(cc.Model), *(getdoc(found) for found in methods_of(cc.Model).values())]
    results = examples.run_page("\n\n".join(text.partition("\nExamples\n--------\n")[2] for text in docstrings) + "\n")
    assert len(results) > 2 * len(METHODS)
    for example, output in results:
        wrong = difference(output, example.want)
        assert wrong is None, f">>> {example.source}{wrong}"


def test_the_package_curvature_has_an_example_too(examples):
    results = examples.run_page(cc.curvature.__doc__)
    assert [difference(output, example.want) for example, output in results] == [None] * 6


def test_the_table_of_what_works_where_is_current(examples):
    made = import_module("make_support").support_page()
    for name in ("make_support", "pages"):
        sys.modules.pop(name, None)
    assert made == (DOCS / "support.md").read_text(), "write it again: python docs/make_support.py"


def test_every_public_name_is_on_one_page_of_the_reference():
    lines = [line.strip() for page in API for line in page.read_text().splitlines()]
    listed = [line.partition(":: ")[2] for line in lines if line.startswith((".. auto", ".. py:data"))]
    assert {f"circurve.{name}" for name in cc.__all__} - set(listed) == set()
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_to_files_lead_somewhere(name):
    page = DOCS.parent / name
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    local = [link for link in links if "://" not in link]
    assert local or name == "CHANGELOG.md"
    assert [link for link in local if not (DOCS.parent / link).exists()] == []
