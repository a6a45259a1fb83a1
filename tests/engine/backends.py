"""The table of backends that the contract runs over, and the circuits that each of them is given."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from expected import assert_same
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from latent_trees import tree_mixtures, trees
from torch import Tensor

from circuits import Case, cases, random_parameters, random_weights
from circurve.engine import Backend, BackendName, Batch, Params, Program, Statistics, choose_backend
from circurve.errors import OptionError


@dataclass(frozen=True)
class Entry:
    """A backend on a device in a precision, and how close its sums come to the definitions."""

    backend: BackendName
    device: str
    dtype: torch.dtype
    relative: float
    absolute: float
    share: float = 1.0
    """Of the circuits of a test."""

    bitwise: bool = False
    """Whether a run gives the same bits alone and in a fleet."""

    small: bool = False
    """Small circuits and few samples, for kernels in Triton's interpreter, which is slow."""

    def __str__(self) -> str:
        return f"{self.backend}-{self.device}-{str(self.dtype).removeprefix('torch.')}"

    @property
    def refuses_zero_weights(self) -> bool:
        return self.backend != "reference"

    def params(self, params: Params) -> Params:
        return params.to(self.device, self.dtype)

    def make(self, program: Program, params: Params) -> Backend:
        """The backend, or an OptionError that says why it cannot compute these parameters."""
        return choose_backend(program, self.params(params), self.backend)

    def why_not(self, case: Case) -> str | None:
        try:
            self.make(case.program, case.params)
        except OptionError as error:
            return str(error)
        return None

    def batch(self, case: Case) -> Batch:
        """All samples of a case."""
        return self.pick(case, None)

    def pick(self, case: Case, index: Tensor | None) -> Batch:  # (R, N)
        """Samples by their numbers, other ones for each run; None: all of them, the same for all runs."""
        table = case.samples().table.to(torch.device(self.device))
        if index is None:
            return Batch.rows(table, 0, len(table), self.dtype)
        return Batch.pick(table, index.to(self.device), self.dtype)

    def cases(self, **options: object) -> st.SearchStrategy[Case]:
        """Circuits that this backend can compute; `options` are those of `Shape`."""
        used = {**SMALL, **options} if self.small else options
        tree, mixture, any_circuit = trees(**used), tree_mixtures(**used), cases(**used)
        drawn = st.one_of(tree, mixture) if self.backend == "tree" else st.one_of(any_circuit, any_circuit, tree)
        if self.refuses_zero_weights and used.get("zeros"):
            drawn = drawn.map(_with_positive_weights)
        return drawn.filter(lambda case: self.why_not(case) is None)

    def assert_close(self, found: Tensor, wanted: Tensor) -> None:
        torch.testing.assert_close(found.double().cpu(), wanted.double().cpu(), rtol=self.relative, atol=self.absolute)

    def assert_same(self, found: Statistics, wanted: Statistics) -> None:
        assert_same(found, wanted, self.relative, self.absolute)


def _with_positive_weights(case: Case) -> Case:
    """Zeros are left among the inputs only."""
    rng = np.random.default_rng(0)
    return replace(case, weights={node: random_weights(node, False, rng) for node in case.circuit.sums})


# Measured with two seeds, beyond these absolute errors: float64 within 1e-14 (relative), float32 within 3e-6. The
# absolute part is for logarithms near zero, whose error is that of a probability near one. The entries of GPU have not
# been measured; INTERPRETED was, with one seed, and was within 5e-7 beyond an absolute error of 1e-6.
REFERENCE = Entry("reference", "cpu", torch.float64, 1e-11, 1e-13, bitwise=True)

CPU = (
    REFERENCE,
    Entry("reference", "cpu", torch.float32, 2e-5, 1e-6, share=0.3, bitwise=True),
    Entry("tree", "cpu", torch.float64, 1e-11, 1e-13, share=0.5),
    Entry("tree", "cpu", torch.float32, 1e-5, 1e-6, share=0.3),
)
INTERPRETED = Entry("fused", "cpu", torch.float32, 2e-4, 1e-4, share=0.1, bitwise=True, small=True)
GPU = (
    Entry("reference", "cuda", torch.float64, 1e-9, 1e-12, share=0.3),
    Entry("reference", "cuda", torch.float32, 1e-4, 1e-4, share=0.3),
    Entry("fused", "cuda", torch.float32, 2e-4, 1e-4, share=0.5),
)
ENTRIES = (*CPU, *(GPU if torch.cuda.is_available() else (INTERPRETED,)))
SMALL = {"variables": 3, "depth": 3, "samples": 4}

no_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="the package triton is not installed")


def _marked(entry: Entry) -> object:
    marks = [pytest.mark.gpu] if entry.device == "cuda" else []
    marks += [no_triton] if entry.backend == "fused" else []
    return pytest.param(entry, id=str(entry), marks=marks)


every_backend = pytest.mark.parametrize("entry", [_marked(entry) for entry in ENTRIES])


def contract(examples: int, **options: object) -> Callable[[Callable[[Entry, Case], None]], Callable[[Entry], None]]:
    """A property of every backend, tested on this many circuits for the reference and on a share of them for others."""

    def decorate(check: Callable[[Entry, Case], None]) -> Callable[[Entry], None]:
        @every_backend
        def test(entry: Entry) -> None:
            def holds(case: Case) -> None:
                check(entry, case)

            holds.__name__ = f"{check.__name__}_{entry}".replace("-", "_")  # hypothesis files what failed by it
            count = max(2, round(examples * entry.share))
            slow = [HealthCheck.filter_too_much, HealthCheck.too_slow]
            phases = [Phase.generate] if entry.small else list(Phase)  # shrinking would take minutes there
            some = settings(max_examples=count, deadline=None, suppress_health_check=slow, phases=phases)
            some(given(case=entry.cases(**options))(holds))()

        test.__doc__ = check.__doc__
        return test

    return decorate


def fleet_of(case: Case, runs: int) -> list[Params]:
    """The case's parameters and others for the same circuit, as fleets of one."""
    rng = np.random.default_rng(5)
    drawn = [
        replace(
            case,
            weights={node: random_weights(node, False, rng) for node in case.circuit.sums},
            inputs={node: random_parameters(node, False, rng) for node in case.circuit.inputs},
        ).params
        for _ in range(runs - 1)
    ]
    return [case.params, *drawn]
