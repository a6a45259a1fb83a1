from __future__ import annotations

import math
from typing import Any

import pytest
from made_records import made_records
from scipy.stats import ttest_rel

from circurve.reproduction import ReproduceOptions
from circurve.reproduction.outputs import TABLES
from circurve.reproduction.summary import Chosen, Count, MeanStd, choose, choose_all, count, paired, spread, verdict

OPTIONS: dict[str, Any] = {"datasets": ("nltcs",), "seeds": (0, 1, 2), "mu": (0.1, 0.2)}


def records(rule: Any, **options: Any) -> list[dict[str, Any]]:
    return made_records(TABLES["table-b"].study(ReproduceOptions(**{**OPTIONS, **options})), rule)


def chosen(values: dict[int, float]) -> Chosen:
    runs = tuple({"seed": seed, "choose_epoch": "last", "final": {"test_ll": value}} for seed, value in values.items())
    return Chosen("nltcs", 1.0, "gated", {}, runs, 1)


def test_validation_chooses_by_its_mean_over_seeds_and_test_rows_play_no_part() -> None:
    def rule(dataset: str, fraction: float, method: Any, seed: int) -> dict[str, float]:
        if getattr(method, "mu", None) == 0.1:
            return {"valid_ll": (-9.0, -9.0, -12.0)[seed], "test_ll": -1.0}
        return {"valid_ll": -9.5, "test_ll": -20.0}

    found = choose(records(rule), "nltcs", 1.0, "global")
    assert found is not None
    assert found.method["mu"] == 0.2
    assert found.candidates == 2
    assert found.seeds == (0, 1, 2)
    assert found.spread().mean == -20.0


def test_the_epoch_that_counts_is_that_of_the_protocol() -> None:
    def rule(dataset: str, fraction: float, method: Any, seed: int) -> dict[str, float]:
        return {"test_ll": -20.0, "best_test_ll": -10.0, "best_valid_ll": -9.0}

    for protocol, expected in (("paper", -20.0), ("best", -10.0)):
        found = choose(records(rule, protocol=protocol), "nltcs", 1.0, "vanilla")
        assert found is not None
        assert found.spread().mean == expected


def test_a_setting_that_failed_on_validation_rows_is_not_chosen() -> None:
    made = records(lambda dataset, fraction, method, seed: {"valid_ll": -9.0})
    for record in made:
        if record["method"]["mu"] == 0.1 and record["seed"] == 2:
            record["final"]["valid_ll"] = None
    assert [c.method["mu"] for c in choose_all(made)] == [None, 0.2, 0.2]


def test_what_was_not_run_is_not_chosen() -> None:
    assert choose(records(lambda *_: {}), "plants", 1.0, "gated") is None


def test_the_spread_is_a_mean_and_a_sample_deviation() -> None:
    assert spread([1.0, 3.0]) == MeanStd(2.0, math.sqrt(2), 2)
    assert spread([1.0]) == MeanStd(1.0, None, 1)
    assert math.isnan(spread([]).mean)
    assert spread([1.0, math.nan]).std is None


def test_pairs_go_by_seed_and_the_test_is_scipys() -> None:
    first, second = chosen({0: -1.0, 1: -2.0, 3: -4.5, 2: -3.0}), chosen({2: -3.5, 1: -2.1, 0: -1.4, 9: 0.0})
    found = paired(first, second)
    assert found.seeds == 3
    assert found.mean == pytest.approx((0.4 + 0.1 + 0.5) / 3)
    assert found.p == pytest.approx(ttest_rel([-1, -2, -3], [-1.4, -2.1, -3.5]).pvalue)


def test_pairs_without_spread_or_without_partners_have_a_plain_answer() -> None:
    assert paired(chosen({0: -1.0, 1: -2.0}), chosen({0: -1.0, 1: -2.0})).p == 1.0
    assert paired(chosen({0: -1.0, 1: -2.0}), chosen({0: -2.0, 1: -3.0})).p == 0.0
    alone = paired(chosen({0: -1.0}), chosen({0: -2.0}))
    assert (alone.mean, alone.std, alone.p) == (1.0, None, None)
    assert math.isnan(paired(chosen({0: -1.0}), chosen({5: -2.0})).mean)
    assert paired(chosen({0: math.nan, 1: -1.0}), chosen({0: -2.0, 1: -1.0})).p is None


def test_a_tie_is_within_a_deviation_or_a_hundredth() -> None:
    assert verdict(MeanStd(-10.0), MeanStd(-10.009)) == "tie"
    assert verdict(MeanStd(-10.0), MeanStd(-10.02)) == "win"
    assert verdict(MeanStd(-10.02, 0.001), MeanStd(-10.0, 0.05)) == "tie"
    assert verdict(MeanStd(-10.2, 0.1), MeanStd(-10.0, 0.05)) == "loss"
    assert verdict(MeanStd(math.nan), MeanStd(-10.0)) == "tie"
    pairs = [(MeanStd(-1.0), MeanStd(-2.0)), (MeanStd(-1.0), MeanStd(-1.0)), (MeanStd(-3.0), MeanStd(-2.0))] * 2
    assert count(pairs) == Count(2, 2, 2)
