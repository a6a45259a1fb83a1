"""Columns of very many states: tables over them are made in pieces, or counted and refused before they are made."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

import circurve as cc
import hostile_files
import peak_memory
from circurve.queries import limited, peaks, states
from circurve.queries.states import state_logs, union_of_states

PROGRAM = """
import json, resource, sys, tempfile
from pathlib import Path
import torch
import circurve as cc
from circurve.queries import limited
import hostile_files, peak_memory

torch.set_num_threads(1)
path = Path(tempfile.mkdtemp()) / "binomials.safetensors"
path.write_bytes(hostile_files.many_binomials(12))
resource.setrlimit(resource.RLIMIT_AS, (5 << 30, 5 << 30))
QUESTIONS = {
    "most_probable": lambda m: m.most_probable().rows.iloc[0, 0],
    "impute": lambda m: m.impute([[float("nan")]], how="mode").iloc[0, 0],
    "mean": lambda m: m.mean().iloc[0, 0],
    "entropy": lambda m: m.entropy().value,
    "mutual_information": lambda m: m.entropy([0]).value,
    "interval": lambda m: m.interval({0: (8388000, 8389000)}),
    "mean in an interval": lambda m: m.mean({0: (8388500, 8388700)}).iloc[0, 0],
    "distribution": lambda m: len(m.distribution(0)),
    "quantile": lambda m: m.quantile(0, 0.5),
    "sample": lambda m: len(m.sample(3, seed=0)),
    "sample in an interval": lambda m: m.sample(3, given={0: (8388500, 8388700)}, seed=0).iloc[:, 0].mean(),
    "sample above": lambda m: len(m.sample(3, given={0: (8388600, None)}, seed=0)),
    "report": lambda m: str(cc.report(m, [[8388608.0]] * 5, memory_budget=m._memory_budget)),
}
found = {}
for name, ask in QUESTIONS.items():
    model = limited(cc.load(path), 450_000_000)
    before = peak_memory.start()
    try:
        answer = float(ask(model))
    except cc.MemoryLimitError as error:
        answer = str(error)
    found[name] = (answer, peak_memory.growth(before))
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def asked() -> dict[str, tuple[float | str, int]]:
    environment = peak_memory.environment()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, tuple[float | str, int]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
def test_questions_about_2_to_the_24_states_keep_their_budget(asked):
    assert {name: peak for name, (_, peak) in asked.items() if peak > 450_000_000} == {}


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
def test_what_needs_no_table_is_answered_and_a_table_is_refused_by_name(asked):
    answers = {name: answer for name, (answer, _) in asked.items()}
    assert answers["most_probable"] == answers["impute"] == pytest.approx(8388605, abs=8)
    assert answers["mean"] == pytest.approx(8388605.25, abs=0.5)
    assert 0.18 < answers["interval"] < 0.2
    assert 8388595 < answers["mean in an interval"] < 8388605
    refused = {name for name, answer in answers.items() if isinstance(answer, str)}
    assert refused == {"distribution", "quantile", "report"}
    start = "column 1 needs 805 MB (the distribution of one row over 16,777,217 states 805 MB), but memory_budget="
    assert answers["distribution"].startswith(start)
    assert 8388500 <= answers["sample in an interval"] <= 8388700
    assert answers["sample above"] == 3
    assert "tables over states" in answers["report"]


def mixed() -> cc.Model:
    """Two columns: one of binomials of different trials, one of categories and indicators of different states."""
    counts = [cc.Input(0, cc.Binomial(trials), units=2) for trials in (30, 41)]
    kinds = [cc.Input(1, cc.Categorical(9), units=2), cc.Input(1, cc.Indicator((3, 7)), units=2)]
    root = cc.Sum([cc.Product([count, kind]) for count, kind in zip(counts, kinds, strict=True)])
    inputs = {
        counts[0]: [[0.2], [0.45]],
        counts[1]: [[0.31], [0.7]],
        kinds[0]: np.random.default_rng(0).dirichlet(np.ones(9), 2),
    }
    return cc.Model.from_parameters(cc.Circuit(root), {root: [[0.3, 0.2, 0.4, 0.1]]}, inputs)


QUESTIONS = {
    "distribution": lambda m: m.distribution(0, {1: [None, 3]}).to_numpy(),
    "quantile": lambda m: m.quantile(0, [0.1, 0.5, 0.999], {1: 3}),
    "mode": lambda m: m.impute([[np.nan, 3], [5, np.nan]], how="mode"),
    "most_probable": lambda m: m.most_probable({0: (11, 20)}).rows.to_numpy(),
    "log_prob of it": lambda m: m.most_probable({1: {2: 0.3, 3: 0.9}}).log_prob,
    "interval": lambda m: m.interval({0: (11, 20)}, {1: 3}),
    "likelihood": lambda m: m.conditional({1: {2: 0.5, 3: 1.0}}, {0: [5, 30]}),
    "mean": lambda m: m.mean({0: (None, 12)}).to_numpy(),
    "variance": lambda m: m.variance({0: (13, 40)}).to_numpy(),
    "explain": lambda m: m.explain([[5, 3], [29, 3]])["surprise"].to_numpy(),
    "entropy": lambda m: m.entropy().value,
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_answers_from_pieces_are_those_from_whole_tables(name, monkeypatch):
    whole = QUESTIONS[name](mixed())
    monkeypatch.setattr(states, "PIECE_BYTES", 1000)
    np.testing.assert_allclose(QUESTIONS[name](mixed()), whole, rtol=1e-9, atol=1e-12)


PEAK_QUESTIONS = QUESTIONS | {
    "most_probable above": lambda m: m.most_probable({0: (15, None)}).rows.to_numpy(),
    "most_probable below": lambda m: m.most_probable({0: (None, 5)}).log_prob,
    "distribution inside": lambda m: m.distribution(0, {0: (9.5, 16), 1: 3}).to_numpy(),
    "quantile inside": lambda m: m.quantile(0, [0.1, 0.9], {0: (20, None)}),
    "conditional": lambda m: m.conditional({0: (25, None)}, {1: 7}),
    "two intervals": lambda m: m.conditional({1: 3}, {0: (25, 27)}),
    "no value inside": lambda m: m.interval({0: (7.2, 7.9)}),
    "beyond some units": lambda m: m.interval({0: (31, 40)}),
    "beyond all units": lambda m: m.interval({0: (42, 50)}),
    "far tail": lambda m: m.explain([[30, 7], [0, 3]])["surprise"].to_numpy(),
    "tails of many rows": lambda m: m.explain([[k, 3] for k in range(30)])["surprise"].to_numpy(),
    "sample": lambda m: m.sample(200, given={0: (13, None)}, seed=0).to_numpy(),
    "impute rows": lambda m: m.impute([[np.nan, 3], [np.nan, 7], [4, np.nan]], how="mode"),
}


@pytest.mark.parametrize("name", PEAK_QUESTIONS)
def test_answers_from_peaks_are_those_from_whole_tables(name, monkeypatch):
    whole = PEAK_QUESTIONS[name](mixed())
    for module in (states, peaks):
        monkeypatch.setattr(module, "MAX_TABLE_STATES", 1)
    np.testing.assert_allclose(PEAK_QUESTIONS[name](mixed()), whole, rtol=1e-9, atol=1e-12)


def test_an_asked_interval_and_a_likelihood_that_says_nothing_are_both_kept(monkeypatch):
    given = {0: dict.fromkeys(range(41), 1.0)}
    whole = twins([0.2, 0.6], 40).conditional({0: (12, None)}, given)
    for module in (states, peaks):
        monkeypatch.setattr(module, "MAX_TABLE_STATES", 1)
    assert twins([0.2, 0.6], 40).conditional({0: (12, None)}, given) == pytest.approx(whole)
    assert twins([0.2, 0.6], 40).interval({0: (12, None)}) == pytest.approx(whole)


def twins(probabilities: list[float], trials: int = 5001) -> cc.Model:
    """A mixture of two units of equal weight."""
    count = cc.Input(0, cc.Binomial(trials), units=2)
    root = cc.Sum([count])
    return cc.Model.from_parameters(cc.Circuit(root), {root: [[0.5, 0.5]]}, {count: [[p] for p in probabilities]})


def test_certain_units_and_equal_modes_are_answered_from_their_peaks():
    assert twins([0.0, 1.0]).most_probable({0: (1, None)}).rows.iloc[0, 0] == 5001
    assert twins([0.0, 1.0]).interval({0: (None, 5000)}) == pytest.approx(0.5)
    assert twins([0.0, 1.0]).interval({0: (1, 5000)}) == 0
    assert twins([0.0, 1.0]).explain([[5001]])["surprise"].iloc[0] == 0  # no value is more probable
    assert twins([0.5, 0.5]).most_probable({0: (100, None)}).rows.iloc[0, 0] == 2500  # 2500 and 2501 are equal
    assert twins([0.5, 0.5]).most_probable({0: (2501, None)}).rows.iloc[0, 0] == 2501
    assert twins([0.25, 0.75]).impute([[np.nan]], how="mode").iloc[0, 0] in (1250, 3751)


def test_half_open_intervals_and_explanations_look_at_the_states_near_peaks_only(monkeypatch, tmp_path):
    path = tmp_path / "binomials.safetensors"
    path.write_bytes(hostile_files.many_binomials(100))
    model, looked_at = cc.load(path), []
    log_prob = cc.Binomial.log_prob

    def counting(family, parameters, x):
        looked_at.append(x.numel())
        return log_prob(family, parameters, x)

    monkeypatch.setattr(cc.Binomial, "log_prob", counting)
    assert model.most_probable({0: (8388600, None)}).rows.iloc[0, 0] == pytest.approx(8388600, abs=8)
    assert model.explain([[8388608]])["surprise"].iloc[0] == pytest.approx(0.0096, abs=1e-4)
    assert model.explain([[12]])["surprise"].iloc[0] > 1e6
    assert sum(looked_at) < 30_000_000  # of 1,677,716,151 states of all units


def test_the_mode_of_binomials_is_that_of_all_states():
    model = mixed()
    table = model.distribution(0)
    assert model.impute([[np.nan, 2]], how="mode").iloc[0, 0] == model.distribution(0, {1: 2}).iloc[:, 1].argmax()
    assert model.impute([[np.nan, np.nan]], how="mode").iloc[0, 0] == table["probability"].argmax()


def test_states_without_gaps_are_a_range():
    assert union_of_states([range(5), range(9)]) == range(9)
    assert union_of_states([(0, 1), (2, 3)]) == range(4)
    assert union_of_states([(0, 1), (3,)]) == (0, 1, 3)


@pytest.mark.parametrize("family", [cc.Binomial(20), cc.Categorical(21), cc.Indicator((2, 7, 9))])
def test_logs_of_some_states_are_a_part_of_those_of_all(family):
    units = 3
    parameters = family.initialize(np.arange(5.0), units, torch.Generator().manual_seed(0))[None, None]
    every = state_logs(family, parameters, range(30))
    for some in (range(5, 12), range(18, 30), range(24, 30), (0, 7, 25)):
        torch.testing.assert_close(state_logs(family, parameters, some), every[..., list(some)])


def test_many_rows_of_a_distribution_are_counted():
    with pytest.raises(cc.MemoryLimitError, match=r"^column 1 needs .* \(the distribution of 1,000 rows over 42 state"):
        limited(mixed(), 200_000).distribution(0, {1: [3] * 1000})


def test_a_likelihood_of_a_value_far_outside_is_refused_at_once():
    with pytest.raises(cc.DataError, match=re.escape("99 was not seen in training")):
        mixed().mean({0: {99: 1.0}})


def test_the_command_counts_the_values_that_it_lists(tmp_path, capsys):
    coin = cc.Input(0, cc.Binomial(2**20))
    cc.Model.from_parameters(cc.Circuit(coin), inputs={coin: [[0.5]]}).save(tmp_path / "model.st")
    done = subprocess.run(
        [sys.executable, "-m", "circurve", "query", str(tmp_path / "model.st"), "0", "--memory-budget", "100MB"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "listing the values of column 0 needs 189 MB (1,048,577 values 189 MB), but --memory-budget" in done.stderr
