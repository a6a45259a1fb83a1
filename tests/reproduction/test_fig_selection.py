from __future__ import annotations

from dataclasses import replace

from figure_records import OPTIONS, record, round_trip

from circurve.learning import Gated, Global
from circurve.learning.gates import top_fraction
from circurve.reproduction.figures import FIGURES
from circurve.reproduction.selection import FRACTIONS, MU, QUICK_FRACTIONS

SPEC = FIGURES["fig-5"]


def test_both_rankings_have_the_same_fractions_and_the_same_strength() -> None:
    study = SPEC.study(OPTIONS)
    assert study is not None
    gates = [s.method.gate for s in study.settings if isinstance(s.method, Gated)]
    chosen = {by: [g.q for g in gates if isinstance(g, top_fraction) and g.by == by] for by in ("total", "local")}
    assert chosen["total"] == chosen["local"] == list(FRACTIONS[1:])
    assert {s.method.mu for s in study.settings if isinstance(s.method, Global | Gated)} == {MU}
    assert len(set(study.labels)) == 2 + 2 * len(FRACTIONS[1:])  # none competes with another


def test_the_user_may_name_the_strength() -> None:
    study = SPEC.study(replace(OPTIONS, mu=(0.7, 0.1)))
    assert study is not None
    assert {s.method.mu for s in study.settings if isinstance(s.method, Global | Gated)} == {0.7}


def test_changes_are_taken_seed_by_seed_against_the_run_without_a_penalty() -> None:
    records = [record("nltcs", "vanilla", seed, test=-2.0 - seed) for seed in (0, 1)]
    records += [record("nltcs", "all", seed, mu=0.1, test=-3.0 - seed) for seed in (0, 1)]
    for q in QUICK_FRACTIONS[1:]:
        records += [record("nltcs", f"total {q:g}", seed, mu=0.1, test=-2.5 - seed) for seed in (0, 1)]
        records += [record("nltcs", f"local {q:g}", seed, mu=0.1, test=-1.75 - 2 * seed) for seed in (0, 1)]
    data = round_trip(SPEC, records, replace(OPTIONS, quick=True))
    assert data["fractions"] == list(QUICK_FRACTIONS)
    assert data["mu"] == 0.1
    assert data["panels"]["nltcs"]["total"] == [[-1.0, -0.5, -0.5, -0.5]] * 2
    assert data["panels"]["nltcs"]["local"] == [[-1.0, 0.25, 0.25, 0.25], [-1.0, -0.75, -0.75, -0.75]]
    assert data["notes"][0] == "The strength is mu = 0.1 throughout."
    assert data["notes"][1] == "Top 50%: by t^ better than by T^ on 1 of 1 data sets."


def test_runs_that_are_not_there_leave_gaps() -> None:
    records = [record("nltcs", "vanilla", seed) for seed in (0, 1)]
    records += [record("nltcs", "all", 0, mu=0.1), record("nltcs", "total 0.5", 0, mu=0.1)]
    records[-1]["final"]["test_ll"] = None
    records += [record("dna", "all", 0, mu=0.1)]
    data = round_trip(SPEC, records, replace(OPTIONS, quick=True))
    assert list(data["panels"]) == ["nltcs"]
    assert data["panels"]["nltcs"]["total"] == [[0.0, None, None, None], [None] * 4]
    assert data["notes"][1] == "Top 50%: by t^ better than by T^ on 0 of 0 data sets."
