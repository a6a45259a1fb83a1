"""Processes that start at once: forked from one that has imported the package and what the tests use of it.

Python has one such process, and what it imports is settled when the first fork is asked for: all tests share the list.
"""

from __future__ import annotations

import multiprocessing

__all__ = ["CONTEXT"]

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "circurve.public",
        "circurve.cli.program",
        "circurve.cli.fit",
        "circurve.cli.sweep",
        "circurve.reproduction",
        "scipy.stats",
        "sklearn.base",
        "torch.distributed",
    ]
)
