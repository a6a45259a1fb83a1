"""Questions at the edges of what numbers and times can say."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from scipy import stats

import circurve as cc

pl = pytest.importorskip("polars")


def test_quantiles_far_in_a_tail_are_those_of_the_tail() -> None:
    leaf = cc.Input(0, cc.Gaussian(), 1)
    model = cc.Model.from_parameters(cc.Circuit(cc.Sum(leaf)), inputs={leaf: [[0.0, 1.0]]})
    for level in (1e-11, 1e-12, 1e-13, 1e-100, 1e-300):
        assert model.quantile(0, level) == pytest.approx(stats.norm.ppf(level), rel=1e-6)
    assert model.quantile(0, 1 - 1e-12) == pytest.approx(stats.norm.ppf(1 - 1e-12), rel=1e-5)
    coin = cc.Input(0, cc.Bernoulli(), 1)
    certain = cc.Model.from_parameters(cc.Circuit(cc.Sum(coin)), inputs={coin: [[1.0]]})
    assert certain.quantile(0, 1e-13) == 1


@pytest.mark.parametrize("width", [1e-1, 1e-4, 1e-9])
@pytest.mark.parametrize("low", [1.0, 1000.0])
def test_a_narrow_interval_in_a_float32_model_has_its_probability(width: float, low: float) -> None:
    """float32 knows no number between 1000 and 1000.00006."""
    leaf, city = cc.Input(0, cc.Gaussian(), 1), cc.Input(1, cc.Bernoulli(), 1)
    circuit = cc.Circuit(cc.Sum(cc.Product([leaf, city])))
    model = cc.Model.from_parameters(circuit, inputs={leaf: [[low, 4.0]], city: [[0.25]]}, dtype=torch.float32)
    ends = (low, low + width)
    expected = (ends[1] - low) / np.sqrt(2 * np.pi * 4)
    assert model.interval({0: ends}) == pytest.approx(expected, rel=1e-3)
    assert model.conditional({1: 1}, {0: ends}) == pytest.approx(0.25, rel=1e-5)
    mean = model.mean({0: ends}).iloc[0, 0]
    assert ends[0] <= mean <= ends[1]


@pytest.mark.parametrize("zone", ["America/New_York", "-03:30", None])
@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_times_keep_their_time_zone(zone: str | None, kind: str) -> None:
    times = pd.Series(pd.date_range("2020-03-07", periods=60, freq="7h")).dt.tz_localize("UTC")
    start = times if zone is None else times.dt.tz_convert(zone)
    rows = pd.DataFrame({"at": start.dt.tz_localize(None) if zone is None else start, "x": np.arange(60.0)})
    circuit = cc.hclt(rows, 2)
    model = cc.fit(circuit, rows, epochs=2, progress=False, valid=False).model
    holes = rows.head(4).copy()
    holes.loc[1, "at"] = pd.NaT
    if kind == "polars" and zone == "-03:30":
        pytest.skip("polars has no such zone")
    given = {"pandas": lambda: holes, "polars": lambda: pl.from_pandas(holes), "pyarrow": lambda: pa.table(holes)}[
        kind
    ]()
    filled = model.impute(given)
    back = filled if kind == "pandas" else filled.to_pandas()
    assert back["at"].drop(1).tolist() == rows["at"].head(4).drop(1).tolist()
    first, last = back["at"].iloc[[0, -1]], rows["at"].iloc[[0, 3]]
    assert [moment.utcoffset() for moment in first] == [moment.utcoffset() for moment in last]  # zones have many names
    utc = model.impute(pd.DataFrame({"x": [1.0]}))["at"][0].tz_localize("UTC")
    hole = back["at"][1].tz_localize("UTC") if zone is None else back["at"][1]
    assert abs(hole - utc) < pd.Timedelta("1s")
