"""Everything public that computes on a device does so on one that is not the CPU, on machines without a GPU too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from torch.utils import backend_registration

pytestmark = pytest.mark.skipif(
    not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="this torch has no devices written in Python",
)

PROGRAM = """
import json, sys, traceback, warnings
import pretended_gpu, test_every_device as devices, test_questions_gpu as questions
import numpy as np
import torch
import circurve as cc
import circurve.curvature, circurve.estimators, circurve.report

torch.set_num_threads(1)
kept = pretended_gpu.register()
warnings.simplefilter("ignore")
found = {}

def outcome(name, compare):
    try:
        compare()
        found[name] = "as on the CPU"
    except Exception as error:
        lines = [frame for frame in traceback.extract_tb(error.__traceback__) if "/circurve/" in frame.filename]
        found[name] = f"{type(error).__name__}: {error}" + "".join(f" at {x.filename}:{x.lineno}" for x in lines[-1:])

def of_cases(name):
    expected = devices.plain(devices.CASES[name]("cpu"))
    with pretended_gpu.present():
        answer = devices.CASES[name]("pretend")
        got = devices.plain(answer.cpu() if isinstance(answer, torch.Tensor) else answer)
    assert list(got) == list(expected)
    for column, values in expected.items():
        if name.endswith(".sample"):  # drawn by the device
            continue
        if values.dtype.kind == "f":
            np.testing.assert_allclose(got[column], values, rtol=1e-8, atol=1e-9, err_msg=column)
        else:
            np.testing.assert_array_equal(got[column], values, err_msg=column)

def of_questions(ask, model):
    expected = ask(model)
    with pretended_gpu.present():
        got = ask(model.to("pretend"))
    tolerance = 1e-9 if model.dtype == torch.float64 else 2e-4
    expected, got = devices.plain(expected), devices.plain(got)
    assert list(got) == list(expected)
    for column, values in expected.items():
        if values.dtype.kind == "f":
            np.testing.assert_allclose(got[column], values, rtol=tolerance, atol=tolerance, err_msg=column)
        else:
            assert got[column].tolist() == values.tolist()

for name in devices.CASES:
    outcome(name, lambda: of_cases(name))

table = questions.people(500)
circuit = cc.hclt(table, 8, schema=cc.infer_schema(table, types={"visits": "poisson"}))
model = cc.fit(circuit, table, epochs=5, batch_size=None, progress=False, valid=False, device="cpu").model
for dtype in (torch.float64, torch.float32):
    for name, ask in questions.QUESTIONS.items():
        outcome(f"{name} {dtype}", lambda: of_questions(ask, model.to(dtype=dtype)))

known = np.random.default_rng(0).random(300) < 0.5
counts = [np.random.default_rng(n).binomial(n, np.where(known, 0.3, 0.6)) for n in (70_000, 9_000)]
rows = np.stack([*counts, known], axis=1).astype(int)
circuit = cc.hclt(rows, 3, families=[cc.Binomial(70_000), cc.Binomial(9_000), cc.Bernoulli()])
model = cc.fit(circuit, rows, epochs=3, valid=False, progress=False, device="cpu").model
WIDE = {
    "most probable": lambda m: m.most_probable({0: (25_000, None), 2: 1}).log_prob,
    "explain": lambda m: m.explain(rows[:3]),
    "mean": lambda m: m.mean({0: (20_000, 21_000)}),
    "variance": lambda m: m.variance({1: (4_000, 5_000)}),
    "interval": lambda m: m.interval({0: (20_000, 21_000)}, {1: (None, 5_000)}),
    "quantile": lambda m: m.quantile(0, [0.1, 0.9], {1: (None, 5_000)}),
    "impute": lambda m: m.impute([[np.nan, 4_500, 1]], how="mode"),
    "sample": lambda m: len(m.sample(5, given={0: (20_000, 22_000)}, seed=0)),
}
for name, ask in WIDE.items():
    outcome(f"wide {name}", lambda: of_questions(ask, model))

def mixed():
    with pretended_gpu.present():
        torch.ones(2, device="pretend") + torch.ones(2)

def as_array():
    with pretended_gpu.present():
        np.asarray(torch.ones(2, device="pretend"))

outcome("mixed", mixed)
outcome("as an array", as_array)
print(json.dumps(found))
"""


def test_answers_do_not_depend_on_the_device_and_nothing_is_mixed():
    tests = Path(__file__).parent
    search = os.pathsep.join([str(tests), str(tests / "queries"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "PYTHONPATH": search},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert "on pretend:0 and on the CPU" in found.pop("mixed")  # the device itself works
    assert "can't convert pretend:0" in found.pop("as an array")
    assert len(found) > 90
    assert {name: what for name, what in found.items() if what != "as on the CPU"} == {}
