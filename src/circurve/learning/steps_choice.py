"""Which steps a backend trains with: the one place where learning looks at what a backend is."""

from __future__ import annotations

from collections.abc import Collection

from circurve.data import RowSource, Table
from circurve.engine import Backend, Params
from circurve.engine.cuda import Fused
from circurve.learning.graph_steps import GraphSteps
from circurve.learning.parallel import ParallelSteps, shared_sums, workers
from circurve.learning.parallel_graph_steps import ParallelGraphSteps
from circurve.learning.plan import Plan
from circurve.learning.score import Scorer
from circurve.learning.steps import PlainSteps, Steps

__all__ = ["scorer_for", "steps_for"]


def steps_for(
    backend: Backend,
    plan: Plan,
    train: RowSource,
    params: Params,
    memory_budget: int | None,
    scored: Collection[RowSource] = (),
) -> Steps:
    """EM steps for a fleet with these parameters. Recorded ones need all rows on the device: not those of a stream.

    scored: what will be scored, after each epoch or in the end.
    """
    alone = workers() == 1
    if isinstance(backend, Fused) and isinstance(train, Table):
        record = GraphSteps if alone else ParallelGraphSteps
        return record(backend, plan, train, params, memory_budget, scored)
    return (PlainSteps if alone else ParallelSteps)(backend, plan, train, params, memory_budget)


def scorer_for(backend: Backend, memory_budget: int | None, alone: bool) -> Scorer:
    """Scores of this process alone, or of all workers together: then all of them must ask for the same scores."""
    return Scorer(backend, memory_budget) if alone or workers() == 1 else Scorer(backend, memory_budget, shared_sums)
