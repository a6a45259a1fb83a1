import subprocess
import sys

import pytest

import circurve as cc


@pytest.mark.parametrize("name", ["CircuitClassifier", "CircuitImputer", "DensityEstimator", "OutlierDetector"])
def test_estimators_are_public(name):
    assert getattr(cc, name).__name__ == name
    assert name in cc.__all__


def test_unknown_name():
    with pytest.raises(AttributeError, match="module 'circurve' has no attribute 'Regressor'"):
        _ = cc.Regressor


def test_scikit_learn_is_loaded_on_first_use():
    code = "import sys, circurve; circurve.fit; print('sklearn' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert shown.strip() == "False"
