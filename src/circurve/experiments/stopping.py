"""When to stop without validation rows: rules on the history of a training, by likelihood and trace of training rows.

A rule reads what was measured on training rows during an epoch, which is about the model at the start of it; the epoch
it names is that of the scores after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from circurve.experiments.records import Record

__all__ = ["BY_VALIDATION", "RULES", "History", "stopped_scores"]


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
"""Those that need no validation rows, by name."""


BY_VALIDATION = "validation"
"""The best epoch by validation rows, for reference."""


def stopped_scores(record: Record) -> dict[str, float]:
    """Test log-likelihood where each rule stops a run, and at its best epoch by validation; {} where not known."""
    history = record["history"]
    columns = [history.get(name) for name in ("train_ll", "sharpness", "test_ll")]
    if any(column is None or None in column for column in columns):
        return {}
    train, trace, test = columns
    read = History(train, trace, record["settings"]["rows"])
    found = {name: float(test[rule(read)]) for name, rule in RULES.items()}
    return {**found, BY_VALIDATION: float(record["best"]["test_ll"])}
