"""Input families: univariate distributions with their E- and M-step.

Examples
--------
>>> import circurve as cc
>>> sorted(cc.inputs.FAMILIES)
['bernoulli', 'binomial', 'categorical', 'gaussian', 'indicator', 'poisson']
>>> list(cc.inputs.Bernoulli().support())
[0, 1]
"""

from circurve.inputs.bernoulli import Bernoulli
from circurve.inputs.binomial import Binomial
from circurve.inputs.categorical import Categorical
from circurve.inputs.families import FAMILIES, family_from_json, family_reader, family_to_json, register_family
from circurve.inputs.family import LOG_ZERO, Family
from circurve.inputs.gaussian import Gaussian
from circurve.inputs.indicator import Indicator
from circurve.inputs.poisson import Poisson

__all__ = [
    "FAMILIES",
    "LOG_ZERO",
    "Bernoulli",
    "Binomial",
    "Categorical",
    "Family",
    "Gaussian",
    "Indicator",
    "Poisson",
    "family_from_json",
    "family_reader",
    "family_to_json",
    "register_family",
]
