"""What every backend offers; nothing outside a backend asks which one it is."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor

from circurve.engine.batch import Batch
from circurve.engine.params import Params
from circurve.engine.program import Program
from circurve.engine.statistics import Request, Statistics

__all__ = ["Backend"]


class Backend(Protocol):
    """R runs of a program on one device in one precision. Parameters are given with every call."""

    @property
    def name(self) -> str:
        """A few words: "reference", "latent tree", "mixture of latent trees", "fused"."""

    @property
    def program(self) -> Program:
        """The program that it computes."""

    @property
    def device(self) -> torch.device:
        """Where it computes."""

    @property
    def dtype(self) -> torch.dtype:
        """The precision it computes in."""

    max_samples: int | None
    """The largest number of samples at once that fit the device's memory (`memory.within_memory`); None: no bound."""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Held by `memory.within_memory`: buffers can be used by one thread at a time."""

    def log_prob(self, params: Params, batch: Batch) -> Tensor:
        """Log-probabilities of all outputs, (R, outputs, N): -inf for probability zero, NaN where a value is NaN."""

    def statistics(self, params: Params, batches: Iterable[Batch], request: Request | None = None) -> Statistics:
        """The sums of an E-step over all batches: the time of two passes, the memory of one batch."""

    def bytes_per_sample(self, backward: bool) -> int:
        """Memory for one sample of all runs: what the chunk size is computed from."""

    def release(self) -> None:
        """Give all buffers back; the next call makes new ones."""

    def describe(self) -> str:
        """A readable description of what computes."""
