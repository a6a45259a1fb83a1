"""Work on a tensor of one shape, recorded as a CUDA graph when it is asked for a second time.

A walk down a circuit is some hundred small kernels. For a few thousand rows a GPU needs less time for them than a CPU
needs to launch them; a graph launches them all at once.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

import torch
from torch import Tensor

__all__ = ["Recorded"]


class Recorded:
    """Calls of one function, whose result has a fixed shape and which must not read anything back from the device.

    The last shape asked for is recorded when it comes again. On a CPU nothing is recorded.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._shape: torch.Size | None = None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._given = self._found = torch.empty(0)

    def __call__(self, work: Callable[[Tensor], Tensor], given: Tensor, out: Tensor) -> None:
        """out = work(given), where `work` is the same in all calls."""
        if given.device.type != "cuda":
            out.copy_(work(given))
            return
        with self._lock:  # the graph has one place for what is given and one for the result
            if given.shape != self._shape:
                self._shape, self._graph = given.shape, None
                out.copy_(work(given))
                return
            if self._graph is None:
                self._graph = self._record(work, given)
            self._given.copy_(given)
            self._graph.replay()
            out.copy_(self._found)

    def _record(self, work: Callable[[Tensor], Tensor], given: Tensor) -> torch.cuda.CUDAGraph:
        self._given, graph = given.clone(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._found = work(self._given)
        return graph
