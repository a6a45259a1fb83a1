"""Recorded EM steps of workers: a CUDA graph for the E-step, one all-reduce of its sums, a CUDA graph for the M-step.

The all-reduce is no part of a graph: NCCL could be recorded, but gloo passes through the memory of the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from circurve.engine.cuda import Fused
from circurve.engine.cuda.estep import FusedSums
from circurve.learning.graph_steps import GraphSteps
from circurve.learning.parallel import add_up, own_part, shared_sums
from circurve.learning.score import Scorer

__all__ = ["ParallelGraphSteps"]


class ParallelGraphSteps(GraphSteps):
    """EM steps on the fused kernels, with the samples of each batch divided among the workers.

    A step is tried out and recorded without the other workers, so each of them may find its own size of chunks.
    """

    sums: FusedSums
    """Of the present step: the two graphs share these tensors."""

    buffer: Tensor = torch.empty(0, dtype=torch.float64)
    """All sums of a step, one after the other, in memory that both graphs and the all-reduce use."""

    def release(self) -> None:
        super().release()
        self.buffer = self.buffer.new_empty(0)
        vars(self).pop("sums", None)

    def _scorer(self, backend: Fused, memory_budget: int | None) -> Scorer:
        """Scores of all workers together."""
        return Scorer(backend, memory_budget, shared_sums)

    def _share(self, start: int, stop: int) -> tuple[int, int]:
        """The part of this worker; where it is empty, its one sample has weight zero."""
        return own_part(start, stop)

    def _next(self) -> None:
        collect, maximize = self._launches()
        collect()
        add_up(self.buffer)
        maximize()

    def _pieces(self) -> Sequence[Callable[[], None]]:
        return (self._collect, self._maximize)

    def _step(self) -> None:
        """A step with the samples of this worker alone, to try it out."""
        self._collect()
        self._maximize()

    def _collect(self) -> None:
        """The E-step of this worker's samples, into the buffer."""
        self.sums = self._e_step(None)
        tensors = self.sums.tensors()
        size = sum(tensor.numel() for tensor in tensors)
        if self.buffer.numel() != size:  # only when a step is tried out, never when it is recorded
            self.buffer = self.buffer.new_empty(size, device=self.engine.device)
        for part, tensor in zip(self._parts(tensors), tensors, strict=True):
            part.copy_(tensor)

    def _maximize(self) -> None:
        """The M-step with the sums in the buffer."""
        tensors = self.sums.tensors()
        for part, tensor in zip(self._parts(tensors), tensors, strict=True):
            tensor.copy_(part)
        self._m_step(self.sums)
        self.totals[:4] += self.sums.totals

    def _parts(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Views of the buffer with the shapes of these tensors."""
        pieces = torch.split(self.buffer, [tensor.numel() for tensor in tensors])
        return [piece.view(tensor.shape) for piece, tensor in zip(pieces, tensors, strict=True)]
