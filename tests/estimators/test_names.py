import pytest

import circurve as cc


@pytest.mark.parametrize("name", ["CircuitClassifier", "CircuitImputer", "DensityEstimator", "OutlierDetector"])
def test_estimators_are_public(name):
    assert getattr(cc, name).__name__ == name
    assert name in cc.__all__


def test_unknown_name():
    with pytest.raises(AttributeError, match="module 'circurve' has no attribute 'Regressor'"):
        _ = cc.Regressor
