"""The paper's claims, and ours, held against the records: every verdict is computed."""

from __future__ import annotations

from circurve.experiments import claims_curvature, claims_fit
from circurve.experiments.claim import OPENINGS, Check, Claim, ProtocolCheck, Shelves

__all__ = ["CLAIMS", "check_claims"]


def _each(check: ProtocolCheck) -> tuple[Check, ...]:
    """The check by each protocol."""
    return tuple(_by(check, protocol) for protocol in OPENINGS)


def _by(check: ProtocolCheck, protocol: str) -> Check:
    def judged(shelves: Shelves) -> Claim | None:
        return check(shelves, protocol)

    return judged


CLAIMS: tuple[Check, ...] = (
    claims_fit.vanilla_matches,
    claims_fit.best_reaches_the_paper,
    *_each(claims_fit.gated_keeps_the_fit),
    *_each(claims_fit.weakly_gated_keeps_the_fit),
    claims_fit.weakly_gated_keeps_the_fit_beside_smoothing,
    *_each(claims_fit.gated_helps_small_sets),
    *_each(claims_fit.global_underfits),
    *_each(claims_fit.smaller_strengths_rescue_global),
    *_each(claims_fit.gated_beats_global),
    claims_fit.early_stopping_wins,
    *_each(claims_fit.penalties_beat_smoothing),
    *_each(claims_fit.exact_updates_help),
    claims_fit.low_data_helps,
    claims_fit.low_data_helps_beside_stopping,
    *_each(claims_curvature.sharpness_falls),
    *_each(claims_curvature.overfitting_falls),
    *_each(claims_curvature.trace_is_concentrated),
    *_each(claims_curvature.usage_concentrates),
    *_each(claims_curvature.shallow_nodes_dominate),
    claims_fit.tables_of_the_paper_agree,
)


def check_claims(shelves: Shelves) -> list[Claim]:
    """All claims that the records of the protocols `paper` and `best` can say anything about."""
    found = [check(shelves) for check in CLAIMS]
    return [claim for claim in found if claim is not None]
