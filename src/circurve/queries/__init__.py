"""Exact questions to circuits with parameters, on coded tables, for all rows and runs at once."""

from circurve.queries.completion import Completion, most_probable
from circurve.queries.conditionals import conditional, joined, marginal
from circurve.queries.distributions import Distribution, MixtureDistribution, StateDistribution, distribution
from circurve.queries.evidence import Evidence, make_evidence, no_evidence
from circurve.queries.explanation import Explanation, explain
from circurve.queries.imputation import IMPUTATIONS, Imputation, impute, modes
from circurve.queries.information import Estimate, entropy, mutual_information
from circurve.queries.limited import limited
from circurve.queries.moments import covariance, mean, mean_and_variance, variance
from circurve.queries.sampling import sample
from circurve.queries.target import Target

__all__ = [
    "IMPUTATIONS",
    "Completion",
    "Distribution",
    "Estimate",
    "Evidence",
    "Explanation",
    "Imputation",
    "MixtureDistribution",
    "StateDistribution",
    "Target",
    "conditional",
    "covariance",
    "distribution",
    "entropy",
    "explain",
    "impute",
    "joined",
    "limited",
    "make_evidence",
    "marginal",
    "mean",
    "mean_and_variance",
    "modes",
    "most_probable",
    "mutual_information",
    "no_evidence",
    "sample",
    "variance",
]
