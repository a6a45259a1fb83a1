"""Every public function and every command takes a memory budget, but for a few that have a reason not to."""

from __future__ import annotations

import inspect
from types import FunctionType

import pytest

import circurve as cc
from circurve.cli.program import COMMANDS, DATA_COMMANDS

NODES_ONLY = "makes a few hundred bytes for each node, and no parameters: the training that follows counts these"

WITHOUT = {
    "fully_factorized": NODES_ONLY,
    "hmm": NODES_ONLY,
    "mixture": NODES_ONLY,
    "random_binary_trees": NODES_ONLY,
    "register_family": "keeps a class in a dictionary",
}
"""Functions without a budget, and why."""

COMMANDS_WITHOUT = {
    "list": "counts the lines of data sets, one file at a time",
    "download": "writes to the disk piece by piece; a set of the collection has at most some megabytes",
}
"""Commands without a budget, and why."""

CLASSES_WITH = ("CircuitClassifier", "CircuitImputer", "DensityEstimator", "OutlierDetector")


def public_functions() -> dict[str, object]:
    found = {name: getattr(cc, name) for name in cc.__all__}
    callables = {name: value for name, value in found.items() if callable(value) and not isinstance(value, type)}
    return {n: v for n, v in callables.items() if isinstance(v, FunctionType) or hasattr(v, "__signature__")}


def takes_budget(function: object) -> bool:
    signature = inspect.signature(function)  # type: ignore[arg-type]
    if "memory_budget" in signature.parameters:
        return True
    return "memory_budget :" in (inspect.getdoc(function) or "") or "memory_budget, " in (
        inspect.getdoc(function) or ""
    )


def test_the_walk_finds_the_functions():
    found = public_functions()
    assert {"fit", "hclt", "curvature", "report", "load", "open_stream", "Examples"} <= set(found)
    assert not set(WITHOUT) - set(found)


@pytest.mark.parametrize("name", sorted(public_functions()))
def test_a_function_takes_a_memory_budget_or_has_a_reason_not_to(name):
    assert takes_budget(public_functions()[name]) != (name in WITHOUT)


@pytest.mark.parametrize("name", ["fit", "fit_fleet", "fit_ensemble", "fit_units"])
def test_a_training_checks_the_budget_that_its_docstring_names(name):
    rows = [[0, 1], [1, 0]] * 20
    first = (cc.mixture(2, components=2), rows) if name in ("fit", "fit_fleet") else (rows,)
    more = ([cc.Run()],) if name == "fit_fleet" else ()
    with pytest.raises(cc.MemoryLimitError, match="memory_budget=10 is less"):
        getattr(cc, name)(*first, *more, memory_budget=10, progress=False)


@pytest.mark.parametrize("name", CLASSES_WITH)
def test_an_estimator_has_a_memory_budget(name):
    assert "memory_budget" in getattr(cc, name)().get_params()


@pytest.mark.parametrize("command", [*COMMANDS, *DATA_COMMANDS], ids=lambda command: command.module + command.name)
def test_a_command_takes_a_memory_budget_or_has_a_reason_not_to(command):
    names = {parameter.name for parameter in command.parameters()}
    assert ("memory_budget" in names) != (command.name in COMMANDS_WITHOUT)
