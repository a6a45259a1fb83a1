"""The study of estimators: which runs it has, and that its tables say what the records say."""

from __future__ import annotations

from typing import Any

import pytest
from made_records import made_records

from circurve.learning import Gated, Method, Vanilla
from circurve.learning.local_curvature import ESTIMATORS
from circurve.reproduction import ReproduceOptions, Study
from circurve.reproduction.outputs import TABLES
from circurve.reproduction.spec import PAPER
from circurve.reproduction.table import Number, Report

OPTIONS: dict[str, Any] = {"datasets": ("nltcs",), "seeds": (0, 1), "mu": (0.1, 1.0)}


def study(**options: Any) -> Study:
    return TABLES["estimators"].study(ReproduceOptions(**{**OPTIONS, **options}))


def rule(dataset: str, fraction: float, method: Method, seed: int) -> dict[str, float]:
    """Each estimator has its own test score; the weaker penalty is the better one, smoothing costs 0.5."""
    score = -6.0 - (0.5 if method.pseudocount else 0.0)
    if isinstance(method, Gated):
        assert isinstance(method.mu, float)
        score -= 0.01 * (1 + ESTIMATORS.index(method.estimator)) + method.mu
    return {"valid_ll": score, "test_ll": score + 0.001 * seed}


def report(measured: bool = True, **options: Any) -> Report:
    made = study(**options)
    records = made_records(made, rule)
    for record in records if measured else []:
        estimate = {"median_local": 2.0, "largest_local": 8.0, "gates_median": 0.25, "gates_above_half": 0.125}
        estimates = {name: estimate | {"fractions": {"0.99": 0.5, "0.9999": 0.75}} for name in ESTIMATORS}
        record["curvature"] |= {"estimates": estimates, "floor": {"edges": 7, "share": 0.875}}
        record["gates"] = {"min": 0.0, "median": 0.125, "max": 1.0, "above_half": 0.25}
    return TABLES["estimators"].report(made, records)


def test_every_estimator_is_trained_at_every_strength_smoothed_and_not() -> None:
    made = study(mu=None)
    methods = [setting.method for setting in made.settings]
    gated = {(m.estimator, m.mu, m.pseudocount) for m in methods if isinstance(m, Gated)}
    assert gated == {(e, mu, p) for e in ESTIMATORS for mu in PAPER.mus for p in (0.0, 0.1)}
    assert [m.pseudocount for m in methods if isinstance(m, Vanilla)] == [0.0, 0.1]
    assert len(made.labels) == 2 * (1 + len(ESTIMATORS))


def test_the_first_table_has_a_column_for_each_strength_beside_plain_em_of_the_same_smoothing() -> None:
    table = report().tables[0]
    assert table.heads == ("data set", "estimator", "plain EM", "mu 0.1", "mu 1")
    assert len(table.rows) == 2 * len(ESTIMATORS)
    for row, label in ((table.rows[2], "flow_weighted"), (table.rows[7], "flow_weighted, smoothed")):
        assert row[:2] == ("nltcs", label)
        plain = -6.5 if "smoothed" in label else -6.0
        numbers = [cell.mean for cell in row[2:] if isinstance(cell, Number)]
        assert numbers == pytest.approx([plain + 0.0005, plain - 0.1295, plain - 1.0295])


def test_the_second_table_has_what_validation_chose_and_its_gates() -> None:
    rows = {row[1]: row for row in report().tables[1].rows}
    assert rows["vanilla"][2] == "-"
    chosen = rows["clipped, smoothed"]
    gap = chosen[4]
    assert isinstance(gap, Number)
    assert (chosen[2], gap.mean) == ("0.1", pytest.approx(-0.15))
    assert chosen[6:] == ("0.125", "0.25")


def test_the_third_table_has_the_spread_over_nodes_and_the_floor() -> None:
    row = report().tables[2].rows[0]
    assert row == ("nltcs", "mean_trace", "50.0%", "75.0%", "2", "8", "0.25", "12.5%", "7", "87.50%")


def test_records_without_estimates_give_dashes() -> None:
    made = report(measured=False)
    assert set(made.tables[2].rows[0][2:]) == {"-"}
    assert made.tables[1].rows[1][6:] == ("-", "-")


def test_the_values_have_a_line_for_each_strength() -> None:
    made = report()
    assert len(made.values) == 2 * (1 + 2 * len(ESTIMATORS))
    assert all(set(value) == set(made.columns) for value in made.values)
    line = next(v for v in made.values if (v["estimator"], v["pseudocount"], v["mu"]) == ("geometric", 0.1, 1.0))
    assert line["minus_vanilla"] == pytest.approx(-1.04)
    assert (line["gates_median"], line["floor_edges"], line["largest_local"]) == (0.125, 7, 8)
