"""Which state of a training to write as a checkpoint, and when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from circurve.learning.checkpoints import Checkpoints
from circurve.learning.state import TrainerState
from circurve.learning.steps import Begun

__all__ = ["Keeper"]


class Keeper:
    """Keeps the state after the last whole epoch; does nothing where there are no checkpoints."""

    def __init__(self, checkpoints: Checkpoints | None, state: TrainerState | None) -> None:
        self.checkpoints, self.state = checkpoints, state

    def before(self, state: Callable[[int], TrainerState]) -> None:
        """Take the state before the first epoch."""
        if self.checkpoints is not None:
            self.state = state(0)

    def after(self, epoch: int, state: Callable[[int], TrainerState]) -> None:
        """Take the state after a whole epoch, and write it if it is time."""
        if self.checkpoints is not None:
            self.state = state(epoch)
            if self.checkpoints.due(epoch, self.state.done):
                self.checkpoints.save(self.state)

    def again(self, epoch: int, state: Callable[[int], TrainerState]) -> None:
        """Take the state of the runs that repeat the epoch after this one, in the order of rows that it had."""
        if self.checkpoints is not None and self.state is not None:
            self.state = replace(state(epoch), shuffles=self.state.shuffles)

    def within(self, renewed: Callable[[TrainerState], TrainerState], begun: Callable[[], Begun]) -> None:
        """Write the state after some steps of an epoch, if it is time."""
        if self.checkpoints is not None and self.state is not None and self.checkpoints.overdue():
            self.checkpoints.save(replace(renewed(self.state), begun=begun()))

    def last(self) -> None:
        """Write the state of the last whole epoch, unless it or a later one is written."""
        if self.checkpoints is None or self.state is None or self.state.epoch == 0:
            return
        if self.checkpoints.saved is None or self.checkpoints.saved[0] != self.state.epoch:
            self.checkpoints.save(self.state)
