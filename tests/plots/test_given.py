"""Plots of what a person has in hand: models, results of a training, fleets."""

import re
from dataclasses import replace

import numpy as np
import pytest
from plot_helpers import legend_texts, panels, render

import circurve as cc
from circurve import gates
from circurve.errors import OptionError
from circurve.learning import FleetResult
from circurve.plots.given import changes_of, curves_of, measured_tree, sum_tree

X = np.random.default_rng(0).integers(0, 2, (60, 5))
CIRCUIT = cc.hclt(X, units=3)
PARTS = {"valid": X[:20], "test": X[20:40], "progress": False, "batch_size": None}


@pytest.fixture(scope="module")
def result():
    return cc.fit(CIRCUIT, X, epochs=4, **PARTS)


@pytest.fixture(scope="module")
def fleet():
    methods = [cc.Vanilla(), cc.Global(0.1)]
    return cc.fit_fleet(CIRCUIT, X, [cc.Run(m, seed=s) for m in methods for s in range(2)], epochs=4, **PARTS)


def test_training_curves_of_a_result_show_its_history(result):
    figure = cc.plots.training_curves(result)
    (ax,) = panels(figure)
    drawn = {line.get_label(): np.asarray(line.get_ydata()) for line in ax.get_lines()}
    np.testing.assert_allclose(drawn["vanilla train"], [record.train_ll for record in result.history])
    np.testing.assert_allclose(drawn["vanilla test"], [record.test_ll for record in result.history])
    render(figure)


def test_training_curves_of_a_fleet_have_a_line_for_each_method(fleet):
    figure = cc.plots.training_curves({"digits": fleet, "again": fleet[0]})
    first, second = panels(figure)
    assert first.get_title(loc="left") == "digits" or first.get_title() == "digits"
    drawn = {line.get_label(): np.asarray(line.get_ydata()) for line in first.get_lines()}
    wanted = np.mean([[record.valid_ll for record in fleet[i].history] for i in (2, 3)], axis=0)
    np.testing.assert_allclose(drawn["global, mu 0.1 valid"], wanted)
    assert len(second.get_lines()) == 3
    assert {"vanilla", "global, mu 0.1", "train", "valid", "test"} <= set(legend_texts(figure))
    render(figure)


def test_runs_that_stopped_early_leave_the_others_their_epochs():
    short, long = (cc.fit(CIRCUIT, X, epochs=n, seed=n, progress=False) for n in (2, 5))
    curves = curves_of(FleetResult((short, long)))["vanilla"]
    assert np.isnan(curves["train"]).tolist() == [[False] * 2 + [True] * 3, [False] * 5]
    assert list(curves) == ["train"]
    render(cc.plots.training_curves({"a": {"m": curves}}))


@pytest.mark.parametrize("plot", ["concentration", "depth_profile"])
def test_panels_of_models_results_and_fleets(plot, result, fleet):
    draw = getattr(cc.plots, plot)
    record = cc.curvature(result.model, X)
    wanted = render(draw({"": record}))
    for given in (result, result.model, {"": result.model}):
        assert _same(render(draw(given, x=X)), wanted)
    assert _same(render(draw(record)), wanted)
    assert len(panels(draw(fleet, x=X))) == len(fleet)
    with pytest.raises(OptionError, match=r"depends on data: pass them too, as x=data.train"):
        draw(result)
    with pytest.raises(OptionError, match="takes a Model, FitResult, FleetResult or mapping of panels, not int"):
        draw(3)


def _same(one: str, other: str) -> bool:
    """Two drawings, apart from the names that SVG gives to its parts."""

    def plain(text: str) -> str:
        return re.sub(r'(id|href|clip-path|xlink:href)="[^"]*"', "", text)

    return plain(one) == plain(other)


def test_the_decomposition_of_a_model(result, fleet):
    wanted = render(cc.plots.decomposition(cc.curvature(result.model, X)))
    assert _same(render(cc.plots.decomposition(result, x=X)), wanted)
    assert _same(render(cc.plots.decomposition(result.model, x=X)), wanted)
    with pytest.raises(OptionError, match=r"shows one model: .* such as fleet.best\(\)"):
        cc.plots.decomposition(fleet, x=X)


def test_trees_of_a_model(result):
    for draw, count in ((cc.plots.tree_panels, 3), (cc.plots.circuit_panels, 4)):
        figure = draw(result, x=X)
        assert len(panels(figure)) == count
        render(figure)
        with pytest.raises(OptionError, match="depends on data"):
            draw(result.model)
        with pytest.raises(OptionError, match="or a Model with x="):
            draw([-1, 0])


def test_a_tree_needs_one_root():
    leaf = cc.Input(0, cc.Bernoulli(), 2)
    model = cc.Model.from_parameters(cc.Circuit([cc.Sum(leaf), cc.Sum(leaf)]), None, {leaf: [[0.2], [0.7]]})
    with pytest.raises(OptionError, match="one root that is a sum; this circuit has 2"):
        cc.plots.tree_panels(model, x=cc.Examples([[0], [1]], labels=[0, 1]))


def test_the_values_of_each_node_come_from_its_units(result):
    tree, record = measured_tree(result, X), cc.curvature(result.model, X)
    sums, _ = sum_tree(CIRCUIT)
    for number, values in enumerate(tree.by_node("local")):
        refs = [i for i, ref in enumerate(record.nodes) if CIRCUIT.nodes[ref.node] is sums[number]]
        np.testing.assert_array_equal(values, record.local[refs])


def test_node_selection_of_a_fleet():
    methods = [cc.Vanilla(), *(cc.Gated(0.2, gate=gates.top_fraction(q, by)) for q in (0.1, 0.5) for by in BOTH)]
    fleet = cc.fit_fleet(CIRCUIT, X, [cc.Run(m, seed=s) for m in methods for s in range(2)], epochs=3, **PARTS)
    changes, fractions = changes_of(fleet)
    assert fractions == (0.1, 0.5)
    assert changes["local"].shape == changes["total"].shape == (2, 2)
    assert changes["total"][1, 0] == fleet[2 + 2 * BOTH.index("total") + 1].test_ll - fleet[1].test_ll
    render(cc.plots.node_selection(fleet))
    with pytest.raises(OptionError, match="needs runs with Gated"):
        cc.plots.node_selection(cc.fit_fleet(CIRCUIT, X, [cc.Run()], epochs=1, **PARTS))
    with pytest.raises(OptionError, match=r"a run with Vanilla\(\) for each seed"):
        cc.plots.node_selection(cc.fit_fleet(CIRCUIT, X, [cc.Run(methods[1])], epochs=1, **PARTS))
    with pytest.raises(OptionError, match="needs panels and fractions="):
        cc.plots.node_selection({"a": {}})


BOTH = ("local", "total")


def test_nothing_to_draw():
    empty = replace(cc.fit(CIRCUIT, X, epochs=1, progress=False), history=())
    with pytest.raises(OptionError, match="no epoch to draw"):
        cc.plots.training_curves(empty)
