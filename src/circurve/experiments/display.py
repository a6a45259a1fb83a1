"""What is done and what is left, live on standard error, for people only."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from circurve.learning import EpochEnd

__all__ = ["Display"]


class Display:
    """A bar for the study and one for the fleet at work; does nothing where nobody is looking."""

    def __init__(
        self, name: str, costs: Sequence[float], known: int, shown: bool | None = None, console: Console | None = None
    ) -> None:
        """costs: of each fleet to train, in any unit; known: how many runs are recorded already."""
        self.console = Console(stderr=True) if console is None else console
        self.name, self.costs, self.known = name, tuple(costs), known
        self.shown = sys.stderr.isatty() if shown is None else shown
        self.done, self.spent = 0, 0.0
        self.started = time.monotonic()
        self.bar: Progress | None = None

    def __enter__(self) -> Display:
        if self.shown and self.costs:
            columns = (TextColumn("{task.description}"), BarColumn(24), TextColumn("{task.fields[note]}"))
            self.bar = Progress(*columns, console=self.console, transient=True)
            self.bar.start()
            known = f", {self.known} runs known" if self.known else ""
            self.whole = self.bar.add_task(self.name, total=sum(self.costs), note=f"{len(self.costs)} fleets{known}")
            self.part: TaskID = self.bar.add_task("", total=1, note="")
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def start(self, fleet: str, runs: int, epochs: int) -> None:
        """A fleet begins."""
        if self.bar is not None:
            self.bar.reset(self.part, total=epochs, description=fleet, note=f"{runs} runs, building the circuit")
            self._whole(0)

    def epoch(self, event: EpochEnd) -> None:
        """To be called after each epoch of the fleet."""
        if self.bar is not None:
            note = f"{len(event.records)} runs, epoch {event.epoch} of {event.epochs}"
            self.bar.update(self.part, completed=event.epoch, note=note)
            self._whole(event.epoch / event.epochs)

    def measure(self, number: int, count: int) -> None:
        """The curvature of one of so many runs is being measured."""
        if self.bar is not None:
            self.bar.update(self.part, note=f"measuring curvature, run {number} of {count}")

    def finish(self) -> None:
        """The fleet is done."""
        self.spent += self.costs[self.done]
        self.done += 1
        if self.bar is not None:
            self._whole(0)

    def _whole(self, share: float) -> None:
        assert self.bar is not None
        now = self.spent + (share * self.costs[self.done] if self.done < len(self.costs) else 0)
        left = time_left(time.monotonic() - self.started, now / sum(self.costs))
        fleet = f"fleet {min(self.done + 1, len(self.costs))} of {len(self.costs)}"
        self.bar.update(self.whole, completed=now, note=f"{fleet}{left}")


def time_left(elapsed: float, share: float) -> str:
    """`, about 3 min left`, if what is left takes as long for its size as what is done; nothing at the start."""
    if share <= 0 or elapsed <= 0:
        return ""
    seconds = elapsed * (1 - share) / share
    if seconds < 90:
        return f", about {seconds:.0f} s left"
    if seconds < 5400:
        return f", about {seconds / 60:.0f} min left"
    return f", about {seconds / 3600:.1f} h left"
