"""Members grown for a mixture: the equation of the responsibilities, and that they help."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import circurve as cc
from circurve.learning.boost import responsibilities
from circurve.learning.mixture_weights import Scores, find_weights

logs = st.floats(-900, 0)


@given(mixture=logs, member=logs, share=st.floats(0.001, 0.999))
def test_responsibilities_are_those_of_a_mixture_of_two(mixture, member, share):
    p, q = np.exp(np.longdouble(mixture)), np.exp(np.longdouble(member))
    expected = share * q / ((1 - share) * p + share * q)
    found = responsibilities(np.array([mixture]), np.array([member]), share)
    assert found[0] == pytest.approx(float(expected), rel=1e-9, abs=1e-12)


def test_a_row_that_is_impossible_for_the_mixture_is_the_members():
    found = responsibilities(np.array([-np.inf, -np.inf, -1.0]), np.array([-3.0, -np.inf, -np.inf]), 0.1)
    np.testing.assert_array_equal(found, [1, 1, 0])


def test_alternating_with_the_best_member_for_its_rows_raises_the_likelihood():
    """The equation itself, with a member whose M-step is exact: independent columns, fitted in one step."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.random((150, 4)) < 0.8, rng.random((50, 4)) < [0.1, 0.1, 0.9, 0.9]]).astype(int)
    circuit, step = cc.fully_factorized(4), {"batch_size": None, "epochs": 1, "progress": False, "precision": "float64"}
    fixed = cc.fit(circuit, x[:150], **step).model.log_prob(x)
    share, member, reached = 0.5, float(fixed.mean()), []
    for _ in range(6):
        weights = responsibilities(fixed, member, share)
        member = cc.fit(circuit, x, weights=weights, **step).model.log_prob(x)
        share = weights.mean()
        reached.append(np.logaddexp(np.log1p(-share) + fixed, np.log(share) + member).mean())
    assert (np.diff(reached) >= -1e-12).all()
    assert reached[-1] > fixed.mean() + 0.1


def test_grown_members_explain_rows_that_the_first_one_misses():
    """One unit cannot tell two kinds of rows apart; a second member of one unit can take one kind over."""
    rng = np.random.default_rng(1)
    kinds = np.array([[0.9] * 6, [0.1] * 6])
    x = (rng.random((600, 6)) < kinds[(np.arange(600) % 3 == 0).astype(int)]).astype(int)
    options = {"units": 1, "epochs": 15, "trees": "same", "progress": False, "device": "cpu", "pseudocounts": 0.003}
    alone = cc.fit_ensemble(x[:400], valid=x[400:], members=1, **options)
    grown = cc.fit_ensemble(x[:400], valid=x[400:], members=2, boosted=1, **options)
    beside = cc.fit_ensemble(x[:400], valid=x[400:], members=2, **options)
    assert len(grown.members) == 2
    assert grown.valid_ll > alone.valid_ll + 0.3
    assert grown.valid_ll > beside.valid_ll + 0.3
    log_prob = np.stack([part.log_prob(x[400:]) for part in cc.learning.components(grown.model)[0]])
    scores = Scores(log_prob.astype(np.float64), np.ones(200))
    np.testing.assert_allclose(grown.weights, find_weights(scores, "em"), atol=1e-3)
