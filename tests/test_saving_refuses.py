"""Saving refuses what loading would refuse, before any file is touched."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from circurve import persistence
from circurve.engine import Params
from circurve.errors import FileFormatError, ParameterError
from circurve.graph import Circuit, Input, Sum
from circurve.inputs import Bernoulli
from circurve.model import Model, load

REFUSED = {
    "NaN in a weight": ("weights", [[np.nan, 1.0]], "Sum 'mix': a parameter is not finite"),
    "infinity in an input": ("inputs", [[np.inf], [0.5]], "Input 'coin': a parameter is not finite"),
    "a negative weight": ("weights", [[-0.5, 1.5]], "Sum 'mix': a weight is negative"),
    "weights off the simplex": ("weights", [[0.5, 0.6]], "Sum 'mix': the weights of unit 0 sum to 1.1, not to 1"),
    "weights off the simplex by a little": (
        "weights",
        [[0.5, 0.50002]],
        "Sum 'mix': the weights of unit 0 sum to 1.00002, not to 1",
    ),
    "a probability above one": ("inputs", [[0.5], [1.5]], r"Input 'coin': a probability is not between 0 and 1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_saving_refuses_what_loading_would_with_the_same_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    kind, block, message = REFUSED[name]
    coin = Input(0, Bernoulli(), 2, "coin")
    circuit = Circuit(Sum(coin, 1, name="mix"))
    good = Model.from_parameters(circuit, inputs={coin: [[0.2], [0.7]]})
    good.save(tmp_path / "m")
    before = (tmp_path / "m").read_bytes()
    values = torch.tensor(block, dtype=torch.float64)[None, None]
    params = Params((values,), good.params.inputs) if kind == "weights" else Params(good.params.weights, (values,))
    broken = Model(circuit, params)
    with pytest.raises(ParameterError, match=f"^{message}$"):
        broken.save(tmp_path / "m")
    assert (tmp_path / "m").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    monkeypatch.setattr(persistence, "check_parameters", lambda *_: None)  # a file from somewhere else
    broken.save(tmp_path / "m")
    with pytest.raises(FileFormatError, match=f"m: {message}$"):
        load(tmp_path / "m")


def test_weights_that_rounding_took_off_the_simplex_can_be_saved(tmp_path: Path) -> None:
    coin = Input(0, Bernoulli(), 2)
    circuit = Circuit(Sum(coin, name="mix"))
    good = Model.from_parameters(circuit, inputs={coin: [[0.2], [0.7]]})
    rounded = torch.tensor([[[[0.5, 0.500005]]]], dtype=torch.float64)
    Model(circuit, Params((rounded,), good.params.inputs)).save(tmp_path / "m")
    assert load(tmp_path / "m").weights("mix").sum() == pytest.approx(1.000005, abs=1e-12)
