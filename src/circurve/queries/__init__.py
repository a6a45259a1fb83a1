"""Exact questions to circuits with parameters, on coded tables, for all rows and runs at once."""

from circurve.queries.conditional import conditional, joined, marginal
from circurve.queries.distribution import Distribution, MixtureDistribution, StateDistribution, distribution
from circurve.queries.evidence import Evidence, make_evidence, no_evidence
from circurve.queries.moments import covariance, mean, mean_and_variance, variance
from circurve.queries.sample import sample
from circurve.queries.target import Target

__all__ = [
    "Distribution",
    "Evidence",
    "MixtureDistribution",
    "StateDistribution",
    "Target",
    "conditional",
    "covariance",
    "distribution",
    "joined",
    "make_evidence",
    "marginal",
    "mean",
    "mean_and_variance",
    "no_evidence",
    "sample",
    "variance",
]
