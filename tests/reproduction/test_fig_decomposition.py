from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from figure_records import round_trip

import circurve as cc
from circurve.plots.given import sum_tree
from circurve.reproduction.figures import FIGURES
from circurve.reproduction.spec import ReproduceOptions
from circurve.reproduction.trained_figures import describe_units, draw_decomposition

PARENTS = [-1, 0, 0, 1, 1, 2]


@pytest.fixture(scope="module")
def trained() -> tuple[cc.Circuit, cc.Curvature]:
    rng = np.random.default_rng(0)
    x = (rng.random((60, 1)) + rng.random((60, 6)) > 1).astype(np.uint8)
    circuit = cc.hclt(x, units=3, tree=PARENTS)
    model = cc.fit(circuit, x, epochs=3, device="cpu", progress=False).model
    return circuit, cc.curvature(model, x)


def test_tree_of_sums_is_the_tree_of_variables(trained: tuple[cc.Circuit, cc.Curvature]) -> None:
    sums, parents = sum_tree(trained[0])
    variable = [0 if node.name == "root" else int((node.name or "").split()[1]) for node in sums]
    assert sorted(variable) == list(range(6))
    for node, parent in enumerate(parents):
        assert PARENTS[variable[node]] == (-1 if parent < 0 else variable[parent])


def test_a_sum_with_two_parents_is_drawn_once() -> None:
    shared = cc.Sum(cc.Input(0, cc.Bernoulli(), 2), 2)
    left, right = (cc.Product([shared, cc.Input(1, cc.Bernoulli(), 2)]) for _ in range(2))
    sums, parents = sum_tree(cc.Circuit(cc.Sum([cc.Sum(left, 1), cc.Sum(right, 1)], 1)))
    assert len(sums) == 4
    assert parents.count(0) == 2
    assert parents.count(-1) == 1


def test_units_and_means_of_every_node(trained: tuple[cc.Circuit, cc.Curvature]) -> None:
    circuit, curv = trained
    data = describe_units(circuit, curv)
    sums, _ = sum_tree(circuit)
    assert data["all_units"] == len(curv) == len(data["units"]["node"]) == 16
    for i, ref in enumerate(curv.nodes):
        assert circuit.nodes[ref.node] is sums[data["units"]["node"][i]]
        assert data["units"]["unit"][i] == ref.unit
    np.testing.assert_allclose(data["units"]["total"], curv.total, rtol=1e-4)
    for node in range(6):
        own = np.array(data["units"]["node"]) == node
        np.testing.assert_allclose(data["means"]["local"][node], curv.local[own].mean(), rtol=1e-4)


def test_marked_units_keep_their_regime_in_a_sample_of_the_units(trained: tuple[cc.Circuit, cc.Curvature]) -> None:
    circuit, curv = trained
    whole, part = describe_units(circuit, curv), describe_units(circuit, curv, most=6)
    assert len(part["units"]["node"]) < 16
    assert part["all_units"] == 16
    assert set(part["marks"]) == {"A", "B", "C"}
    for letter in "ABC":
        for name in ("node", "unit", "flow_squared", "local", "total"):
            assert part["units"][name][part["marks"][letter]] == whole["units"][name][whole["marks"][letter]]
    figure = draw_decomposition(part)
    assert len(figure.axes[0].collections[1].get_array()) == 6  # type: ignore[arg-type]


def test_a_unit_without_use_is_never_marked(trained: tuple[cc.Circuit, cc.Curvature]) -> None:
    circuit, curv = trained
    dead = int(curv.local.argmax())
    used = np.arange(len(curv)) != dead
    data = describe_units(circuit, replace(curv, flow_squared=curv.flow_squared * used, total=curv.total * used))
    assert dead not in data["marks"].values()
    draw_decomposition(data)


@pytest.mark.parametrize("protocol", ["paper", "paper-own"])
def test_a_first_look_trains_on_the_embedded_data(protocol: str) -> None:
    parents = cc.chow_liu_tree(cc.load_dataset("digits").train).parents
    latents = len({*parents.tolist()} - {-1}) if protocol == "paper" else len(parents)  # of inner variables, or of all
    options = ReproduceOptions(protocol=protocol, quick=True, units=2, epochs=1, device="cpu")
    data = round_trip(FIGURES["fig-6"], [], options)
    assert data["dataset"] == "digits"
    assert len(data["parents"]) == latents
    assert "1 epoch" in data["notes"][0]
    assert "seed 0" in data["notes"][1]
    assert data["notes"][2].startswith("Marked units: A F^2")
