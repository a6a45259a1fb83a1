"""Kernels compiled before they first run: launches compile only, then run as ever."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_fused import batch_of, on_device, tree

from circurve.engine import choose_backend
from circurve.engine.cuda.compile_ahead import Kernels, compile_ahead

pytest.importorskip("triton")


class Spy:
    """A substitute for a kernel of Triton."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any, dict[str, Any]]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda **arguments: self.calls.append(("run", grid, arguments))

    def warmup(self, *, grid: tuple[int, ...], **arguments: Any) -> None:
        self.calls.append(("compile", grid, arguments))


def test_kernels_are_launched_as_tritons_are() -> None:
    spy = Spy()
    Kernels(SimpleNamespace(add=spy)).add[(2, 3)](size=4)
    assert spy.calls == [("run", (2, 3), {"size": 4, "enable_fp_fusion": True})]


def test_off_the_gpu_the_work_is_not_done_at_all() -> None:
    compile_ahead(torch.device("cpu"), lambda: pytest.fail("there is nothing to compile"))


def test_with_a_triton_that_was_not_tried_kernels_are_compiled_when_they_are_launched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("triton.__version__", "3.10.0")
    compile_ahead(SimpleNamespace(type="cuda"), lambda: pytest.fail("its compilation may not be deferrable"))  # type: ignore[arg-type]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_launches_compile_and_do_not_run_while_compiling_ahead() -> None:
    spy = Spy()
    kernels = Kernels(SimpleNamespace(add=spy))
    compile_ahead(torch.device("cuda"), lambda: kernels.add[(2,)](size=4))
    kernels.add[(2,)](size=4)
    assert [call[0] for call in spy.calls] == ["compile", "run"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_after_compiling_ahead_nothing_is_left_to_compile(tmp_path: Any) -> None:
    import triton

    case = tree(units=37, samples=9)  # a width that no other test has
    found: list[str] = []
    before, triton.knobs.cache.dir = triton.knobs.cache.dir, str(tmp_path)
    triton.knobs.compilation.listener = lambda *, metadata, **_: found.append(metadata["name"])
    try:
        backend = choose_backend(case.program, on_device(case), "fused")
        engine, batch = backend.engine, batch_of(case)
        engine.load(on_device(case))
        engine.reserve(batch.size, backward=False)
        states, _ = engine.accept(batch)

        def work() -> None:
            engine.tabulate()
            engine.forward(states, batch, keep=False)

        compile_ahead(backend.device, work)
        ahead = len(found)
        work()
        assert ahead > 0
        assert len(found) == ahead
    finally:
        triton.knobs.cache.dir, triton.knobs.compilation.listener = before, None
