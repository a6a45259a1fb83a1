"""scikit-learn's own checks of every estimator."""

import warnings

from sklearn.utils.estimator_checks import parametrize_with_checks

import circurve as cc

ROWS_ARE_DRAWN = (
    "The rows held out for early stopping and the rows that units start from are drawn one by one: "
    "a row of weight 2 is drawn as one row, two equal rows as two."
)


KINDS = (cc.DensityEstimator, cc.CircuitClassifier, cc.CircuitImputer, cc.OutlierDetector)
"""With few units and epochs: the checks train each of them some hundred times."""


def explained(estimator: object) -> dict[str, str]:
    if isinstance(estimator, cc.DensityEstimator | cc.CircuitImputer):
        return {}
    return {"check_sample_weight_equivalence_on_dense_data": ROWS_ARE_DRAWN}


@parametrize_with_checks(
    [kind(n_units=3, max_epochs=5) for kind in KINDS],
    expected_failed_checks=explained,
)
def test_scikit_learn_checks(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cc.CircurveWarning)
        check(estimator)
