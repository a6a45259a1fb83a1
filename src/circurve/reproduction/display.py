"""The progress of a study: bars on a terminal, lines in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from circurve.learning import EpochEnd
from circurve.learning.progress import LogLines, time_left
from circurve.words import counted

__all__ = ["Display"]


class Display:
    """A progress bar for the study and one for the current fleet; in a log, a line from time to time."""

    def __init__(
        self, name: str, costs: Sequence[float], known: int, shown: bool | None = None, console: Console | None = None
    ) -> None:
        """costs: of each fleet to train, in any unit; known: how many runs are recorded already.

        shown: True draws bars, False shows nothing, None draws bars on a terminal and writes lines elsewhere.
        """
        self.console = Console(stderr=True) if console is None else console
        self.name, self.costs, self.known = name, tuple(costs), known
        self.shown = sys.stderr.isatty() if shown is None else shown
        self.done, self.spent = 0, 0.0
        self.started = time.monotonic()
        self.bar: Progress | None = None
        self.lines = LogLines() if shown is None and not self.shown else None
        self.fleet = ""

    def __enter__(self) -> Display:
        if self.shown and self.costs:
            columns = (TextColumn("{task.description}"), BarColumn(24), TextColumn("{task.fields[note]}"))
            self.bar = Progress(*columns, console=self.console, transient=True)
            self.bar.start()
            known = f", {counted(self.known, 'run')} known" if self.known else ""
            self.whole = self.bar.add_task(
                self.name, total=sum(self.costs), note=f"{counted(len(self.costs), 'fleet')}{known}"
            )
            self.part: TaskID = self.bar.add_task("", total=1, note="")
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def start(self, fleet: str, runs: int, epochs: int) -> None:
        """A fleet begins."""
        self.fleet = fleet
        if self.bar is not None:
            self.bar.reset(
                self.part, total=epochs, description=fleet, note=f"{counted(runs, 'run')}, building the circuit"
            )
            self._whole(0)

    def epoch(self, event: EpochEnd) -> None:
        """To be called after each epoch of the fleet."""
        note = f"{counted(len(event.records), 'run')}, epoch {event.epoch} of {event.epochs}"
        self._line(note, event.epoch / event.epochs)
        if self.bar is not None:
            self.bar.update(self.part, completed=event.epoch, note=note)
            self._whole(event.epoch / event.epochs)

    def measure(self, number: int, count: int) -> None:
        """The curvature of run `number` of `count` is being measured."""
        note = f"measuring curvature, run {number} of {count}"
        self._line(note, 1.0)
        if self.bar is not None:
            self.bar.update(self.part, note=note)

    def finish(self) -> None:
        """The fleet is done."""
        self.spent += self.costs[self.done]
        self.done += 1
        if self.bar is not None:
            self._whole(0)

    def _line(self, note: str, share: float) -> None:
        """A line of a log; share: of the current fleet that is done."""
        if self.lines is not None:
            now, where = self._done(share), f"{self.name}, {self._place()}"
            self.lines.tell(f"{where}: {self.fleet}, {note}", now)

    def _done(self, share: float) -> float:
        """Which share of the study is done, with this share of the current fleet."""
        return (self.spent + (share * self.costs[self.done] if self.done < len(self.costs) else 0)) / sum(self.costs)

    def _place(self) -> str:
        return f"fleet {min(self.done + 1, len(self.costs))} of {len(self.costs)}"

    def _whole(self, share: float) -> None:
        assert self.bar is not None
        now = self._done(share)
        left = time_left(time.monotonic() - self.started, now)
        self.bar.update(self.whole, completed=now * sum(self.costs), note=f"{self._place()}{left}")
