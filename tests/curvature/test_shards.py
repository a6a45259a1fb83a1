"""Statistics of shards add up to those of one pass: counts, likelihood, curvature, and the M-step that follows."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import circurve as cc
from circurve import bounds
from circurve.curvature import ShardStatistics, load_statistics, merge_statistics, statistics
from circurve.curvature.shards import _tensors, merge_files, shard_rows
from circurve.errors import FileAccessError, FileFormatError, OptionError
from circurve.learning.plan import Plan


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    table = rng.integers(0, 3, (101, 5)).astype(float)
    table[rng.random(table.shape) < 0.1] = np.nan
    return table


@pytest.fixture(scope="module")
def model(rows: np.ndarray) -> cc.Model:
    return cc.fit(cc.hclt(rows, units=3), rows, epochs=2, batch_size=50, seed=0, device="cpu", progress=False).model


def shards(model: cc.Model, rows: np.ndarray, count: int) -> list[ShardStatistics]:
    return [statistics(model, rows, shard=(number, count)) for number in range(1, count + 1)]


def assert_close(one: ShardStatistics, other: ShardStatistics, tolerance: float) -> None:
    for name, values in _tensors(one.sums).items():
        torch.testing.assert_close(values, _tensors(other.sums)[name], rtol=tolerance, atol=1e-13)
    for column in one.curvature.columns:
        if column != "depth_mean":
            expected = getattr(other.curvature, column)
            np.testing.assert_allclose(getattr(one.curvature, column), expected, rtol=tolerance, atol=1e-13)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_merged_shards_are_one_pass(model: cc.Model, rows: np.ndarray, count: int) -> None:
    whole = statistics(model, rows)
    merged = merge_statistics(shards(model, rows, count))
    assert merged.rows == whole.rows == 101
    assert_close(merged, whole, 1e-12)
    assert merged.mean_log_likelihood == pytest.approx(
        float(model.to(dtype=torch.float64).log_prob(rows).mean()), rel=1e-12
    )
    exact = cc.curvature(model.to(dtype=torch.float64), rows)
    assert merged.curvature.trace == pytest.approx(exact.trace, rel=1e-12)


def test_the_order_of_parts_does_not_change_a_bit(model: cc.Model, rows: np.ndarray) -> None:
    parts = shards(model, rows, 4)
    first, second = merge_statistics(parts), merge_statistics([parts[2], parts[0], parts[3], parts[1]])
    assert first.shards == second.shards == ("1/4", "2/4", "3/4", "4/4")
    for name, values in _tensors(first.sums).items():
        assert torch.equal(values, _tensors(second.sums)[name])
    np.testing.assert_array_equal(first.curvature.total, second.curvature.total)


def test_files_hold_every_bit(model: cc.Model, rows: np.ndarray, tmp_path: Path) -> None:
    found = statistics(model, rows, shard=(2, 3))
    found.save(tmp_path / "s.npz")
    first = (tmp_path / "s.npz").read_bytes()
    read = load_statistics(tmp_path / "s.npz")
    assert (read.model, read.shards, read.rows) == (found.model, ("2/3",), found.rows)
    for name, values in _tensors(found.sums).items():
        assert torch.equal(values, _tensors(read.sums)[name])
    np.testing.assert_array_equal(read.curvature.total, found.curvature.total)
    read.save(tmp_path / "s.npz")
    assert (tmp_path / "s.npz").read_bytes() == first


METHODS = [
    cc.Vanilla(0.1),
    cc.Global(0.05),
    cc.Gated(0.05, "top_fraction:0.5"),
    cc.Gated(0.01, estimator="mean_ratio", penalty="exact"),
]


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_a_step_of_merged_statistics_is_a_full_batch_step(model: cc.Model, rows: np.ndarray, method: cc.Method) -> None:
    exact = model.to(dtype=torch.float64)
    merged = merge_statistics(shards(exact, rows, 3))
    plan = Plan(exact.program, [method], exact.params.weights[0], data_weight=101.0)
    sums = statistics(exact, rows).sums
    mu = 0.0 if isinstance(method, cc.Vanilla) else float(method.mu)
    expected = plan.maximize(exact.params, sums, [0.7], [mu])
    found = merged.maximize(exact, method, step_size=0.7)
    for one, other in zip(found.params.weights, expected.weights, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-14)
    for one, other in zip(found.params.inputs, expected.inputs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-14)
    plain = merged.maximize(exact)
    assert plain.log_prob(rows).mean() > exact.log_prob(rows).mean()  # a step of EM never makes it worse


def test_a_model_in_float32_stays_in_float32(model: cc.Model, rows: np.ndarray) -> None:
    after = merge_statistics(shards(model, rows, 2)).maximize(model)
    assert after.dtype == torch.float32
    assert after.schema == model.schema


def test_every_row_is_in_exactly_one_shard() -> None:
    for rows in (7, 20, 101):
        for count in range(1, rows + 1):
            cuts = [shard_rows(rows, number, count) for number in range(1, count + 1)]
            assert [row for part in cuts for row in range(rows)[part]] == list(range(rows))
            assert max(s.stop - s.start for s in cuts) - min(s.stop - s.start for s in cuts) <= 1


def test_what_does_not_add_up_is_refused(model: cc.Model, rows: np.ndarray) -> None:
    parts = shards(model, rows, 3)
    other = statistics(parts[0].maximize(model), rows, shard=(2, 3))
    refused = {
        "there are no statistics": [],
        "shard 1/3 is given twice": [parts[0], parts[1], parts[0]],
        "measured with different models": [parts[0], other],
        "mixed \\(2 in statistics 2, 3 in statistics 1\\)": [parts[0], statistics(model, rows, shard=(2, 2))],
    }
    for message, given in refused.items():
        with pytest.raises(OptionError, match=message):
            merge_statistics(given)
    with pytest.raises(OptionError, match="another model"):
        other.maximize(model)
    with pytest.raises(OptionError, match="mu must be a number"):
        parts[0].maximize(model, cc.Gated("auto"))
    with pytest.raises(OptionError, match=r"shard must be i/n with 1 <= i <= n, not 4/3"):
        statistics(model, rows, shard=(4, 3))
    with pytest.raises(OptionError, match="only 101 rows"):
        statistics(model, rows, shard=(1, 500))


def test_rows_of_ones_own_are_told_apart_by_their_values(model: cc.Model, rows: np.ndarray) -> None:
    mine, yours = statistics(model, rows[:40]), statistics(model, rows[40:])
    merged = merge_statistics([yours, mine])
    assert_close(merged, statistics(model, rows), 1e-12)
    with pytest.raises(OptionError, match="is given twice"):
        merge_statistics([mine, statistics(model, rows[:40])])


def test_rows_that_would_count_twice_are_refused_with_the_names_of_the_files(
    model: cc.Model, rows: np.ndarray, tmp_path: Path
) -> None:
    def save(name: str, found: ShardStatistics) -> Path:
        found.save(tmp_path / name)
        return tmp_path / name

    whole, first, *rest = (statistics(model, rows), *shards(model, rows, 3))
    everything, third = save("all.npz", whole), save("third.npz", first)
    copied = save("copy.npz", statistics(model, rows[:33]))  # the rows of the first shard as a table of their own
    others = save("others.npz", merge_statistics(rest))
    refused = {
        "all rows of a table and its shard 1/3 are given": [everything, third],
        "all rows of a table and its shard 2/3 are given": [others, everything],
        "the same rows are given twice": [copied, third],
        f"shard {whole.shards[0]} is given twice": [everything, everything],
    }
    for message, paths in refused.items():
        for given in (paths, paths[::-1]):
            wanted = (
                rf"{message} \({re.escape(str(given[0]))} and {re.escape(str(given[1]))}\), so rows would count twice"
            )
            with pytest.raises(OptionError, match=wanted):
                merge_files(given)
    assert merge_files([third, others]).rows == 101


def test_all_rows_of_a_stream_and_a_shard_of_the_same_rows_in_memory_are_refused(
    model: cc.Model, rows: np.ndarray
) -> None:
    whole, shard = statistics(model, cc.open_stream(rows)), statistics(model, rows, shard=(2, 3))
    for given in ([whole, shard], [shard, whole]):
        with pytest.raises(OptionError, match=r"all rows of a table and its shard 2/3 are given \(statistics 1 and"):
            merge_statistics(given)


def test_equal_rows_in_different_shards_of_a_table_are_no_mistake(model: cc.Model) -> None:
    repeated = np.zeros((20, 5))
    assert merge_statistics(shards(model, repeated, 2)).rows == 20


def test_a_table_is_the_same_whatever_type_it_was_read_as(model: cc.Model, rows: np.ndarray) -> None:
    known = np.nan_to_num(rows)
    known[:, 0] = 0  # no row is without a value below
    names = {statistics(model, known.astype(dtype)).shards for dtype in ("float64", "float32", "int16")}
    assert len(names) == 1
    assert statistics(model, known, missing=2).shards not in names
    assert statistics(model, cc.Examples(known, np.full(101, 2.0))).shards not in names


def test_files_without_digests_are_still_merged(model: cc.Model, rows: np.ndarray, tmp_path: Path) -> None:
    paths = []
    for number, part in enumerate(shards(model, rows, 2)):
        paths.append(tmp_path / f"{number}.npz")
        part.save(paths[-1])
        with np.load(paths[-1]) as stored:
            np.savez(paths[-1], **{name: stored[name] for name in stored.files if name != "digests"})
    assert merge_files(paths).rows == 101


def test_damaged_files_are_refused(
    model: cc.Model, rows: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.npz"
    with pytest.raises(FileAccessError, match="cannot read"):
        load_statistics(path)
    found = statistics(model, rows)
    found.save(path)
    whole = path.read_bytes()
    for content in (b"", whole[: len(whole) // 2], whole[:50] + b"\0" * 20 + whole[70:]):
        path.write_bytes(content)
        with pytest.raises(FileFormatError, match=r"s\.npz: "):
            load_statistics(path)
    broken = replace(found.sums, counts=tuple(c * torch.nan for c in found.sums.counts))
    replace(found, sums=broken).save(path)
    with pytest.raises(FileFormatError, match="not finite"):
        load_statistics(path)
    path.write_bytes(whole)
    monkeypatch.setattr(bounds, "FREE_BYTES", 10)
    monkeypatch.setattr(bounds, "MAX_RATIO", 0)
    with pytest.raises(FileFormatError, match="trust=True"):
        load_statistics(path)
