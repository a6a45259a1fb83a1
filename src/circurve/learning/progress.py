"""Progress on standard error: a bar on a terminal, a line from time to time in a log or a notebook."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec

from circurve.errors import needs
from circurve.learning.history import Callback, EpochEnd
from circurve.learning.parallel import worker
from circurve.words import counted

__all__ = ["LogLines", "note", "progress_bar", "time_left"]

FIRST_LINE = 60.0
"""Seconds until the first line of progress in a log, and the least between two."""

SHARE_OF_TIME = 0.05
"""After hours the next line comes when the time so far has grown by this share: logs of days stay short."""


class LogLines:
    """Lines of progress where no bar can be drawn; a training of less than a minute writes none."""

    def __init__(self) -> None:
        self.started = self.last = time.monotonic()

    def tell(self, text: str, share: float) -> None:
        """Write a line, if it is time for one. share: of the work that is done."""
        now = time.monotonic()
        if now - self.last >= max(FIRST_LINE, SHARE_OF_TIME * (now - self.started)):
            self.last = now
            print(f"circurve: {text}{time_left(now - self.started, share)}", file=sys.stderr, flush=True)


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


def note(text: str, shown: bool | None) -> None:
    """One line of progress on standard error, if a progress bar would be shown."""
    if _visible(shown):
        print(f"circurve: {text}", file=sys.stderr)


def _visible(shown: bool | None) -> bool:
    if worker() > 0:
        return False
    return sys.stderr.isatty() if shown is None else shown


def _possible(shown: bool | None) -> bool:
    """Whether a bar is wanted and can be drawn; one that was asked for, and cannot, is an error."""
    return _visible(shown) and (shown is True or find_spec("rich") is not None)


@contextmanager
def progress_bar(epochs: int, shown: bool | None) -> Iterator[Sequence[Callback]]:
    """Callbacks that show progress: a bar if `shown` is True, or None on a terminal; lines if None elsewhere."""
    if not _possible(shown):
        yield (_log_lines(),) if shown is None and worker() == 0 else ()
        return
    with needs("cli", "progress=True"):
        from rich.console import Console  # noqa: PLC0415 - only needed when someone is looking
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

    text = TextColumn("{task.description}")
    columns = (TextColumn("epoch"), MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), text)
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=console.is_terminal) as bar:
        task = bar.add_task("", total=epochs)

        def update(event: EpochEnd) -> None:
            bar.update(task, completed=event.epoch, description=_summary(event))

        yield (update,)


def _log_lines() -> Callback:
    """A callback that writes lines. A training that continues from a checkpoint estimates its time from there on."""
    lines = LogLines()
    before: list[int] = []

    def tell(event: EpochEnd) -> None:
        before[:] = before or [event.epoch - 1]
        share = (event.epoch - before[0]) / (event.epochs - before[0])
        lines.tell(f"epoch {event.epoch} of {event.epochs}, {_summary(event)}", share)

    return tell


def _summary(event: EpochEnd) -> str:
    """Log-likelihoods of a run, or their means over a fleet with the best run by validation."""
    records = list(event.records.values())
    count = len(records)
    text = f"train {sum(r.train_ll for r in records) / count:.4f}"
    valid = {number: r.valid_ll for number, r in event.records.items() if r.valid_ll is not None}
    if valid:
        text += f"  valid {sum(valid.values()) / count:.4f}"
    if count == 1:
        return text
    best = max(valid, key=lambda number: valid[number], default=None)
    lead = "" if best is None or best not in event.names else f"  best {event.names[best]} {valid[best]:.4f}"
    return f"{counted(count, 'run')}: {text}{lead}"
