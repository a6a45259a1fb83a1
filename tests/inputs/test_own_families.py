"""Families that users write: registered, saved and loaded; what they lack is named, all of it at once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from scipy import stats

import circurve as cc
from circurve.errors import FileFormatError, OptionError, StructureError
from circurve.inputs import FAMILIES, Bernoulli, Family, families

PAGE = Path(__file__).parents[2] / "docs" / "families.md"


@pytest.fixture(autouse=True)
def clean_registry(monkeypatch):
    """Every test starts from the families of the package."""
    fresh = dict(FAMILIES)
    for module in ("circurve.inputs.families", "circurve.inputs", "circurve.persistence"):
        monkeypatch.setattr(f"{module}.FAMILIES", fresh)
    return fresh


def example(folder: Path, monkeypatch) -> dict[str, Any]:
    """The names that the example of the page leaves behind."""
    code = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(code, "families.md", "exec", dont_inherit=True), names)
    return names


def test_the_example_of_the_page_trains_saves_and_loads(tmp_path, monkeypatch):
    names = example(tmp_path, monkeypatch)
    model, same, x = names["model"], names["same"], names["waits"]
    np.testing.assert_array_equal(same.log_prob(x), model.log_prob(x))
    assert same.circuit.families == (names["Exponential"](),) * 2
    log_weights = np.log(model.weights(model.circuit.roots[0]))[0]  # (components,)
    terms = log_weights + sum(
        stats.expon.logpdf(x[:, [node.variable]], scale=1 / model.input_parameters(node)[:, 0])
        for node in model.circuit.inputs
    )
    np.testing.assert_allclose(model.log_prob(x), np.logaddexp.reduce(terms, axis=1), rtol=1e-4)
    alone = stats.expon.logpdf(x, scale=x.mean(0)).sum(1).mean()
    assert model.log_prob(x).mean() >= alone - 1e-3


def test_the_example_trains_by_gradient_descent_too(tmp_path, monkeypatch):
    names = example(tmp_path, monkeypatch)
    module, x = cc.torch_module(names["model"]), torch.from_numpy(names["waits"])
    module(x).mean().backward()
    assert all(bool(p.grad.isfinite().all()) for p in module.parameters())


def test_a_program_that_did_not_register_it_is_told_to(tmp_path, monkeypatch, clean_registry):
    example(tmp_path, monkeypatch)
    del clean_registry["exponential"]
    with pytest.raises(FileFormatError, match="unknown input family 'exponential'") as refusal:
        cc.load(tmp_path / "waits.safetensors")
    assert "if it is your own family, call circurve.register_family first" in str(refusal.value)


def test_a_family_that_was_not_registered_cannot_be_saved(tmp_path):
    class Coin(Bernoulli):
        name: ClassVar[str] = "coin"

    leaf = cc.Input(0, Coin(), name="leaf")
    model = cc.Model.from_parameters(cc.Circuit(leaf), None, {leaf: [[0.5]]})
    with pytest.raises(StructureError, match=r"Input 'leaf': .*; call circurve.register_family\(Coin\) first"):
        model.save(tmp_path / "m.safetensors")


def test_everything_that_is_missing_is_named_at_once():
    class Half(Family):
        discrete: ClassVar[bool] = True

        def mean(self, parameters):
            return parameters[..., 0]

    with pytest.raises(OptionError) as caught:
        cc.register_family(Half)
    text = str(caught.value)
    assert "Half is not complete" in text
    wanted = ["the property parameter_names", "a class attribute name", "the decorator @dataclass(frozen=True)"]
    methods = Family.__abstractmethods__ - {"mean", "parameter_names"}
    for part in wanted + [f"the method {name}" for name in methods]:
        assert part in text
    assert "method mean" not in text
    assert "discrete" not in text


@dataclass(frozen=True)
class Named(Bernoulli):
    """A complete family with a name to change."""

    name: ClassVar[str] = "named"


def test_registering_again_and_names_that_are_taken(clean_registry):
    assert cc.register_family(Named) is Named
    assert cc.register_family(Named) is Named
    again = dataclass(frozen=True)(
        type("Named", (Bernoulli,), {"name": "named", "__module__": __name__, "__annotations__": {}})
    )
    assert cc.register_family(again) is again
    assert clean_registry["named"] is again
    other = dataclass(frozen=True)(type("Other", (Bernoulli,), {"name": "named", "__module__": "elsewhere"}))
    with pytest.raises(OptionError, match=r"the name 'named' of Other is used by .*\.Named: choose another name"):
        cc.register_family(other)
    with pytest.raises(OptionError, match=r"the name 'bernoulli' of .* is used by circurve.inputs.bernoulli"):
        cc.register_family(dataclass(frozen=True)(type("Mine", (Bernoulli,), {"name": "bernoulli"})))


@pytest.mark.parametrize("wrong", [3, "exponential", int, Bernoulli()])
def test_what_is_no_family_is_refused(wrong):
    with pytest.raises(OptionError, match=r"takes a class derived from circurve.inputs.Family"):
        cc.register_family(wrong)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"name": "two words"}, "a class attribute name"),
        ({"name": "ok", "discrete": "yes"}, "a class attribute discrete"),
    ],
)
def test_class_attributes_are_checked(attributes, message):
    with pytest.raises(OptionError, match=message):
        cc.register_family(dataclass(frozen=True)(type("Odd", (Bernoulli,), attributes)))


@dataclass(frozen=True)
class Tuned(Bernoulli):
    """A family with hyperparameters of several kinds."""

    label: str = "a"
    grid: tuple[float, ...] = (1.0, 2.0)
    choice: object = None

    name: ClassVar[str] = "tuned"

    def __post_init__(self) -> None:
        if not self.grid:
            raise ValueError("grid is empty")


def test_hyperparameters_come_back_as_they_were():
    cc.register_family(Tuned)
    tuned = Tuned("b", (0.5, 1.5))
    assert families.family_from_json(families.family_to_json(tuned)) == tuned
    with pytest.raises(OptionError, match="model files hold numbers, text and tuples of them, not choice="):
        families.family_to_json(Tuned(choice=np.zeros(2)))
    with pytest.raises(FileFormatError, match="input family 'tuned': grid is empty"):
        families.family_from_json({"name": "tuned", "grid": []})
