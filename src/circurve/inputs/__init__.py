"""Input families: univariate distributions with their E- and M-step."""

from circurve.inputs.bernoulli import Bernoulli
from circurve.inputs.family import LOG_ZERO, Family

__all__ = ["LOG_ZERO", "Bernoulli", "Family"]
