from __future__ import annotations

import math
import warnings
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from analysis_records import RECORDS, record, uneven
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import linregress

from circurve.curvature.analysis import attenuation, concentration, depth_profile, rank_by, reversals
from circurve.curvature.record import Curvature
from circurve.errors import OptionError

# --- reversals


def reversed_pairs(curv: Curvature) -> list[tuple[float, float, int, int]]:
    """(usage ratio, local ratio, i, j) of all reversed pairs."""
    found = []
    total, local = curv.total.tolist(), curv.local.tolist()
    for a, b in combinations(range(len(curv)), 2):
        i, j = (a, b) if total[a] > total[b] else (b, a)
        if total[i] > total[j] and local[i] < local[j]:
            ratio = (total[i] / local[i]) / (total[j] / local[j]) if total[j] > 0 else math.inf
            found.append((ratio, local[j] / local[i], i, j))
    return sorted(found, reverse=True)


def brute_force_tau(curv: Curvature) -> float:
    signs = [
        (np.sign(curv.total[a] - curv.total[b]), np.sign(curv.local[a] - curv.local[b]))
        for a, b in combinations(range(len(curv)), 2)
    ]
    ordered_by_total, ordered_by_local = sum(x != 0 for x, _ in signs), sum(y != 0 for _, y in signs)
    if not ordered_by_total * ordered_by_local:
        return 0.0
    return float(sum(x * y for x, y in signs) / math.sqrt(ordered_by_total * ordered_by_local))


@settings(max_examples=300, deadline=None)
@given(RECORDS, st.integers(0, 12))
def test_reversals_equal_a_count_over_all_pairs(curv: Curvature, most: int) -> None:
    result = reversals(curv, most)
    expected = reversed_pairs(curv)
    pairs = list(combinations(range(len(curv)), 2))
    assert result.pairs == len(pairs)
    assert result.tied == sum(curv.total[a] == curv.total[b] or curv.local[a] == curv.local[b] for a, b in pairs)
    assert result.disagree == len(expected)
    assert result.share == (len(expected) / len(pairs) if pairs else 0)
    assert result.tau == pytest.approx(brute_force_tau(curv), abs=1e-12)
    assert [p.usage_ratio for p in result.extreme] == pytest.approx([p[0] for p in expected[:most]], rel=1e-9)


@settings(max_examples=100, deadline=None)
@given(RECORDS)
def test_every_extreme_pair_is_a_reversal_and_obeys_the_proposition(curv: Curvature) -> None:
    extreme = reversals(curv).extreme
    assert len({(p.i_index, p.j_index) for p in extreme}) == len(extreme)
    for pair in extreme:
        i, j = pair.i_index, pair.j_index
        assert (pair.i, pair.j) == (curv.nodes[i], curv.nodes[j])
        assert curv.total[i] > curv.total[j]
        assert curv.local[i] < curv.local[j]
        assert pair.usage_ratio >= pair.local_ratio > 1
        assert pair.local_ratio == curv.local[j] / curv.local[i]


def test_extreme_pairs_are_exact_among_hundreds_of_units() -> None:
    curv = uneven(400)
    expected = reversed_pairs(curv)
    result = reversals(curv, 60)
    assert result.disagree == len(expected) > 1000
    assert [p.usage_ratio for p in result.extreme] == pytest.approx([p[0] for p in expected[:60]], rel=1e-9)


def test_without_extreme_pairs_the_counts_are_the_same() -> None:
    curv = uneven(400)
    assert reversals(curv, 0) == replace(reversals(curv, 5), extreme=())


def test_the_two_units_of_the_proposition() -> None:
    # T = F^2 t with F^2 = 1 and 1/1000, t = 2 and 800: reversed, as 1000 > 400
    result = reversals(record(total=[2.0, 0.8], local=[2.0, 800.0]))
    assert (result.pairs, result.tied, result.disagree, result.share, result.tau) == (1, 0, 1, 1.0, -1.0)
    (pair,) = result.extreme
    assert (pair.i_index, pair.j_index, pair.i.name, pair.j.unit) == (0, 1, "s0", 1)
    assert (pair.local_ratio, pair.usage_ratio) == pytest.approx((400.0, 1000.0))
    # F^2 = 1/100 instead: 100 < 400, and the sharper unit outranks the used one
    result = reversals(record(total=[2.0, 8.0], local=[2.0, 800.0]))
    assert (result.disagree, result.tau, result.extreme) == (0, 1.0, ())


def test_one_lonely_reversal_among_many_agreeing_units_is_found() -> None:
    values = np.arange(1.0, 2001.0)
    local = values.copy()
    local[[1000, 1001]] = local[[1001, 1000]]
    result = reversals(record(values, local))
    assert result.disagree == 1
    assert [(p.i_index, p.j_index) for p in result.extreme] == [(1001, 1000)]


def test_among_equally_extreme_pairs_the_sharpest_partner_comes_first() -> None:
    result = reversals(record(total=[2.0, 0.0, 0.0], local=[2.0, 50.0, 90.0]))
    assert [(p.i_index, p.j_index, p.usage_ratio) for p in result.extreme] == [(0, 2, math.inf), (0, 1, math.inf)]


@pytest.mark.parametrize(
    ("total", "local"),
    [([], []), ([1.0], [2.0]), ([0.0] * 5, [0.0] * 5), ([0.0] * 4, [1.0, 2.0, 3.0, 4.0]), ([1, 2, 3, 4], [2] * 4)],
)
def test_records_without_an_order_have_no_reversals(total: list[float], local: list[float]) -> None:
    result = reversals(record(total, local))
    assert (result.disagree, result.share, result.tau, result.extreme) == (0, 0.0, 0.0, ())


def test_extreme_values_give_no_warnings_and_no_nan() -> None:
    tiny, huge = 5e-324, 1e308
    curv = record([huge, tiny, 0.0, 1.0, 3.0, tiny, 2.0], [1.0, huge, 3.0, 0.0, 1e-3, tiny, tiny])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = reversals(curv, 30)
        bound = attenuation(curv)
    assert result.disagree == len(result.extreme) > 0
    assert not any(math.isnan(p.usage_ratio) or math.isnan(p.local_ratio) for p in result.extreme)
    assert np.isnan(bound.tightness).sum() == 0


# --- concentration


@settings(max_examples=200, deadline=None)
@given(RECORDS, st.sampled_from(["total", "local", "flow"]), st.floats(1e-3, 1.0))
def test_concentration_equals_brute_force(curv: Curvature, by: str, share: float) -> None:
    result = concentration(curv, by)  # type: ignore[arg-type]
    values = sorted(curv.by(by).tolist(), reverse=True)  # type: ignore[arg-type]
    m = len(values)
    assert len(result.curve_nodes) == len(result.curve_share) == m + 1
    assert result.curve_nodes[0] == result.curve_share[0] == 0
    assert 0 <= result.gini <= 1
    if not m:
        return
    assert result.curve_nodes[-1] == result.curve_share[-1] == 1
    whole = sum(values)
    if whole == 0:
        values, whole = [1.0] * m, float(m)
    gini = sum(abs(a - b) for a in values for b in values) / (2 * m * whole)
    assert result.gini == pytest.approx(gini, abs=1e-12)
    held = [sum(values[:k]) / whole for k in range(m + 1)]
    assert result.curve_share == pytest.approx(held, abs=1e-12)
    assert result.fraction_for(share) == min(k for k in range(m + 1) if held[k] >= share * (1 - 1e-11)) / m


def test_uniform_concentration_is_the_diagonal() -> None:
    result = concentration(record([0.1] * 10, [1.0] * 10), "total")
    assert result.curve_share == pytest.approx(result.curve_nodes)
    assert [result.fraction_for(s) for s in (0.9, 0.99, 0.9999)] == [0.9, 1.0, 1.0]
    assert result.gini == pytest.approx(0.0)


def test_one_hot_concentration_needs_one_unit() -> None:
    result = concentration(record([0, 0, 5, 0], [1, 1, 1, 1]), "total")
    assert result.curve_share.tolist() == [0, 1, 1, 1, 1]
    assert result.curve_nodes.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert result.fraction_for(0.9) == result.fraction_for(1.0) == 0.25
    assert result.gini == pytest.approx(0.75)


# --- depth profile


@settings(max_examples=200, deadline=None)
@given(RECORDS, st.sampled_from(["total", "local", "flow"]), st.integers(1, 8), st.sampled_from([1.0, 0.37]))
def test_depth_profile_adds_up_and_places_each_unit_in_its_range(
    curv: Curvature, by: str, bins: int, scale: float
) -> None:
    curv = record(curv.total, curv.local, curv.depth_min, curv.depth_min * scale)
    result = depth_profile(curv, by, bins)  # type: ignore[arg-type]
    values = curv.by(by)  # type: ignore[arg-type]
    assert len(result.units) <= bins
    assert result.units.sum() == len(curv)
    assert result.sums.sum() == pytest.approx(values.sum())
    assert result.share.sum() == pytest.approx(1 if len(curv) else 0)
    for b, (low, high) in enumerate(zip(result.depth_low, result.depth_high, strict=True)):
        closed = b == len(result.units) - 1 or low == high
        depth = curv.depth_mean
        inside = (depth >= low) & ((depth <= high) if closed else (depth < high))
        assert result.units[b] == inside.sum()
        assert result.sums[b] == pytest.approx(values[inside].sum())
        assert result.means[b] == pytest.approx(values[inside].mean() if inside.any() else 0)


def test_few_whole_depths_are_one_partition_each() -> None:
    curv = record([4, 2, 2, 0], [1, 1, 1, 1], depth_mean=[0, 3, 3 + 1e-12, 7])
    result = depth_profile(curv, "total")
    assert result.depth_low.tolist() == result.depth_high.tolist() == [0, 3, 7]
    assert result.units.tolist() == [1, 2, 1]
    assert result.sums.tolist() == [4, 4, 0]
    assert result.means.tolist() == [4, 2, 0]
    assert result.share.tolist() == [0.5, 0.5, 0]


def test_many_depths_are_cut_into_equal_ranges() -> None:
    result = depth_profile(record(np.ones(100), np.ones(100)), "local", bins=3)
    assert result.depth_low.tolist() == [0, 33, 66]
    assert result.depth_high.tolist() == [33, 66, 99]
    assert result.units.tolist() == [33, 33, 34]


def test_fractional_depths_are_cut_into_equal_ranges() -> None:
    result = depth_profile(record([1, 2, 3], [1, 1, 1], depth_mean=[0, 0.5, 2]), "total", bins=4)
    assert result.depth_low.tolist() == [0, 0.5, 1, 1.5]
    assert result.units.tolist() == [1, 1, 0, 1]
    assert result.means.tolist() == [1, 2, 0, 3]


def test_units_that_no_path_reaches_have_no_place_in_the_profile() -> None:
    result = depth_profile(record([1, 1, 0], [1, 1, 8], depth=[0, 1, np.inf]), "local")
    assert result.units.tolist() == [1, 1]
    assert result.share.tolist() == [0.5, 0.5]


# --- attenuation


@settings(max_examples=200, deadline=None)
@given(RECORDS)
def test_the_default_rho_is_the_smallest_for_which_the_bound_holds(curv: Curvature) -> None:
    curv = record(np.minimum(curv.total, curv.local), curv.local, curv.depth_min)  # F <= 1, so T <= t
    result = attenuation(curv)
    below = (curv.depth_min > 0) & (curv.total > 0)
    assert np.isnan(result.implied_rho[curv.depth_min == 0]).all()
    assert not np.isnan(result.tightness).any()
    assert not np.isnan(result.bound).any()
    assert result.tightness[curv.total == 0].tolist() == [0] * int((curv.total == 0).sum())
    if not below.any():
        assert result.rho == 0
        return
    assert result.tightness[below].max() == pytest.approx(1)
    assert result.total[below] == pytest.approx(result.tightness[below] * result.bound[below])
    smaller = (0.99 * result.rho) ** (2 * curv.depth_min[below]) * curv.local[below]
    assert (curv.total[below] > smaller).any()
    usage = curv.total[below] / curv.local[below]
    assert result.implied_rho[below] ** (2 * curv.depth_min[below]) == pytest.approx(usage)
    depths = curv.depth_min[curv.total > 0]
    if len(set(depths)) > 1:
        used = curv.total > 0
        expected = linregress(depths, np.log(curv.total[used] / curv.local[used])).slope
        assert result.slope == pytest.approx(expected, abs=1e-9)
    else:
        assert math.isnan(result.slope)


def test_a_chain_of_equal_responsibilities_is_tight_everywhere() -> None:
    depth = np.arange(6.0)
    local = np.array([1.5, 2, 8, 3, 90, 4])
    curv = record(0.6 ** (2 * depth) * local, local, depth)
    result = attenuation(curv)
    assert result.rho == pytest.approx(0.6)
    assert result.implied_rho[1:] == pytest.approx([0.6] * 5)
    assert result.tightness == pytest.approx([1.0] * 6)
    assert result.slope == pytest.approx(2 * math.log(0.6))
    given_rho = attenuation(curv, rho=0.8)
    assert given_rho.bound == pytest.approx(0.8 ** (2 * depth) * local)
    assert given_rho.tightness == pytest.approx((0.6 / 0.8) ** (2 * depth))
    assert "fails for 5 of 6 units" in str(attenuation(curv, rho=0.5))
    assert "holds for all units" in str(given_rho)


def test_rounding_does_not_push_the_default_rho_above_one() -> None:
    result = attenuation(record([2, 2 * (1 + 1e-7), 0], [2, 2, 3], depth=[0, 1, np.inf]))
    assert result.rho == 1
    assert result.bound.tolist() == [2, 2, 3]
    assert "holds for all units" in str(result)


def test_units_that_no_path_reaches_do_not_shift_the_bound() -> None:
    result = attenuation(record([2, 0.5, 0], [2, 2, 8], depth=[0, 1, np.inf]))
    assert result.rho == pytest.approx(0.5)
    assert np.isnan(result.implied_rho).tolist() == [True, False, True]
    assert result.bound.tolist() == pytest.approx([2, 0.5, 0])
    assert result.slope == pytest.approx(math.log(0.25))


# --- all of them


def test_rank_by_is_the_records_own_ranking() -> None:
    curv = record([1, 3, 2], [9, 9, 10])
    assert rank_by(curv, "total").tolist() == [1, 2, 0]
    assert rank_by(curv, "local").tolist() == [2, 0, 1]


def test_a_hundred_thousand_units() -> None:
    curv = uneven(100_000)
    result = reversals(curv)
    assert len(result.extreme) == 10
    assert 0 < result.disagree < result.pairs - result.tied
    assert concentration(curv, "total").fraction_for(0.9999) < concentration(curv, "local").fraction_for(0.9999)
    assert depth_profile(curv, "total").share.sum() == pytest.approx(1)
    assert attenuation(curv).slope == pytest.approx(-0.7, abs=0.01)


def test_bad_options_are_named() -> None:
    curv = record([1, 2], [2, 1])
    for call in (rank_by, concentration, depth_profile):
        with pytest.raises(OptionError, match=r"by must be 'total', 'local', .* or 'clipped', not 'edges'"):
            call(curv, "edges")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="bins must be at least 1, not 0"):
        depth_profile(curv, "total", bins=0)
    with pytest.raises(OptionError, match="most must be 0 or more, not -1"):
        reversals(curv, most=-1)
    for rho in (0.0, 1.1, -0.5, math.nan):
        with pytest.raises(OptionError, match=r"rho must be above 0 and at most 1, not"):
            attenuation(curv, rho)
    for share in (0.0, 1.5, math.nan):
        with pytest.raises(OptionError, match=r"share must be above 0 and at most 1, not"):
            concentration(curv, "total").fraction_for(share)


def test_records_print_in_a_few_lines() -> None:
    curv = record(total=[2.0, 0.8], local=[2.0, 800.0], depth=[0, 1])
    assert str(reversals(curv)).splitlines() == [
        "ordered differently 1 of 1 pairs (100.00%) by T and by t",
        "Kendall's tau       -1.0000",
        "reversal            s0[0] outranks s1[1]: 400 times sharper, 1,000 times less used",
    ]
    assert str(reversals(record([2, 0], [2, 3])).extreme[0]) == "s0[0] outranks s1[1]: 1.5 times sharper, unused"
    assert str(concentration(curv, "total")).splitlines() == [
        "concentration       total of 2 sum nodes",
        "held                90 % by 100.00%, 99 % by 100.00%, 99.99 % by 100.00%",
        "Gini                0.2143",
    ]
    assert str(depth_profile(curv, "total")).splitlines() == [
        "depth                units    mean total    share",
        "0                        1             2   71.43%",
        "1                        1           0.8   28.57%",
    ]
    assert str(attenuation(curv)).splitlines() == [
        "bound               rho = 0.03162, holds for all units",
        "tightness           median 1 below depth 0",
        "squared use         6.91 nats lost per sum edge",
    ]


def test_records_of_no_units_are_answered_too() -> None:
    curv = record([], [])
    assert concentration(curv, "total").fraction_for(0.9) == 0
    assert len(depth_profile(curv, "total").units) == 0
    assert attenuation(curv).rho == 0
    for result in (reversals(curv), concentration(curv, "total"), depth_profile(curv, "total"), attenuation(curv)):
        assert str(result)
