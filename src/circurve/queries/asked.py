"""What every question by column name needs: the compiled circuit, the reading of evidence, the form of answers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from circurve.data import is_streamed
from circurve.errors import OptionError
from circurve.queries.answers import Writer, together
from circurve.queries.given import Given, read_given
from circurve.queries.target import Target
from circurve.schema import Schema

if TYPE_CHECKING:
    from circurve.data.unseen import Unseen
    from circurve.engine import Backend, Params, Program

__all__ = ["Asked"]


class Asked:
    """A model, or several runs of one circuit, as questions read them."""

    program: Program
    params: Params
    schema: Schema
    _run_names: NDArray[Any] | None = None
    """What answers call each run; None for a single model, whose answers have no run in front."""
    _memory_budget: int | None = None

    if TYPE_CHECKING:

        @property
        def backend(self) -> Backend:
            """What computes upward passes."""

    @cached_property
    def _target(self) -> Target:
        if self.program.circuit.outputs != 1:
            raise OptionError("questions by column name are for circuits with one output; see circurve.queries")
        return Target(self.program, self.params, self.backend, self._memory_budget, self.schema.names)

    @property
    def _writer(self) -> Writer:
        return Writer(self.schema)

    def _read(self, given: Any, unseen: Unseen = "error") -> Given:
        return read_given(self._target, self.schema, given, unseen)

    def _is_streamed(self, rows: Any) -> bool:
        """Whether a question about these rows is asked some of them at a time; several runs need a table."""
        return self._run_names is None and is_streamed(rows)

    def _by_run(self, answer: Callable[[int], Any]) -> Any:
        """The answer, given that of each run by its number."""
        return together([answer(run) for run in range(self.params.runs)], self._run_names)
