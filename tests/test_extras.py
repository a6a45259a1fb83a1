"""What is core works without the extras, and every other feature says which extra it needs."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

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
SLOW += ("jinja2", "circurve.report", "circurve.plots", "circurve.estimators")
"""Not needed before something is computed or shown with them."""

PRELUDE = f"""
import sys
sys.modules.update(dict.fromkeys({BLOCKED!r}))  # None: an import of it fails
import os
os.environ.pop("CIRCURVE_CACHE", None)
import numpy as np
import circurve as cc
X = np.random.default_rng(0).integers(0, 2, (40, 3))
"""


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)


CORE = """
model = cc.fit(cc.hclt(X, units=2), X, epochs=1, device="cpu").model
model.save("m.safetensors")
model = cc.load("m.safetensors")
assert len(model.log_prob(X)) == 40
assert abs(sum(model.conditional({0: value}, given={1: 1}) for value in (0, 1)) - 1) < 1e-6
assert [len(column) for column in model.sample(2, seed=0).values()] == [2, 2, 2]  # no data frames: a dictionary
assert cc.curvature(model, X).trace > 0
assert cc.data.as_table([[1, None]]).shape == (1, 2)
fleet = cc.fit_fleet(model.circuit, X, [cc.Run(), cc.Run(seed=1)], epochs=1, device="cpu")
print(type(fleet.ensemble(weights="uniform").model).__name__)
"""
"""What needs no extra; its last line prints "Model"."""

FEATURES = {
    "cc.DensityEstimator()": ("circurve.estimators needs sklearn", "sklearn"),
    "cc.plots.training_curves": ("circurve.plots needs matplotlib", "plots"),
    "cc.load_dataset('digits')": ("the data set digits needs sklearn", "sklearn"),
    "cc.load_dataset('nltcs')": ("the cache of data sets needs platformdirs", "data"),
    "__import__('circurve.cli')": ("the command circurve needs typer", "cli"),
    "cc.fit(cc.hclt(X, units=2), X, epochs=1, progress=True)": ("progress=True needs rich", "cli"),
    "cc.curvature(model, X).to_pandas()": ("to_pandas needs pandas", "pandas"),
    "fleet[0].to_frame()": ("to_frame needs pandas", "pandas"),
    "cc.load_data('x.parquet')": ("Parquet and Arrow files need pyarrow or polars", "pyarrow"),
}
"""Code, what it says without the package, and the extra."""

TRY_FEATURES = f"""
for code in {list(FEATURES)!r}:
    try:
        eval(code)
    except cc.CircurveError as error:
        print(error)
"""
COMMAND = "from circurve.__main__ import main\nmain()"


@pytest.fixture(scope="module")
def without_extras(tmp_path_factory):
    """What one process says without any extra: the core, then each feature, then the command."""
    folder = tmp_path_factory.mktemp("core")
    (folder / "x.parquet").write_bytes(b"PAR1")
    return run("\n".join([PRELUDE, CORE, TRY_FEATURES, COMMAND]), folder)


def test_training_queries_curvature_and_files_need_no_extra(without_extras):
    assert without_extras.stdout.startswith("Model\n"), without_extras.stderr


def test_each_feature_names_its_extra(without_extras):
    lines = without_extras.stdout.splitlines()[1:]
    assert len(lines) == len(FEATURES), without_extras.stderr
    for line, (words, extra) in zip(lines, FEATURES.values(), strict=True):
        assert words in line
        assert line.endswith(f"pip install 'circurve[{extra}]'")


def test_the_command_says_in_one_line_what_it_needs(without_extras):
    """And nothing else was written to the stream of errors."""
    wanted = "circurve: error: the command circurve needs typer: pip install 'circurve[cli]'\n"
    assert (without_extras.stderr, without_extras.returncode) == (wanted, 2)


def test_importing_the_package_imports_nothing_slow(tmp_path):
    """Also with the modules that compute curvature, and before the first use of a name that needs an extra."""
    code = "import sys, torch, numpy\nbefore = set(sys.modules)\nimport circurve, circurve.curvature.hessian\n"
    done = run(code + "circurve.fit\nprint(*set(sys.modules) - before)\ncircurve.DensityEstimator", tmp_path)
    assert done.returncode == 0, done.stderr
    new = set(done.stdout.split())
    assert "circurve.curvature.hessian" in new
    assert not new & {*BLOCKED, *SLOW}


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_metadata_has_every_extra_and_all_holds_them(extra):
    declared = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {line.split(">")[0].replace("scikit-learn", "sklearn") for line in declared["optional-dependencies"][extra]}
    assert set(EXTRAS[extra]) <= names
    assert extra in declared["optional-dependencies"]["all"][0]
    assert not set(EXTRAS[extra]) & {line.split(">")[0] for line in declared["dependencies"]}
