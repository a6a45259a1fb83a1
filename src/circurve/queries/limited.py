"""A limit on the memory of all questions to a model."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, TypeVar

from circurve.budget import check_budget

if TYPE_CHECKING:
    from circurve.queries.questions import Questions

__all__ = ["limited"]

Asked = TypeVar("Asked", bound="Questions")


def limited(model: Asked, memory_budget: int | None) -> Asked:
    """The same model, with a limit in bytes on the buffers of its questions: they take fewer rows at once.

    None takes a share of the free memory. `sample` also refuses to draw more rows than fit the limit.
    """
    check_budget(memory_budget)
    found = copy.copy(model)
    found._memory_budget = memory_budget
    found.__dict__.pop("_target", None)
    return found
