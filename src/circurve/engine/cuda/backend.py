"""The fused backend: Triton kernels on a CUDA device, with the answers of the reference backend to rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import RLock

import torch
from torch import Tensor

from circurve.engine.batch import Batch
from circurve.engine.cuda.compile_ahead import compile_ahead
from circurve.engine.cuda.estep import FusedSums
from circurve.engine.cuda.fused import FusedEngine
from circurve.engine.cuda.support import blueprint_for
from circurve.engine.numerics import IMPOSSIBLE
from circurve.engine.params import Params
from circurve.engine.program import Program
from circurve.engine.statistics import Request, Statistics

__all__ = ["Fused"]


class Fused:
    """R runs of a program on one CUDA device. Only for programs and parameters that `choice.py` lets through."""

    name = "fused"

    def __init__(
        self,
        program: Program,
        runs: int,
        device: torch.device,
        precision: str = "float32",
        fixed: Params | None = None,
    ) -> None:
        blueprint = blueprint_for(program)
        if isinstance(blueprint, str):
            raise ValueError(blueprint)
        self.program, self.runs, self.device, self.dtype = program, runs, device, torch.float32
        self.engine = FusedEngine(program, blueprint, runs, device, precision)
        self.max_samples: int | None = None
        self.lock = RLock()
        self._fixed = fixed
        """Parameters that never change, so that they need to be copied and tabulated only once."""

        self._loaded: Params | None = None
        self._compiled: set[Request | None] = set()
        """The kinds of passes whose kernels have been compiled."""

        self._output_rows = torch.from_numpy(blueprint.outputs).to(device).long()

    def describe(self) -> str:
        """A readable description of what computes."""
        return self.engine.describe()

    @property
    def records(self) -> bool:
        """Whether steps can be recorded as CUDA graphs; not if Triton's interpreter replaces a GPU."""
        return self.device.type == "cuda"

    def bytes_per_sample(self, backward: bool) -> int:
        """Memory for one sample of all runs."""
        return self.engine.bytes_per_sample(backward)

    def release(self) -> None:
        """Give all buffers back; the next call makes new ones."""
        self.engine.release()

    def discard(self) -> None:
        """Give back the parameters too: this backend computes nothing any more."""
        self.engine.release()
        self.engine.packed, self.engine.inputs = [], []

    @torch.no_grad()
    def log_prob(self, params: Params, batch: Batch) -> Tensor:  # -> (R, outputs, N)
        """Log-probabilities of all outputs; -inf for probability zero."""
        engine, new = self.engine, self._load(params)
        engine.reserve(batch.size, backward=False)
        states, _ = engine.accept(batch)

        def work() -> None:
            if new:
                self._tabulate(params)
            engine.forward(states, batch, keep=False)

        self._compile(None, work)
        work()
        value = engine.values.index_select(1, self._output_rows)[..., : batch.size]
        return torch.where(value <= IMPOSSIBLE, -torch.inf, value)

    @torch.no_grad()
    def statistics(self, params: Params, batches: Iterable[Batch], request: Request | None = None) -> Statistics:
        """The sums of an E-step over all batches."""
        engine, asked, new = self.engine, request or Request(), self._load(params)
        sums = FusedSums(engine, asked)

        def work(sums: FusedSums, batch: Batch) -> None:
            engine.reserve(batch.size, backward=True)
            states, labels = engine.accept(batch)
            if new and not sums.seen:
                self._tabulate(params)
            sums.add(states, labels, batch)

        for batch in batches:
            self._compile(asked, lambda batch=batch: work(FusedSums(engine, asked), batch))  # type: ignore[misc]
            work(sums, batch)
        return sums.result()

    def _compile(self, kind: Request | None, work: Callable[[], None]) -> None:
        """Compile the kernels of a kind of pass when it comes for the first time; None is log_prob."""
        if kind not in self._compiled:
            self._compiled.add(kind)
            compile_ahead(self.device, work)
            self._loaded = None  # the tables were not made
            self.engine.outdated = True  # nor were the weights rounded

    def _load(self, params: Params) -> bool:
        """Make the kernels read these parameters; returns whether their tables are still to be made."""
        if params is self._loaded:
            return False
        self._loaded = None
        self.engine.load(params)
        return True

    def _tabulate(self, params: Params) -> None:
        self.engine.tabulate()
        self._loaded = params if params is self._fixed else None
