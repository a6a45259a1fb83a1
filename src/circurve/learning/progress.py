"""A progress bar on standard error, shown only to people: quiet when that is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec

from circurve.errors import needs
from circurve.learning.history import Callback, EpochEnd
from circurve.learning.parallel import worker

__all__ = ["note", "progress_bar"]


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
    """Callbacks that keep a progress bar; none if `shown` is False, or None and there is no terminal."""
    if not _possible(shown):
        yield ()
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
    return f"{count} runs: {text}{lead}"
