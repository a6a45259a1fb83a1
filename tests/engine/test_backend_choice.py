"""The backend that is asked for is the one that computes, or an error says why not; "auto" takes the fastest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from latent_trees import with_samples

import circurve as cc
from circuits import Case, Shape, with_parameters
from circurve.engine import Params, Reference, Statistics, choose_backend, explain_choice
from circurve.engine.tree import LatentTree
from circurve.errors import OptionError
from circurve.graph import Circuit, Input, Product, Sum
from circurve.inputs import Bernoulli, Gaussian
from shapes import case_of

ROWS = np.random.default_rng(0).integers(0, 2, (40, 4))
TREE = with_samples(cc.hclt(ROWS, units=3), 5)


def gaussian() -> Case:
    circuit = Circuit(Sum(Product([Input(0, Gaussian(), 2), Input(1, Gaussian(), 2)])))
    return with_parameters(circuit, ("real", "real"), Shape(), np.random.default_rng(0))


def masked() -> Case:
    mask = np.array([[True, False], [True, True]])
    return with_samples(Circuit(Sum(Product([Sum(Input(v, Bernoulli(), 2), 2, mask) for v in range(2)]))), 5)


def zero_weight() -> Case:
    weights = {node: torch.zeros_like(block) for node, block in TREE.weights.items()}
    for block in weights.values():
        block[:, 0] = 1
    return replace(TREE, weights=weights)


def tiny_state() -> Case:
    return replace(TREE, inputs={node: torch.full_like(block, 1e-30) for node, block in TREE.inputs.items()})


NOT_TREES = {
    "a Gaussian": (gaussian, "no latent tree"),
    "a mask": (masked, "no latent tree"),
    "a weight of zero": (zero_weight, "weights of zero"),
    "a tiny state": (tiny_state, "less probable than"),
}
others = pytest.mark.parametrize(("make", "reason"), NOT_TREES.values(), ids=NOT_TREES)


def params_of(case: Case, dtype: torch.dtype = torch.float32) -> Params:
    return case.params.to(dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", [TREE, gaussian(), masked()], ids=["tree", "gaussian", "masked"])
def test_reference_is_exactly_that(case, dtype):
    found = choose_backend(case.program, params_of(case, dtype), "reference")
    assert type(found) is Reference
    assert (found.name, found.dtype) == ("reference", dtype)


@pytest.mark.parametrize("name", ["tree", "auto"])
def test_latent_trees_on_a_cpu_take_the_tree(name):
    assert type(choose_backend(TREE.program, params_of(TREE), name)) is LatentTree


def test_fused_runs_in_the_interpreter():
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        pytest.skip("the kernels are compiled for the GPU here")
    assert choose_backend(TREE.program, params_of(TREE), "fused").name == "fused"
    with pytest.raises(OptionError, match="backend='fused' cannot be used: fused kernels compute in float32"):
        choose_backend(TREE.program, params_of(TREE, torch.float64), "fused")


def test_fused_needs_a_gpu_outside_the_interpreter(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(OptionError, match=r"backend='fused' cannot be used: .* need a CUDA device, not cpu"):
        choose_backend(TREE.program, params_of(TREE), "fused")


@others
def test_what_is_no_tree_goes_to_the_reference_and_the_reason_is_given(make, reason):
    case = make()
    assert type(choose_backend(case.program, params_of(case))) is Reference
    first, *lines = explain_choice(case.program, params_of(case)).splitlines()
    assert first.startswith("reference: plain torch on cpu")
    assert any(line.startswith("not latent tree: ") and reason in line for line in lines)
    with pytest.raises(OptionError, match=f"backend='tree' cannot be used: .*{reason}"):
        choose_backend(case.program, params_of(case), "tree")


def test_a_tree_is_explained_without_a_reason_against_it():
    lines = explain_choice(TREE.program, params_of(TREE)).splitlines()
    assert lines[0].startswith("latent tree: ")
    assert not any(line.startswith("not latent tree") for line in lines)


@pytest.mark.parametrize(("backend", "used"), [("reference", "Reference"), ("tree", "LatentTree")])
def test_fit_computes_with_the_backend_that_is_asked_for(backend, used, monkeypatch):
    calls = set()
    for kind in (Reference, LatentTree):
        real = kind.statistics

        def spy(self, params, batches, request=None, real=real, name=kind.__name__) -> Statistics:
            calls.add(name)
            return real(self, params, batches, request)

        monkeypatch.setattr(kind, "statistics", spy)
    cc.fit(cc.hclt(ROWS, units=3), ROWS, epochs=1, backend=backend, device="cpu", progress=False)
    assert calls == {used}


def test_fit_refuses_a_backend_that_cannot_compute_the_circuit():
    case = gaussian()
    with pytest.raises(OptionError, match="backend='tree' cannot be used: the circuit is not a latent tree"):
        cc.fit(
            case.circuit, case.samples().table.values.numpy(), epochs=1, backend="tree", device="cpu", progress=False
        )


def test_an_unknown_backend_is_refused():
    case = case_of("sums in a row")
    with pytest.raises(OptionError, match="backend must be one of auto, reference, tree, fused, not 'quick'"):
        choose_backend(case.program, case.params, "quick")
