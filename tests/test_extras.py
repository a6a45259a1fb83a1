"""What is core works without the extras, and every other feature says which extra it needs."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

import pytest

EXTRAS = {
    "cli": ("typer", "rich"),
    "data": ("requests", "platformdirs"),
    "pandas": ("pandas",),
    "plots": ("matplotlib",),
    "polars": ("polars",),
    "pyarrow": ("pyarrow",),
    "sklearn": ("sklearn",),
}
BLOCKED = [name for names in EXTRAS.values() for name in names]

SLOW = ("scipy.special", "scipy.stats", "scipy.sparse", "triton", "torch._dynamo", "torch._inductor", "IPython")
"""Not needed before something is computed with them."""

PRELUDE = f"""
import sys
sys.modules.update(dict.fromkeys({BLOCKED!r}))  # None: an import of it fails
import os
os.environ.pop("CIRCURVE_CACHE", None)
import numpy as np
import circurve as cc
X = np.random.default_rng(0).integers(0, 2, (40, 3))
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", dedent(code)], capture_output=True, text=True, timeout=120, check=False
    )


def test_training_queries_curvature_and_files_need_no_extra(tmp_path):
    done = run(
        f"""{PRELUDE}
model = cc.fit(cc.hclt(X, units=2), X, epochs=1, device="cpu").model
model.save({str(tmp_path / "m.safetensors")!r})
model = cc.load({str(tmp_path / "m.safetensors")!r})
assert len(model.log_prob(X)) == 40
assert abs(sum(model.conditional({{0: value}}, given={{1: 1}}) for value in (0, 1)) - 1) < 1e-6
assert [len(column) for column in model.sample(2, seed=0).values()] == [2, 2, 2]  # no data frames: a dictionary
assert cc.curvature(model, X).trace > 0
fleet = cc.fit_fleet(model.circuit, X, [cc.Run(), cc.Run(seed=1)], epochs=1, device="cpu")
print(type(fleet.ensemble(weights="uniform").model).__name__)
"""
    )
    assert done.stderr == ""
    assert (done.stdout, done.returncode) == ("Model\n", 0)


FEATURES = {
    "cc.DensityEstimator()": ("circurve.estimators needs sklearn", "sklearn"),
    "cc.plots.training_curves": ("circurve.plots needs matplotlib", "plots"),
    "cc.load_dataset('digits')": ("the data set digits needs sklearn", "sklearn"),
    "cc.load_dataset('nltcs')": ("the cache of data sets needs platformdirs", "data"),
    "__import__('circurve.cli')": ("the command circurve needs typer", "cli"),
    "cc.fit(cc.hclt(X, units=2), X, epochs=1, progress=True)": ("progress=True needs rich", "cli"),
    "cc.curvature(MODEL, X).to_pandas()": ("to_pandas needs pandas", "pandas"),
    "RESULT.to_frame()": ("to_frame needs pandas", "pandas"),
    "cc.load_data('x.parquet')": ("Parquet and Arrow files need pyarrow or polars", "pyarrow"),
}
"""Code, what it says without the package, and the extra."""


def test_each_feature_names_its_extra(tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    done = run(
        f"""{PRELUDE}
os.chdir({str(tmp_path)!r})
RESULT = cc.fit(cc.hclt(X, units=2), X, epochs=1, device="cpu")
MODEL = RESULT.model
for code in {list(FEATURES)!r}:
    try:
        eval(code)
    except cc.CircurveError as error:
        print(error)
"""
    )
    lines = done.stdout.splitlines()
    assert len(lines) == len(FEATURES), done.stderr
    for line, (words, extra) in zip(lines, FEATURES.values(), strict=True):
        assert words in line
        assert line.endswith(f"pip install 'circurve[{extra}]'")


def test_the_command_says_in_one_line_what_it_needs():
    done = run(f"{PRELUDE}\nfrom circurve.__main__ import main\nmain()")
    assert done.stderr == "circurve: error: the command circurve needs typer: pip install 'circurve[cli]'\n"
    assert (done.returncode, done.stdout) == (2, "")


def test_importing_the_package_imports_nothing_slow():
    done = run("import sys, torch, circurve\ncircurve.fit\nprint(*sys.modules)")
    plain = run("import sys, torch, numpy\nprint(*sys.modules)")
    new = set(done.stdout.split()) - set(plain.stdout.split())
    assert not new & {*BLOCKED, *SLOW}


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_metadata_has_every_extra_and_all_holds_them(extra):
    import tomllib
    from pathlib import Path

    declared = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {line.split(">")[0].replace("scikit-learn", "sklearn") for line in declared["optional-dependencies"][extra]}
    assert set(EXTRAS[extra]) <= names
    assert extra in declared["optional-dependencies"]["all"][0]
    assert not set(EXTRAS[extra]) & {line.split(">")[0] for line in declared["dependencies"]}
