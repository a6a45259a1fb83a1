"""A progress bar on standard error, shown only to people: quiet when that is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from circurve.learning.events import Callback, EpochEnd
from circurve.learning.history import EpochRecord

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(epochs: int, shown: bool | None) -> Iterator[Sequence[Callback]]:
    """Callbacks that keep a progress bar; none if `shown` is False, or None and standard error is not a terminal."""
    if shown is False or (shown is None and not sys.stderr.isatty()):
        yield ()
        return
    from rich.console import Console  # noqa: PLC0415 - only needed when someone is looking
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (
        TextColumn("epoch"), MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}")
    )  # fmt: skip
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=console.is_terminal) as bar:
        task = bar.add_task("", total=epochs)

        def update(event: EpochEnd) -> None:
            bar.update(task, completed=event.epoch, description=_summary(list(event.records.values())))

        yield (update,)


def _summary(records: list[EpochRecord]) -> str:
    """Log-likelihoods of a run, or their means over a fleet."""
    count = len(records)
    text = f"train {sum(r.train_ll for r in records) / count:.4f}"
    valid = [r.valid_ll for r in records if r.valid_ll is not None]
    if valid:
        text += f"  valid {sum(valid) / count:.4f}"
    return text if count == 1 else f"{count} runs: {text}"
