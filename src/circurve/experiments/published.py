"""Published test log-likelihoods that stand beside ours, each with its source.

Only numbers that were checked at their source are listed: those in `published.tsv`, computed from the logs that their
authors published, and the best column of the paper's own table. Better ones may have been published elsewhere.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from circurve.experiments.paper_numbers import LABELS, TEST_LL

__all__ = ["Published", "best_published", "published"]

PAPER = "Suresh et al., A Compositional Theory of Curvature in Probabilistic Circuits"


@dataclass(frozen=True)
class Published:
    """The mean test log-likelihood of a model on a data set, in nats."""

    dataset: str
    test_ll: float
    std: float | None
    seeds: int
    model: str
    source: str
    checked_in: str
    """Where the number was checked."""


def published(dataset: str) -> list[Published]:
    """All that is listed for a data set, the best first; none for one that is not in the literature."""
    return sorted(_all().get(dataset, ()), key=lambda item: -item.test_ll)


def best_published(dataset: str) -> Published | None:
    """The best that is listed for a data set."""
    return next(iter(published(dataset)), None)


@lru_cache
def _all() -> dict[str, list[Published]]:
    found: dict[str, list[Published]] = {}
    for item in (*_of_file(), *_of_paper()):
        found.setdefault(item.dataset, []).append(item)
    return found


def _of_file() -> Iterator[Published]:
    text = files("circurve.experiments").joinpath("published.tsv").read_text()
    for row in csv.DictReader(text.splitlines(), delimiter="\t"):
        numbers = (float(row["test_ll"]), float(row["std"]) if row["std"] else None, int(row["seeds"]))
        yield Published(row["dataset"], *numbers, row["model"], row["source"], row["checked_in"])


def _of_paper() -> Iterator[Published]:
    for dataset, columns in TEST_LL.items():
        label, (mean, std) = max(zip(LABELS, columns, strict=True), key=lambda column: column[1][0])
        yield Published(dataset, mean, std, 5, f"HCLT, {label} EM", PAPER, "its table of test log-likelihoods")
