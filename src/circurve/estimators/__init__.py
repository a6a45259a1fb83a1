"""The scikit-learn face: density, classification, imputation and outliers as estimators."""

from circurve.errors import needs

with needs("sklearn", "circurve.estimators"):
    from circurve.estimators.classifier import CircuitClassifier
    from circurve.estimators.density import DensityEstimator
    from circurve.estimators.imputer import CircuitImputer
    from circurve.estimators.outlier import OutlierDetector

__all__ = ["CircuitClassifier", "CircuitImputer", "DensityEstimator", "OutlierDetector"]
