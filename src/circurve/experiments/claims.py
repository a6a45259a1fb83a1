"""The paper's claims, and ours, held against the records: every verdict is computed."""

from __future__ import annotations

from circurve.experiments import claims_curvature, claims_fit
from circurve.experiments.claim import Check, Claim, Shelves

__all__ = ["CLAIMS", "check_claims"]

CLAIMS: tuple[Check, ...] = (
    claims_fit.vanilla_matches,
    claims_fit.best_reaches_the_paper,
    claims_fit.gated_keeps_the_fit,
    claims_fit.weakly_gated_keeps_the_fit,
    claims_fit.gated_helps_small_sets,
    claims_fit.gated_helps_beside_stopping,
    claims_fit.global_underfits,
    claims_fit.smaller_strengths_rescue_global,
    claims_fit.gated_beats_global,
    claims_fit.early_stopping_wins,
    claims_fit.penalties_beat_smoothing,
    claims_fit.penalties_beat_smoothing_beside_stopping,
    claims_fit.exact_updates_help,
    claims_fit.exact_updates_help_beside_stopping,
    claims_fit.low_data_helps,
    claims_fit.low_data_helps_beside_stopping,
    claims_curvature.sharpness_falls,
    claims_curvature.overfitting_falls,
    claims_curvature.trace_is_concentrated,
    claims_curvature.usage_concentrates,
    claims_curvature.shallow_nodes_dominate,
    claims_fit.tables_of_the_paper_agree,
)


def check_claims(shelves: Shelves) -> list[Claim]:
    """All claims that the records of the protocols `paper` and `best` can say anything about."""
    found = [check(shelves) for check in CLAIMS]
    return [claim for claim in found if claim is not None]
