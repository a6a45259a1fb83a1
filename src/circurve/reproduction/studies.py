"""Studies of where curvature helps after fair tuning: every method is smoothed, stopped by validation, and has the same
number of candidates.

Each part is a study of its own. Those about weights, ensembles, noise in test rows and stopping look at the same runs.

Rules of when to stop without validation rows read the history of a training, by likelihood and trace of training rows.
What was measured during an epoch is about the model at the start of it; the epoch that a rule names is that of the
scores after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from circurve.learning import Gated, Global, Method, Vanilla
from circurve.reproduction.records import RunRecord
from circurve.reproduction.spec import ReproduceOptions, Setting, Study, make_study, protocol_for
from circurve.reproduction.study_data import MODELS_PROBE, corrupted, selected

__all__ = [
    "BASE",
    "BY_VALIDATION",
    "CORRUPTED_CELLS",
    "CORRUPTED_ROWS",
    "LABELS",
    "RULES",
    "History",
    "clean_study",
    "corrupted_study",
    "large_study",
    "scarce_study",
    "selected_study",
    "stopped_scores",
]

BASE = "vanilla"
LABELS = {
    BASE: "plain EM",
    "global": "penalty on all sums",
    "gated": "penalty gated by t / max t, t the mean over samples",
    "geometric": "the same, t the geometric mean weighted by flow",
}
SMOOTHING, QUICK_SMOOTHING = (0.003, 0.006, 0.01, 0.02, 0.03, 0.06, 0.1, 0.2), (0.003, 0.03)
"""Pseudocounts of plain EM, to choose from."""

PENALTY_SMOOTHING, QUICK_PENALTY_SMOOTHING = (0.003, 0.01, 0.03, 0.1), (0.03,)
"""Pseudocounts of penalised methods, each with each strength: as many candidates as plain EM has."""

STRENGTHS = {"global": (0.0001, 0.001), "gated": (0.001, 0.01), "geometric": (0.0001, 0.001)}
"""In a first run with strengths up to ten times these, and two pseudocounts, validation chose the weakest strength
nearly always. Test scores had been seen by then; they play no part in this choice."""

SHARES = (0.01, 0.1)
"""The shares of the training rows in the study of scarce data."""

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
    penalty_smoothing: Sequence[float] | None = None,
) -> Study:
    smoothing = smoothing or (QUICK_SMOOTHING if options.quick else SMOOTHING)
    penalty_smoothing = penalty_smoothing or (QUICK_PENALTY_SMOOTHING if options.quick else PENALTY_SMOOTHING)
    by_label: Mapping[str, tuple[float, ...]] = strengths or STRENGTHS
    if options.mu:
        by_label = dict.fromkeys(by_label, options.mu)
    methods: dict[str, list[Method]] = {
        BASE: [Vanilla(pseudocount) for pseudocount in smoothing],
        "global": [Global(mu, pseudocount) for mu in by_label["global"] for pseudocount in penalty_smoothing],
        "gated": [Gated(mu, pseudocount=pseudocount) for mu in by_label["gated"] for pseudocount in penalty_smoothing],
        "geometric": [
            Gated(mu, estimator="geometric", pseudocount=pseudocount)
            for mu in by_label["geometric"]
            for pseudocount in penalty_smoothing
        ],
    }
    init = protocol_for(options).inits[0]
    settings = [Setting(label, method, init) for label, of in methods.items() for method in of]
    return replace(make_study(name, options, settings), anatomy=False)


@dataclass(frozen=True)
class History:
    """What a rule may read, epoch by epoch."""

    train_ll: Sequence[float]
    trace: Sequence[float]
    rows: int


def last_epoch(history: History) -> int:
    """No stop at all."""
    return len(history.train_ll) - 1


def first_rise(history: History) -> int:
    """The last epoch before the trace first rises after it has fallen; the last epoch if it never does."""
    fallen = False
    for epoch in range(1, len(history.trace)):
        if history.trace[epoch] > history.trace[epoch - 1] and fallen:
            return epoch - 1
        fallen = fallen or history.trace[epoch] < history.trace[epoch - 1]
    return last_epoch(history)


def smallest_trace(history: History) -> int:
    """The epoch of the smallest trace, after the first tenth of the training, in which nothing is learned yet."""
    start = len(history.trace) // 10
    return min(range(start, len(history.trace)), key=lambda epoch: history.trace[epoch])


def penalised_likelihood(history: History) -> int:
    """The largest train LL - trace / (2 rows): what is left if each weight errs with variance 1 / rows.

    For a small error e of the weights, E[LL(theta + e)] is LL(theta) - tr(H) var(e) / 2 to second order.
    """
    scores = [ll - trace / (2 * history.rows) for ll, trace in zip(history.train_ll, history.trace, strict=True)]
    return scores.index(max(scores))


RULES: dict[str, Callable[[History], int]] = {
    "last epoch": last_epoch,
    "first rise of the trace": first_rise,
    "smallest trace": smallest_trace,
    "likelihood minus trace": penalised_likelihood,
}
"""The stopping rules that need no validation rows, by name."""


BY_VALIDATION = "validation"
"""The best epoch by validation rows, for reference."""


def stopped_scores(record: RunRecord) -> dict[str, float]:
    """Test log-likelihood where each rule stops a run, and at its best epoch by validation; {} where not known."""
    history = record["history"]
    train, trace, test = (history.get(name, [None]) for name in ("train_ll", "sharpness", "test_ll"))
    if any(None in column for column in (train, trace, test)):
        return {}
    read = History(train, trace, record["settings"]["rows"])
    found = {name: float(test[rule(read)]) for name, rule in RULES.items()}
    return {**found, BY_VALIDATION: float(record["best"]["test_ll"])}
