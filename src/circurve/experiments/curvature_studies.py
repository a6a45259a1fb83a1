"""Studies of where curvature helps after fair tuning: smoothing for all, epoch by validation, as many candidates each.

Each part is a study of its own. Those about weights, ensembles, noise in test rows and stopping look at the same runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from circurve.experiments.probe import MODELS_PROBE
from circurve.experiments.spec import ReproduceOptions, Setting, Study, make_study, protocol_for
from circurve.experiments.variants import corrupted, selected
from circurve.learning import Gated, Global, Method, Vanilla

__all__ = [
    "BASE",
    "CORRUPTED_CELLS",
    "CORRUPTED_ROWS",
    "LABELS",
    "clean_study",
    "corrupted_study",
    "large_study",
    "scarce_study",
    "selected_study",
]

BASE = "vanilla"
LABELS = {
    BASE: "plain EM",
    "global": "penalty on all sums",
    "gated": "penalty gated by t / max t, t the mean over samples",
    "geometric": "the same, t the geometric mean weighted by flow",
}
SMOOTHING, QUICK_SMOOTHING = (0.003, 0.01, 0.03, 0.1), (0.003, 0.03)
"""Pseudocounts of plain EM, to choose from."""

PAIR, QUICK_PAIR = (0.003, 0.03), (0.03,)
"""Pseudocounts of penalised methods, each with each strength: as many candidates as plain EM has."""

STRENGTHS = {"global": (0.001, 0.01), "gated": (0.01, 0.1), "geometric": (0.001, 0.01)}

SHARES = (0.01, 0.1)
"""Of the training rows, where data are scarce."""

CORRUPTED_ROWS, CORRUPTED_CELLS = 0.2, 0.5

LARGE_UNITS, QUICK_LARGE_UNITS = 256, 32
LARGE_EPOCHS = 30
LARGE_SMOOTHING = (0.003, 0.03)
LARGE_STRENGTHS = {"global": (0.001,), "gated": (0.01,), "geometric": (0.001,)}


def clean_study(name: str, options: ReproduceOptions) -> Study:
    """All training rows, and what is measured on the models: weights, test noise and ensembles."""
    return replace(_study(name, options), probe=MODELS_PROBE)


def scarce_study(name: str, options: ReproduceOptions) -> Study:
    """Small shares of the training rows."""
    return replace(_study(name, options), fractions=SHARES)


def corrupted_study(name: str, options: ReproduceOptions) -> Study:
    """Noise in the cells of some training and validation rows."""
    return replace(_study(name, options), variant=corrupted(CORRUPTED_ROWS, CORRUPTED_CELLS))


def selected_study(name: str, options: ReproduceOptions) -> Study:
    """Most training and validation rows with the rarer value of one column are missing."""
    return replace(_study(name, options), variant=selected())


def large_study(name: str, options: ReproduceOptions) -> Study:
    """Circuits with far too many units."""
    usual = protocol_for(options)
    units = options.units or (QUICK_LARGE_UNITS if options.quick else LARGE_UNITS)
    epochs = options.epochs or min(LARGE_EPOCHS, usual.epochs)
    study = _study(name, options, LARGE_SMOOTHING, LARGE_STRENGTHS, LARGE_SMOOTHING)
    return replace(study, protocol=replace(study.protocol, units=units, epochs=epochs, small_epochs=epochs))


def _study(
    name: str,
    options: ReproduceOptions,
    smoothing: Sequence[float] | None = None,
    strengths: Mapping[str, tuple[float, ...]] | None = None,
    pair: Sequence[float] | None = None,
) -> Study:
    smoothing = smoothing or (QUICK_SMOOTHING if options.quick else SMOOTHING)
    pair = pair or (QUICK_PAIR if options.quick else PAIR)
    by_label: Mapping[str, tuple[float, ...]] = strengths or STRENGTHS
    if options.mu:
        by_label = dict.fromkeys(by_label, options.mu)
    methods: dict[str, list[Method]] = {
        BASE: [Vanilla(pseudocount) for pseudocount in smoothing],
        "global": [Global(mu, pseudocount) for mu in by_label["global"] for pseudocount in pair],
        "gated": [Gated(mu, pseudocount=pseudocount) for mu in by_label["gated"] for pseudocount in pair],
        "geometric": [
            Gated(mu, estimator="geometric", pseudocount=pseudocount)
            for mu in by_label["geometric"]
            for pseudocount in pair
        ],
    }
    init = protocol_for(options).inits[0]
    settings = [Setting(label, method, init) for label, of in methods.items() for method in of]
    return replace(make_study(name, options, settings), anatomy=False)
