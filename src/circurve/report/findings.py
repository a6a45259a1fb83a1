"""The three most important things to know about a model, in sentences that hold whatever the numbers are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from circurve.curvature import Curvature, concentration, depth_profile, reversals
from circurve.curvature.measure import DOMINANT_FLOOR_SHARE
from circurve.learning.history import EpochRecord
from circurve.report.record import Finding

__all__ = ["Evidence", "Score", "conclude", "sentences"]

MAX_STANDARD_ERRORS = 2.0
"""A gap of at most this many standard errors is explained by the random choice of rows."""

SLIGHT_OVERFITTING = 0.01
"""A gap of less than this share of the validation score is called slight, where all columns are discrete."""

MIN_RECENT_GAIN = 0.02
"""Validation still rises if the last tenth of the epochs brought more than this share of what all epochs brought."""

HELD = 0.9
"""The share of the trace for which the number of nodes is told."""


@dataclass(frozen=True)
class Score:
    """The mean log-likelihood of some rows."""

    mean: float
    standard_error: float
    rows: int
    impossible: int = 0
    """Rows of probability zero, which the mean leaves out."""


@dataclass(frozen=True)
class Evidence:
    """What the conclusion is drawn from."""

    part: str
    """What the measured rows are: `training`, `validation`, `test` or "" if it is not known."""

    measured: Score
    held_out: Score | None
    """The score of validation rows; it is only compared with training rows."""

    discrete: bool
    """Whether all columns are discrete, so that log-likelihoods are below zero."""

    curvature: Curvature
    """With the estimate of t that is shown."""

    floor_share: float | None
    """The share of the mean of t that edges of weight near zero make up."""

    labels: Mapping[int, str]
    """What each sum is about, by its place in `circuit.nodes`."""

    history: tuple[EpochRecord, ...] = ()
    epoch: int | None = None
    """The epoch whose parameters the model has, where it is known."""


def conclude(evidence: Evidence) -> tuple[Finding, ...]:
    """Fit against validation; where the sharpness sits, if there are sums; what to try."""
    found = [_fit(evidence)]
    if len(evidence.curvature) and 0 < evidence.curvature.trace < math.inf:
        found.append(_sharpness(evidence))
    return (*found, _advice(evidence))


def sentences(findings: tuple[Finding, ...]) -> list[str]:
    """One paragraph for each finding."""
    return [f"{finding.headline} {finding.text}".strip() for finding in findings]


def _gap(evidence: Evidence) -> float | None:
    """How much higher training rows score than validation rows; None if one of the two is not known."""
    if evidence.held_out is None or not math.isfinite(evidence.measured.mean - evidence.held_out.mean):
        return None
    return evidence.measured.mean - evidence.held_out.mean


def _overfits(evidence: Evidence) -> bool:
    gap = _gap(evidence)
    return gap is not None and gap > MAX_STANDARD_ERRORS * _error_of_gap(evidence)


def _error_of_gap(evidence: Evidence) -> float:
    assert evidence.held_out is not None
    return math.hypot(evidence.measured.standard_error, evidence.held_out.standard_error)


def _fit(evidence: Evidence) -> Finding:
    score, held, gap = evidence.measured, evidence.held_out, _gap(evidence)
    rows = f"{score.rows:,} {evidence.part} rows".replace("  ", " ")
    left_out = _left_out(score)
    if held is None or gap is None:
        what = f"The {rows} score {_nats(score.mean)} on average{left_out}."
        return Finding("fit", what, "Without validation rows, we cannot tell whether the model overfits.")
    scores = (
        f"The {rows} score {_nats(score.mean)} on average{left_out}, the {held.rows:,} validation rows "
        f"{_nats(held.mean)}{_left_out(held)}"
    )
    error = _error_of_gap(evidence)
    if gap <= MAX_STANDARD_ERRORS * error:
        near = f"a gap of {gap:,.2f}" if gap > 0 else f"{-gap:,.2f} more"
        text = f"{scores}: {near}, which is within the error of these means ({MAX_STANDARD_ERRORS * error:,.2f})."
        return Finding("fit", "There is no sign of overfitting.", text)
    share = gap / abs(held.mean) if evidence.discrete and held.mean else None
    relative = "" if share is None else f" is {share:.1%} of the validation score and"
    word = "overfits slightly" if share is not None and share < SLIGHT_OVERFITTING else "overfits"
    headline = f"The model {word}: validation rows score {gap:,.2f} nats lower than training rows."
    return Finding("fit", headline, f"{scores}. The gap{relative} has a standard error of {error:,.2f}.")


def _left_out(score: Score) -> str:
    return f" ({score.impossible:,} of probability zero left out)" if score.impossible else ""


def _sharpness(evidence: Evidence) -> Finding:
    curv = evidence.curvature
    held = concentration(curv, "total").fraction_for(HELD)
    count = max(round(held * len(curv)), 1)
    headline = (
        f"{HELD:.0%} of the sharpness sits in {count:,} of {len(curv):,} sum nodes ({_percent(count / len(curv))})."
    )
    first, sharpest = (int(curv.rank_by(by)[0]) for by in ("total", "local"))
    also = ", which is also the sharpest node by itself" if sharpest == first and len(curv) > 1 else ""
    text = (
        f"The largest contribution to the trace of {_short(curv.trace)} is {_percent(curv.total[first] / curv.trace)}, "
        f"from {_node(evidence, first)}{also}.{_depth(curv)}"
    )
    if sharpest != first:
        share = _percent(curv.total[sharpest] / curv.trace)
        text += f" The sharpest node by itself, {_node(evidence, sharpest)}, adds {share}."
    if len(curv) > 1:
        differs = _percent(reversals(curv, 0).share)
        text += f" Own sharpness t and contribution T order {differs} of all pairs of nodes differently."
    return Finding("sharpness", headline, text)


def _node(evidence: Evidence, unit: int) -> str:
    ref = evidence.curvature.nodes[unit]
    label = evidence.labels.get(ref.node, ref.name)
    return label if label.startswith("the root") else f"unit {ref.unit} of {label}"


def _depth(curv: Curvature) -> str:
    """A sentence on the depth that holds most, where there are several depths."""
    profile = depth_profile(curv, "total")
    if len(profile.units) < 2:
        return ""
    most = int(np.argmax(profile.share))
    low, high = profile.depth_low[most], profile.depth_high[most]
    depth = f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
    return f" By depth, nodes at depth {depth} hold most, {_percent(profile.share[most])}."


def _advice(evidence: Evidence) -> Finding:
    best = _best_epoch(evidence)
    smooth = ""
    if evidence.floor_share is not None and evidence.floor_share > DOMINANT_FLOOR_SHARE:
        smooth = (
            f" Edges of weight near zero make up {_percent(evidence.floor_share)} of the exact mean of t: "
            "a small pseudocount (0.01) in training removes them."
        )
    if _gap(evidence) is None:
        if evidence.part not in ("", "training"):
            headline = "Compare with the training rows."
            return Finding("advice", headline, f"Measure them too, to see whether the model overfits.{smooth}")
        text = "Keep some rows out of training and pass them as validation rows, to see whether the model overfits."
        return Finding("advice", "Try validation rows first.", text + smooth)
    if best is not None:
        gain = (best.valid_ll or 0.0) - _last_valid(evidence)
        headline = f"Try an earlier stop: validation rows scored best in epoch {best.epoch:,}."
        text = f"That was {gain:,.2f} nats more than the model has now; select='best' or patience keeps that epoch."
        return Finding("advice", headline, text + smooth)
    if _rising(evidence):
        text = "In the last tenth of the epochs the validation score still rose."
        return Finding("advice", "Try more epochs.", text + smooth)
    if _overfits(evidence):
        return _against_overfitting(bool(evidence.history), smooth)
    text = "More units, or a mixture of several circuits (fit_ensemble), may gain more here than a penalty."
    return Finding("advice", "Try a larger model.", text + smooth)


def _against_overfitting(stopped_well: bool, smooth: str) -> Finding:
    """stopped_well: the history shows that no other epoch did better by validation."""
    then = (
        "In our measurements a small pseudocount (0.01) helped most, then fewer units. Gated(mu='auto') penalises the "
        "sharpest nodes, and keeps plain EM if that is as good by validation."
    )
    if stopped_well:
        text = f"No other epoch did clearly better by validation, so an earlier stop would not help. {then}"
        return Finding("advice", "Try a small pseudocount or fewer units.", text + smooth)
    text = f"Choosing the epoch by validation rows (select='best') comes first. {then}"
    return Finding("advice", "Try an earlier stop, a small pseudocount or fewer units.", text + smooth)


def _last_valid(evidence: Evidence) -> float:
    """The validation score of the epoch that the model has."""
    kept = [r.valid_ll for r in evidence.history if r.epoch == evidence.epoch and r.valid_ll is not None]
    return kept[0] if kept else evidence.held_out.mean if evidence.held_out is not None else math.nan


def _best_epoch(evidence: Evidence) -> EpochRecord | None:
    """The best epoch by validation, if it is clearly better than the one that the model has."""
    scored = [record for record in evidence.history if record.valid_ll is not None]
    if not scored or evidence.held_out is None:
        return None
    best = max(scored, key=lambda record: record.valid_ll or -math.inf)
    better = (best.valid_ll or 0.0) - _last_valid(evidence) > 0.1 * evidence.held_out.standard_error
    return best if best.epoch != evidence.epoch and better else None


def _rising(evidence: Evidence) -> bool:
    scores = [record.valid_ll for record in evidence.history if record.valid_ll is not None]
    if len(scores) < 10 or not all(map(math.isfinite, scores)):
        return False
    recent, gained = scores[-1] - scores[-1 - len(scores) // 10], scores[-1] - scores[0]
    return gained > 0 and recent > MIN_RECENT_GAIN * gained and scores[-1] == max(scores)


def _nats(value: float) -> str:
    return f"{value:,.2f} nats"


def _percent(share: float) -> str:
    """`12%`, `0.3%`, `less than 0.1%`."""
    percent = 100 * share
    if 0 < percent < 0.1:
        return "less than 0.1%"
    return f"{percent:.0f}%" if percent >= 9.95 or percent == 0 else f"{percent:.1f}%"


def _short(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= value < 1e7 else f"{value:.4g}"
