"""The questions that a model answers, by column name: the methods of `Model` that are not about training or files.

`Models` has the same methods for several runs of one circuit, which are asked together: the passes are those of one.

Evidence is `{column: value}`, a data frame, or None (see `given.py`). A single row given as values has a single answer;
several rows have one answer each, in a frame of the same kind as the evidence. Circuits with several outputs answer
through their numeric functions in `circurve.queries`, which take labels.
"""

from __future__ import annotations

from circurve.queries.answers import Completion, Estimate
from circurve.queries.probability_questions import ProbabilityQuestions
from circurve.queries.row_questions import RowQuestions
from circurve.queries.summary_questions import SummaryQuestions

__all__ = ["Completion", "Estimate", "Questions"]


class Questions(ProbabilityQuestions, SummaryQuestions, RowQuestions):
    """What can be asked of a model, or of several runs of one circuit."""
