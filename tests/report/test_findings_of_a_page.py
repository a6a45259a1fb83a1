"""The conclusion: sentences that follow the numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import circurve as cc
from circurve.learning.history import EpochRecord
from circurve.report.explorer import sum_labels
from circurve.report.findings import Evidence, Score, _node, conclude, sentences


def curvature(total=(4.0, 3.0, 2.0, 1.0), local=(2.0, 9.0, 1.0, 3.0)):
    """A record of a circuit with four sum nodes, with these values."""
    inputs = [cc.Input(v, cc.Bernoulli(), 1) for v in range(4)]
    below = [cc.Sum(leaf, name=f"s{v}") for v, leaf in enumerate(inputs)]
    circuit = cc.Circuit(cc.Sum([cc.Product(below)], name="root"))
    model = cc.Model.from_parameters(circuit, inputs={leaf: [[0.5]] for leaf in inputs})
    record = cc.curvature(model, [[0, 1, 0, 1]])
    total, local = (np.array([*values, 0.0]) for values in (total, local))
    return replace(record, total=total, local=local, flow_squared=np.full(5, 0.5))


def history(*valid):
    return tuple(EpochRecord(i + 1, score + 1, score, None, 0.1, 0.0, 1.0) for i, score in enumerate(valid))


def evidence(**changes):
    base = {
        "part": "training",
        "measured": Score(-10.0, 0.1, 500),
        "held_out": Score(-10.1, 0.1, 100),
        "discrete": True,
        "curvature": curvature(),
        "floor_share": 0.0,
        "labels": {},
    }
    return Evidence(**{**base, **changes})


def told(**changes):
    return {finding.kind: f"{finding.headline} {finding.text}" for finding in conclude(evidence(**changes))}


def test_a_gap_within_the_error_is_no_sign_of_overfitting():
    fit = told()["fit"]
    assert fit.startswith(
        "There is no sign of overfitting. The 500 training rows score -10.00 nats on average, the 100 "
    )
    assert "a gap of 0.10, which is within the error of these means (0.28)" in fit
    assert "0.10 more" in told(held_out=Score(-9.9, 0.1, 100))["fit"]


@pytest.mark.parametrize(("valid", "word"), [(-10.05, "overfits slightly: "), (-12.0, "overfits: ")])
def test_a_larger_gap_is_overfitting(valid, word):
    fit = told(measured=Score(-10.0, 0.01, 500), held_out=Score(valid, 0.01, 100, 3))["fit"]
    assert fit.startswith(f"The model {word}validation rows score {-10 - valid:.2f} nats lower than training rows.")
    assert f"{(-10 - valid) / -valid:.1%} of the validation score" in fit
    assert "(3 of probability zero left out)" in fit


def test_densities_have_no_relative_gap():
    fit = told(measured=Score(0.5, 0.01, 500), held_out=Score(0.2, 0.01, 100), discrete=False)["fit"]
    assert "The model overfits: " in fit
    assert "%" not in fit


def test_without_validation_rows_nothing_is_said_about_overfitting():
    found = told(held_out=None)
    assert "we cannot tell whether the model overfits" in found["fit"]
    assert found["advice"].startswith("Try validation rows first.")
    found = told(held_out=None, part="test")
    assert found["fit"].startswith("The 500 test rows score -10.00 nats on average.")
    assert found["advice"].startswith("Compare with the training rows.")
    assert told(held_out=None, part="")["fit"].startswith("The 500 rows score ")


def test_sharpness_names_the_largest_contribution_and_the_sharpest_node():
    labels = {ref.node: f"the sum above {ref.name!r}" for ref in curvature().nodes}
    text = told(labels=labels)["sharpness"]
    assert text.startswith("90% of the sharpness sits in 3 of 5 sum nodes (60%). ")
    assert "The largest contribution to the trace of 10 is 40%, from unit 0 of the sum above 's0'" in text
    assert "The sharpest node by itself, unit 0 of the sum above 's1', adds 30%." in text
    assert "order 30% of all pairs of nodes differently" in text
    same = told(curvature=curvature(local=(9.0, 2.0, 1.0, 0.5)))["sharpness"]
    assert "from unit 0 of s0, which is also the sharpest node by itself." in same


def test_a_model_without_sharpness_has_two_findings():
    assert set(told(curvature=curvature(total=(0.0,) * 4))) == {"fit", "advice"}


def test_the_advice_follows_the_history():
    wide = {"measured": Score(-10.0, 0.01, 500), "held_out": Score(-12.0, 0.01, 100)}
    early = told(**wide, history=history(-13, -11.5, -12), epoch=3)["advice"]
    assert early.startswith("Try an earlier stop: validation rows scored best in epoch 2. That was 0.50 nats more")
    kept = told(**wide, history=history(-13, -11.5, -12), epoch=2)["advice"]
    assert kept.startswith("Try a small pseudocount or fewer units. No other epoch did clearly better by validation")
    assert told(**wide)["advice"].startswith("Try an earlier stop, a small pseudocount or fewer units.")
    rising = history(*np.linspace(-20, -10, 20))
    assert told(history=rising, epoch=20)["advice"].startswith("Try more epochs.")
    flat = history(*np.linspace(-20, -10, 5), *[-10.0] * 15)
    assert told(history=flat, epoch=20)["advice"].startswith("Try a larger model.")


def test_edges_near_zero_are_advised_on():
    text = told(floor_share=0.93)["advice"]
    assert "Edges of weight near zero make up 93% of the exact mean of t: a small pseudocount (0.01)" in text
    assert "near zero" not in told(floor_share=0.2)["advice"]


def test_sentences_are_one_paragraph_for_each_finding():
    found = conclude(evidence())
    assert [text.split(".")[0] for text in sentences(found)] == [f.headline.split(".")[0] for f in found]


def test_sums_of_a_mixture_say_of_which_model_they_are():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.integers(0, 2, (60, 3)), columns=["a", "b", "c"])
    models = [
        cc.fit(cc.hclt(rows, units=2), rows, epochs=2, seed=seed, valid=False, method=cc.Vanilla(0.1)).model
        for seed in range(2)
    ]
    alone = cc.fit(cc.fully_factorized(3), rows.to_numpy(), epochs=1, valid=False).model  # without a sum
    mixed = cc.mix([*models, alone])
    labels = sum_labels(mixed)
    named = {node.name: labels[place] for place, node in enumerate(mixed.circuit.nodes) if place in labels}
    assert named["mixture"] == "the root"
    assert [named[f"root of model {number}"] for number in (0, 1)] == ["the root of model 0", "the root of model 1"]
    others = [label for name, label in named.items() if "root" not in name and name != "mixture"]
    assert len(others) == len(set(others)) > 0
    first = [label.removesuffix(" of model 0") for label in others if label.endswith(" of model 0")]
    assert set(sum_labels(models[0]).values()) == {"the root", *first}
    assert all(label.startswith("the sum above '") for label in first)
    place = next(i for i, ref in enumerate(cc.curvature(mixed, rows).nodes) if ref.name == "root of model 1")
    shown = evidence(curvature=cc.curvature(mixed, rows), labels=labels)
    assert _node(shown, place) == "the root of model 1"
