"""Questions about the rows of a stream are answered as those about a table in memory; what cannot be, says so."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import circurve as cc
from circurve.data import columns_of

pytest.importorskip("pyarrow")

RNG = np.random.default_rng(0)
ROWS = 120
FRAME = pd.DataFrame(
    {
        "city": np.array(["Oslo", "Rome", None], dtype=object)[RNG.integers(0, 3, ROWS)],
        "count": RNG.integers(0, 4, ROWS).astype(float),
        "rain": RNG.random(ROWS) < 0.5,
        "degrees": RNG.normal(size=ROWS).round(2),
        "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(RNG.integers(0, 90, ROWS), "D"),
    }
)
FRAME.loc[::9, ["degrees", "count"]] = None
FRAME.loc[:40, "count"] = FRAME.loc[:40, "count"].fillna(1)  # the first pieces miss no count
HIDDEN = FRAME.assign(rain=FRAME["rain"].where(RNG.random(ROWS) < 0.5, None))
ARRAY = RNG.integers(0, 3, (ROWS, 4)).astype(float)
ARRAY[::5, 1] = np.nan


@pytest.fixture(scope="module")
def model():
    return cc.fit(cc.hclt(FRAME, units=3), FRAME, epochs=3, seed=0, valid=False).model


@pytest.fixture(scope="module")
def plain():
    return cc.fit(cc.hclt(ARRAY, units=3), ARRAY, epochs=3, seed=0, valid=False).model


@pytest.fixture
def stream(tmp_path, monkeypatch):
    monkeypatch.setattr("circurve.data.readers.BLOCK_ROWS", 20)
    monkeypatch.setattr(cc.Stream, "__array__", None)  # nothing may load all of it
    FRAME.to_parquet(tmp_path / "rows.parquet", row_group_size=20)
    return cc.open_stream(tmp_path / "rows.parquet")


QUESTIONS = {
    "mean": lambda model, rows: model.mean(rows),
    "variance": lambda model, rows: model.variance(rows),
    "covariance": lambda model, rows: model.covariance(rows),
    "most probable": lambda model, rows: model.most_probable(rows).rows,
    "bounds": lambda model, rows: model.most_probable(rows).bound,
    "explain": lambda model, rows: model.explain(rows),
    "impute": lambda model, rows: model.impute(rows),
    "impute modes": lambda model, rows: model.impute(rows, "mode"),
    "marginal": lambda model, rows: model.marginal(rows),
    "conditional": lambda model, rows: model.conditional(rows, log=True),
}
HELD_OUT = {
    "conditional": lambda model, rows: model.conditional({"rain": True}, given=rows),
    "interval": lambda model, rows: model.interval({"degrees": (0, None), "rain": (True, None)}, given=rows),
    "states": lambda model, rows: model.distribution("rain", given=rows),
    "quantile": lambda model, rows: model.quantile("degrees", 0.5, given=rows),
    "quantiles": lambda model, rows: model.quantile("degrees", [0.1, 0.9], given=rows),
    "grid": lambda model, rows: model.distribution("degrees", given=rows, points=4),
}


def same(found, wanted):
    assert type(found) is type(wanted)
    if isinstance(wanted, pd.DataFrame):
        pd.testing.assert_frame_equal(found, wanted, rtol=1e-5, atol=1e-6)
    else:
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("question", QUESTIONS)
def test_rows_of_a_file_are_answered_as_those_of_a_table(model, stream, question):
    ask = QUESTIONS[question]
    same(ask(model, stream), ask(model, cc.Examples(FRAME)))


@pytest.mark.parametrize("question", HELD_OUT)
def test_evidence_in_a_stream_is_that_of_a_table(model, stream, question, tmp_path):
    ask, names = HELD_OUT[question], ["city", "count", "day"]
    same(ask(model, cc.open_stream(tmp_path / "rows.parquet", columns=names)), ask(model, cc.Examples(FRAME[names])))


def test_a_mapped_array_is_answered_with_an_array(plain, tmp_path, monkeypatch):
    monkeypatch.setattr("circurve.data.stream.PIECE", 100)
    np.save(tmp_path / "rows.npy", ARRAY)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    for question, ask in QUESTIONS.items():
        found, wanted = ask(plain, mapped), ask(plain, ARRAY)
        assert type(found) is type(wanted), question
        for one, other in zip(columns_of(found).values(), columns_of(wanted).values(), strict=True):
            if np.asarray(other).dtype.kind in "biuf":
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6, err_msg=question)
            else:
                assert list(one) == list(other), question


def test_draws_of_pieces_are_independent_and_repeatable(model, stream):
    first, again = (model.impute(stream, "sample", seed=3) for _ in range(2))
    pd.testing.assert_frame_equal(first, again)
    several = model.impute(stream, "sample", draws=2, seed=3)
    assert [len(table) for table in several] == [ROWS, ROWS]
    assert not several[0].equals(several[1])
    drawn = model.sample(50, given=stream.rows(range(2)), seed=0)
    assert len(drawn) == 100
    known = FRAME["degrees"].notna().to_numpy()
    np.testing.assert_allclose(first["degrees"][known], FRAME["degrees"][known], rtol=1e-6)
    empty = cc.open_stream([np.full((30, 5), np.nan)] * 2)
    names = list(FRAME)
    pieces = [pd.DataFrame(np.full((30, 5), np.nan), columns=names)] * 2
    filled = model.impute(cc.open_stream(pieces), "sample", seed=0)
    assert empty.shape == (60, 5)
    assert not filled["degrees"][:30].equals(filled["degrees"][30:].reset_index(drop=True))


def test_messages_count_rows_from_the_first_of_all(model, tmp_path):
    odd = FRAME.assign(city=["Oslo"] * (ROWS - 1) + ["Kyiv"])
    odd.to_parquet(tmp_path / "odd.parquet", row_group_size=20)
    with pytest.raises(cc.DataError, match=f"row {ROWS}: 'Kyiv' was not seen in training"):
        model.mean(cc.open_stream(tmp_path / "odd.parquet"))


def test_what_needs_a_table_refuses_a_stream(model, plain, stream, tmp_path):
    mixed = cc.Models([model, model])
    estimator = cc.DensityEstimator(2, max_epochs=1).fit(ARRAY)
    batches = cc.open_stream([ARRAY[:50], ARRAY[50:]])
    refused = [
        lambda: mixed.mean(stream),
        lambda: mixed.log_prob(stream),
        lambda: cc.report(model, stream),
        lambda: model.align(stream),
        lambda: cc.Examples(stream),
        lambda: cc.fit_ensemble(stream, units=2),
        lambda: estimator.score_samples(batches),
    ]
    for ask in refused:
        with pytest.raises(cc.DataError, match=r"pass some rows at a time, `for piece in stream\.pieces\(\)`"):
            ask()
    with pytest.raises(cc.OptionError, match="target and given cannot both be streams"):
        model.conditional(stream, given=stream)
    with pytest.raises(cc.DataError, match="not a str; read the file with load_data"):
        cc.Examples("rows.parquet")
