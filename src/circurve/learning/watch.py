"""What has broken in an epoch: one answer for each run, from numbers that are on the host already."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from circurve.engine import Params, Program
from circurve.learning.finite import first_broken_node
from circurve.learning.history import Failure
from circurve.learning.methods import Gated, Method
from circurve.learning.steps import EpochSums

__all__ = ["broken_parameter", "broken_scores", "broken_steps", "describe_failure"]

SCORES = {"valid": "validation", "test": "test"}


def broken_steps(program: Program, params: Params, sums: EpochSums, methods: Sequence[Method]) -> dict[int, str]:
    """Place -> what broke in the steps of an epoch. The parameters are looked at only if a run's are not finite."""
    found: dict[int, str] = {}
    for place, method in enumerate(methods):
        reason = None
        if not sums.finite[place]:
            reason = broken_parameter(program, params, place)
        elif sums.broken[place]:
            count = int(sums.broken[place])
            samples = "1 training sample has" if count == 1 else f"{count} training samples have"
            reason = f"no parameter is broken, but {samples} a log-probability of NaN"
        elif isinstance(method, Gated) and math.isnan(sums.trace[place]):
            reason = "no parameter is broken, but the curvature that its gates follow is NaN"
        elif math.isnan(sums.train_ll(place)):
            reason = "no parameter is broken, but the training log-likelihood is NaN"
        if reason is not None:
            found[place] = reason
    return found


def broken_parameter(program: Program, params: Params, place: int) -> str:
    """Names the first node with a parameter that is not finite."""
    node = first_broken_node(program, params.select([place]).to("cpu"), 0)
    return f"{node}: a parameter is not finite"


def broken_scores(scores: Mapping[str, Sequence[float]]) -> dict[int, str]:
    """Place -> which held-out data have a log-likelihood of NaN."""
    found: dict[int, str] = {}
    for name, values in scores.items():
        for place, value in enumerate(values):
            if math.isnan(value):
                reason = f"no parameter is broken, but the {SCORES[name]} log-likelihood is NaN"
                found.setdefault(place, reason)
    return found


def describe_failure(name: str, failure: Failure, kept: int) -> str:
    """The warning about a run that failed; `kept` is the epoch whose parameters it keeps."""
    source = "its initial parameters" if kept == 0 else f"the parameters of epoch {kept}"
    return f"{name} failed in epoch {failure.epoch}: {failure.reason}; it keeps {source}"
