import numpy as np
import pytest
from scipy import stats
from tables import FAST, iris

import circurve as cc


def clean_and_strange() -> tuple[np.ndarray, np.ndarray]:
    """Points on a ring, and points inside it that no single column gives away."""
    random = np.random.default_rng(0)
    angle = random.uniform(0, 2 * np.pi, 500)
    ring = np.column_stack([np.cos(angle), np.sin(angle)]) + random.normal(0, 0.05, (500, 2))
    return ring, random.normal(0, 0.1, (50, 2))


def true_log_density(x: np.ndarray) -> np.ndarray:  # (N, 2) -> (N,)
    """Of the ring: an average of normal densities around its points."""
    angle = np.linspace(0, 2 * np.pi, 1000, endpoint=False)
    centres = np.column_stack([np.cos(angle), np.sin(angle)])
    return stats.norm.logpdf(x[:, None] - centres, scale=0.05).sum(-1).max(1)  # the nearest point has most of it


@pytest.mark.parametrize("seed", [0, 1])
def test_finds_what_the_true_density_finds(seed):
    """Each column by itself gives none of these rows away; the joint distribution gives away all of them."""
    ring, inside = clean_and_strange()
    detector = cc.OutlierDetector(random_state=seed, contamination=0.02).fit(ring[:400])
    least = np.quantile(true_log_density(ring[:400]), 0.02)
    assert (true_log_density(inside) < least).all()
    assert (detector.predict(inside) == -1).all()
    assert (detector.predict(ring[400:]) == 1).mean() > 0.85


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_contamination_is_the_share_of_training_rows(share):
    x = iris()[0] + np.random.default_rng(0).normal(0, 1e-6, (150, 4))  # no ties
    detector = cc.OutlierDetector(**FAST, contamination=share).fit(x)
    assert (detector.predict(x) == -1).mean() == pytest.approx(share)
    np.testing.assert_allclose(detector.decision_function(x), detector.score_samples(x) - detector.offset_)


def test_threshold_counts_weights():
    x = np.random.default_rng(0).normal(size=(200, 1))
    far = np.abs(x[:, 0]) > 1.5
    detector = cc.OutlierDetector(**FAST, contamination=0.1).fit(x, sample_weight=np.where(far, 10.0, 1.0))
    weight = np.where(far, 10.0, 1.0)
    assert weight[detector.predict(x) == -1].sum() / weight.sum() <= 0.1


@pytest.mark.parametrize("share", [0.0, 0.6, "some", -1])
def test_wrong_contamination(share):
    with pytest.raises(cc.OptionError, match=r"contamination must be 'auto' or a number above 0 and up to 0\.5"):
        cc.OutlierDetector(**FAST, contamination=share).fit(iris()[0])


def test_missing_values_are_no_outliers_by_themselves():
    x, _ = iris()
    detector = cc.OutlierDetector(**FAST).fit(x)
    assert detector.predict(np.full((1, 4), np.nan))[0] == 1
