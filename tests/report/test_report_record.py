"""The numbers of a page are those of the library."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from page_helpers import HOSTILE, data_of, log_prob

import circurve as cc
from circurve.curvature import reversals
from circurve.errors import DataError, OptionError
from circurve.report import ReportOptions


def test_units_have_the_numbers_of_the_curvature(made):
    model, shown = made.result.model, made.data["explorer"]
    curv = cc.curvature(model, made.train)
    ours = {(ref.name, ref.unit): i for i, ref in enumerate(curv.nodes)}
    order = [ours[node["name"], unit] for node in shown["nodes"] for unit in range(node["units"])]
    assert sorted(order) == list(range(len(curv)))
    for name, expected in (
        ("flow_squared", curv.flow_squared),
        ("local", curv.by("geometric")),
        ("total", curv.total),
        ("mean_trace", curv.local),
    ):
        np.testing.assert_allclose(shown[name], expected[order], rtol=1e-6)
    assert shown["trace"] == pytest.approx(curv.trace)
    depths = np.repeat([node["depth"] for node in shown["nodes"]], [node["units"] for node in shown["nodes"]])
    np.testing.assert_allclose(depths, curv.depth_mean[order])


def test_the_reversals_are_those_of_the_library(made):
    shown = made.data["explorer"]
    curv = cc.curvature(made.result.model, made.train).with_local("geometric")
    names = [(node["name"], unit) for node in shown["nodes"] for unit in range(node["units"])]
    expected = reversals(curv, 10)
    assert [(names[p["used"]], names[p["sharper"]]) for p in shown["reversals"]] == [
        ((p.i.name, p.i.unit), (p.j.name, p.j.unit)) for p in expected.extreme
    ]
    assert shown["reversed_share"] == pytest.approx(expected.share)


def test_children_have_the_weights_of_the_model(made):
    model, shown = made.result.model, made.data["explorer"]
    weights, start = shown["weights"], 0
    assert weights["complete"]
    for node in shown["nodes"]:
        table = model.weights(node["name"])
        for unit in range(node["units"]):
            span = slice(*weights["start"][start + unit : start + unit + 2])
            assert sorted(weights["child"][span]) == list(range(table.shape[1]))
            np.testing.assert_allclose(weights["weight"][span], table[unit][weights["child"][span]], rtol=1e-6)
            assert (np.diff(weights["weight"][span]) <= 0).all()
        start += node["units"]


def test_sums_know_their_columns_and_the_sums_below(made):
    shown, names = made.data["explorer"]["nodes"], list(made.train.columns)
    assert sorted(column for node in shown for column in node["own"]) == list(range(len(names)))
    assert [node["parent"] for node in shown].count(-1) == 1
    for number, node in enumerate(shown):
        assert all(shown[child]["parent"] == number for child in node["below"])
        below, columns = [number], set()
        for at in below:
            below += shown[at]["below"]
            columns |= set(shown[at]["own"])
        assert len(columns) == node["scope_size"]
    labels = [node["label"] for node in shown]
    assert labels[0] == "the root"
    assert f"the sum above {HOSTILE!r}" in labels or shown[0]["own"] == [names.index(HOSTILE)]


def test_a_large_circuit_keeps_the_weights_of_the_nodes_that_add_most(made):
    page = cc.report(made.result.model, made.train, options=ReportOptions(max_weights=24))
    weights = data_of(page.html)["explorer"]["weights"]
    assert not weights["complete"]
    total = made.data["explorer"]["total"]
    kept = {p[key] for p in made.data["explorer"]["reversals"] for key in ("used", "sharper")}
    assert len(weights["unit"]) == 24 // 8
    assert set(weights["unit"]) <= kept | set(np.argsort(-total)[:3])


def test_marginals_are_those_of_model_and_data_and_the_worst_comes_first(made):
    model, columns = made.result.model, made.data["columns"]
    distances = [m["distance"] for m in made.data["marginals"]]
    assert distances == sorted(distances, reverse=True)
    assert sorted(m["column"] for m in made.data["marginals"]) == list(range(len(columns)))
    for marginal in made.data["marginals"]:
        name = columns[marginal["column"]]["name"]
        values = made.train[name].dropna()
        assert marginal["rows"] == len(values)
        assert sum(marginal["data"]) == pytest.approx(1)
        assert sum(marginal["model"]) == pytest.approx(1)
        distance = np.abs(np.subtract(marginal["data"], marginal["model"])).sum() / 2
        assert marginal["distance"] == pytest.approx(distance, rel=1e-5)
        if marginal["labels"] is not None:
            frame = model.distribution(name)
            assert marginal["model"] == pytest.approx(frame["probability"].tolist(), rel=1e-4)
            texts = values.astype(str).str.lower() if name == "member" else values.astype(str)
            assert marginal["data"] == pytest.approx([(texts == label).mean() for label in marginal["labels"]])


def test_the_density_and_the_bins_of_numbers_are_those_of_the_model(made):
    model = made.result.model
    for marginal in made.data["marginals"]:
        name = made.data["columns"][marginal["column"]]["name"]
        if name not in ("age", "visits"):
            continue
        edges = marginal["edges"]
        inner = range(1, len(edges) - 2)  # the outer bins hold the tails
        found = [model.interval({name: (edges[i], edges[i + 1])}) for i in inner]
        assert [marginal["model"][i] for i in inner] == pytest.approx(found, rel=1e-3, abs=1e-6)
        values = made.train[name]
        counts = [((values >= low) & (values < high)).mean() for low, high in pairwise(edges)]
        assert marginal["data"][:-1] == pytest.approx(counts[:-1])
        if marginal["grid"] is not None:
            at = [model.conditional({name: x}) for x in marginal["grid"][::20]]
            assert marginal["density"][::20] == pytest.approx(at, rel=1e-4)


def test_chance_is_the_distance_to_expect_of_rows_drawn_from_the_model():
    from circurve.report.marginals import distances

    p, rows, rng = np.array([0.5, 0.3, 0.2]), 400, np.random.default_rng(0)
    drawn = [distances(rng.multinomial(rows, p) / rows, p, rows) for _ in range(2000)]
    assert np.mean([distance for distance, _ in drawn]) == pytest.approx(drawn[0][1], rel=0.03)


def test_the_circuit_in_the_page_is_the_model(made):
    model, circuit = made.result.model, made.data["playground"]
    table = model.align(made.train[:20])
    values = np.where(table.observed.numpy(), table.values.double().numpy(), np.nan)
    found = [log_prob(circuit, row.tolist()) for row in values]
    np.testing.assert_allclose(found, model.log_prob(made.train[:20]), rtol=1e-4, atol=1e-4)


def test_conditionals_found_beforehand_are_those_of_the_model(made):
    model = made.result.model
    page = data_of(cc.report(model, made.train, options=ReportOptions(max_parameters=0)).html)
    looked, columns = page["playground"], page["columns"]
    assert [columns[c]["name"] for c in looked["columns"]] == list(made.train.columns)
    city = list(made.train.columns).index("city")
    for place, influences in zip(looked["values"][city], looked["influences"][city], strict=True):
        given = {"city": columns[city]["labels"][place]}
        assert [distance for _, distance, _ in influences] == sorted((d for _, d, _ in influences), reverse=True)
        for column, _, values in influences:
            name = columns[column]["name"]
            if columns[column]["type"] == "states":
                expected = model.distribution(name, given=given)["probability"]
            elif name == "age":
                expected = [model.mean(given)[name][0], model.variance(given)[name][0] ** 0.5]
            else:
                continue
            assert values == pytest.approx(list(expected), rel=1e-3)
    usual = looked["usual"][list(made.train.columns).index("age")]
    assert usual[0] == pytest.approx(model.mean()["age"][0], rel=1e-5)


def test_the_most_surprising_rows_and_cells_are_those_of_explain(made):
    model, shown = made.result.model, made.data["surprises"]
    scores = model.log_prob(made.train)
    lowest = np.argsort(scores, kind="stable")[:10]
    assert [row["place"] for row in shown["rows"]] == [f"row {i}" for i in lowest]
    assert [row["log_prob"] for row in shown["rows"]] == pytest.approx(scores[lowest].tolist(), rel=1e-5)
    explained = model.explain(made.train.iloc[lowest])
    names = [column["name"] for column in made.data["columns"]]
    for number, row in enumerate(shown["rows"]):
        expected = explained[explained["row"] == number][:4]
        assert [names[cell["column"]] for cell in row["cells"]] == expected["column"].tolist()
        assert [c["surprise"] for c in row["cells"]] == pytest.approx(expected["surprise"].tolist(), rel=1e-4)
    assert [name for name, _ in shown["counts"]] == ["training rows", "validation rows"]
    assert all(sum(shares) == pytest.approx(1, abs=1e-5) for _, shares in shown["counts"])


def test_training_curves_are_the_history(made):
    (run,) = made.data["training"]
    history = made.result.history
    assert run["epochs"] == [record.epoch for record in history]
    assert run["kept"] == made.result.epoch
    curves = {curve["name"]: curve["values"] for curve in run["curves"]}
    assert set(curves) == {"train", "valid", "sharpness"}
    for name, field in (("train", "train_ll"), ("valid", "valid_ll"), ("sharpness", "sharpness")):
        assert curves[name] == pytest.approx([getattr(record, field) for record in history], rel=1e-6)


def test_rows_that_training_set_aside_are_the_validation_rows(made):
    rows = np.random.default_rng(0).integers(0, 2, (60, 3))
    result = cc.fit(cc.hclt(rows, 2), rows, valid=0.25, epochs=2)
    page = cc.report(result, rows).page
    scores = {tile.label: tile.value for tile in page.tiles}
    assert scores["validation score"] == f"{result.valid_ll:,.2f}".replace("-", "\u2212")
    assert scores["training score"] == f"{result.train_ll:,.2f}".replace("-", "\u2212")


def test_other_circuits_have_pages_too():
    rows = np.random.default_rng(0).integers(0, 2, (50, 4))
    for circuit in (
        cc.random_binary_trees(4, 2, repetitions=2),
        cc.mixture([cc.Bernoulli()] * 4, 3),
        cc.chow_liu(rows),
        cc.fully_factorized([cc.Bernoulli()] * 4),
    ):
        model = cc.fit(circuit, rows, epochs=1).model
        page = data_of(cc.report(model, rows).html)
        assert (page["explorer"] is None) == (not circuit.sums)
        expected = model.log_prob(rows[:3])
        assert [log_prob(page["playground"], row) for row in rows[:3].tolist()] == pytest.approx(expected, rel=1e-4)


def test_what_cannot_be_reported_is_refused(made):
    with pytest.raises(OptionError, match="a Model or a FitResult, not Circuit"):
        cc.report(made.result.model.circuit, made.train)
    with pytest.raises(OptionError, match="estimator must be"):
        ReportOptions(estimator="median")
    with pytest.raises(OptionError, match="max_weights must be a whole number >= 0, not -1"):
        ReportOptions(max_weights=-1)
    with pytest.raises(DataError, match=r"no row|empty"):
        cc.report(made.result.model, made.train[:0])
    leaf = cc.Input(0, cc.Bernoulli(), 2)
    two = cc.Model.from_parameters(cc.Circuit([leaf]), inputs={leaf: [[0.2], [0.7]]})
    with pytest.raises(OptionError, match="one output; this one has 2"):
        cc.report(two, [[0], [1]])
    with pytest.raises(OptionError, match="history must be a FitResult or a FleetResult, not list"):
        cc.report(made.result, made.train, history=[])


def test_a_report_is_written_and_described(made, tmp_path):
    path = tmp_path / "page.html"
    report = cc.report(made.result.model, made.train, path, options=ReportOptions(title="<Customers>"))
    assert path.read_text(encoding="utf-8") == report.html
    assert repr(report).startswith("<Report: <Customers>, 0.")
    assert "&lt;Customers&gt;" in report._repr_html_()
    assert "<Customers>" not in report.html
