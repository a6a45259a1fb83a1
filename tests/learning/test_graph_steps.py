"""Training on the fused kernels follows the reference: every method, ragged batches, chunks, fleets that shrink."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from learning_helpers import binary_rows, parameters, small_circuit
from torch.overrides import TorchFunctionMode

from circurve import CircurveWarning, Examples, Gated, Global, Vanilla, chow_liu, fit_fleet, gates, hclt
from circurve.engine.cuda.compile_ahead import _Launch
from circurve.engine.cuda.estep import FusedSums
from circurve.engine.cuda.sizes import PROGRAMS
from circurve.graph import Circuit, Input, Product, Sum
from circurve.inputs import Bernoulli, Binomial, Categorical, Gaussian, Indicator, Poisson
from circurve.learning import FleetResult, Run
from circurve.learning.graph_steps import GraphSteps

pytest.importorskip("triton")
pytestmark = pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROWS = binary_rows(25, variables=4)

METHODS = {
    "vanilla": [Vanilla()],
    "smoothed": [Vanilla(pseudocount=0.5), Global(0.1, pseudocount=0.2)],
    "all three": [Vanilla(), Global(0.05), Gated(0.1)],
    "mean scale": [Gated(0.3, mu_scale="mean"), Global(0.1, multiplier=2.0)],
    "other gates": [
        Gated(0.1, gate=gates.rank),
        Gated(0.1, gate="top_fraction:0.3"),
        Gated(0.1, gate=gates.flow_local),
    ],
    "memory": [Gated(0.2, gate_memory=0.5)],
    "held gates": [
        Gated(0.2, gates_from="epoch"),
        Gated(0.2, estimator="mean_ratio", gates_from="first"),
        Gated(0.2, mu_scale="data"),
    ],
    "mean ratio": [Gated(0.2, estimator="mean_ratio")],
    "weighted by flow": [Gated(0.2, estimator="flow_weighted"), Gated(0.2, estimator="geometric", gate_memory=0.5)],
    "clipped": [Gated(0.2, estimator="clipped", ratio_floor=0.1), Vanilla()],
    "exact simplex": [Gated(0.2, simplex="exact"), Vanilla()],
    "exact penalty": [Global(0.1, penalty="exact"), Gated(0.1, penalty="exact", simplex="exact")],
    "a user's gate": [Gated(0.1, gate=lambda curvature: 0 * curvature.local + 0.5)],
}


def both(train, methods, circuit=None, **options) -> tuple[FleetResult, FleetResult]:
    runs = [Run(method=method, seed=seed) for seed, method in enumerate(methods)]
    options = {"epochs": 1, "batch_size": 12, "device": DEVICE, "track": True, **options}
    circuit = circuit or small_circuit(ROWS)
    wanted = fit_fleet(circuit, train, runs, backend="reference", **options)
    return fit_fleet(circuit, train, runs, backend="fused", **options), wanted


def assert_same(found: FleetResult, wanted: FleetResult) -> None:
    close, near = 1e-5, 1e-4
    for a, b in zip(found, wanted, strict=True):
        assert a.train_ll == pytest.approx(b.train_ll, rel=close)
        assert a.sharpness == pytest.approx(b.sharpness, rel=near)
        assert [r.train_ll for r in a.history] == pytest.approx([r.train_ll for r in b.history], rel=close)
        assert [r.sharpness for r in a.history] == pytest.approx([r.sharpness for r in b.history], rel=near)
        for one, other in zip(parameters(a), parameters(b), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", METHODS)
def test_every_method(name, monkeypatch):
    refuse_host_values_in_later_steps(monkeypatch)
    assert_same(*both(ROWS, METHODS[name], epochs=3 if name == "held gates" else 1))


def test_full_batches():
    assert_same(*both(ROWS, [Vanilla(), Gated(0.1)], batch_size=None))


def test_batches_in_chunks():
    circuit = small_circuit(ROWS)
    found, wanted = both(ROWS, [Gated(0.1)], circuit, memory_budget=14_500)
    assert_same(found, wanted)


def test_weights_and_missing_values():
    rows = ROWS.astype(float)
    rows[np.random.default_rng(0).random(rows.shape) < 0.2] = np.nan
    weights = np.random.default_rng(1).random(len(rows)) + 0.1
    assert_same(*both(Examples(rows, weights), [Vanilla(), Gated(0.1)]))


def test_other_inputs():
    rng = np.random.default_rng(0)
    rows = np.column_stack([ROWS[:, :2], rng.normal(size=len(ROWS)), rng.integers(0, 5, len(ROWS))])
    assert_same(*both(rows, [Vanilla(), Gated(0.1)], hclt(rows, 3)))


def masked_circuit() -> Circuit:
    """Every unit mixes some of the units below, other ones each."""
    first, second = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0]], dtype=bool), np.array([[1, 1, 0]] * 3, dtype=bool)
    leaves = [Sum(Input(v, Bernoulli(), 3), 3, first) for v in range(4)]
    pairs = [Sum(Product(leaves[i : i + 2]), 3, second if i else first) for i in (0, 2)]
    return Circuit(Sum(Product(pairs)))


class NoHostValues(TorchFunctionMode):
    """Refuses to make tensors from Python's values: on a GPU that is a copy, which a recorded step cannot hold."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        assert func not in (torch.tensor, torch.as_tensor, torch.Tensor.new_tensor), f"{func} in a recorded step"
        return func(*args, **(kwargs or {}))


def refuse_host_values_in_later_steps(monkeypatch) -> None:
    """The first step is run before it is recorded; it may fill caches."""
    step, tried = GraphSteps._step, set()

    def checked(self: GraphSteps) -> None:
        with NoHostValues() if id(self) in tried else nullcontext():
            step(self)
        tried.add(id(self))

    monkeypatch.setattr(GraphSteps, "_step", checked)


FAMILY_ROWS = np.random.default_rng(1).integers(0, 3, (25, 3)).astype(float)


@pytest.mark.parametrize(
    "family",
    [Categorical(3), Binomial(4), Poisson(), Gaussian(), Indicator((0, 1, 2)), Indicator((2, 0, 1, 2))],
    ids=repr,
)
def test_every_family_can_be_recorded(family, monkeypatch):
    refuse_host_values_in_later_steps(monkeypatch)
    units = len(family.values) if isinstance(family, Indicator) else 3
    columns = [Sum(Input(v, family, units), 2) for v in range(3)]
    found, wanted = both(FAMILY_ROWS, [Vanilla(), Gated(0.1)], circuit=Circuit(Sum(Product(columns))), epochs=2)
    assert_same(found, wanted)


def test_chow_liu_trees_can_be_recorded():
    found, wanted = both(FAMILY_ROWS, [Vanilla(pseudocount=0.1)], circuit=chow_liu(FAMILY_ROWS), batch_size=None)
    assert_same(found, wanted)


@pytest.mark.parametrize("name", ["smoothed", "all three", "mean ratio", "exact simplex", "exact penalty"])
def test_masked_sums(name):
    rows, epochs = (ROWS, 2) if DEVICE == "cuda" else (ROWS[:13], 1)  # interpreted kernels that go by edge take long
    found, wanted = both(rows, METHODS[name], masked_circuit(), epochs=epochs)
    assert_same(found, wanted)
    for result in found:
        for node in result.model.circuit.sums:
            weights = result.model.weights(node)
            assert node.mask is None or bool((weights[~node.mask] == 0).all())
            assert node.mask is None or bool((weights[node.mask] > 0).all())


def test_runs_that_stop_leave_the_fleet():
    methods = [Vanilla(), Global(1.0), Gated(0.1, gate_memory=0.9)]
    found, wanted = both(ROWS, methods, valid=binary_rows(20, seed=1, variables=4), patience=1, epochs=4)
    assert [len(result.history) for result in found] == [len(result.history) for result in wanted]
    assert len({len(result.history) for result in found}) > 1
    assert_same(found, wanted)


NOT_CONSTANT = {"N", "NS", "K", "C", "CW", "J", "G", "M", "R", "V", "KEEP"}
"""Arguments in capitals that kernels are not compiled for."""


def test_a_rehearsal_launches_every_kernel_of_a_training(monkeypatch):
    """So all of them can be compiled at once, before the first step."""
    launched: dict[str, set[str]] = {"rehearsal": set(), "training": set()}
    part = ["training"]
    get, try_out = _Launch.__getitem__, GraphSteps._try_out

    def note(self, grid):
        def launch(**arguments) -> None:
            constants = {name: value for name, value in arguments.items() if name.isupper()}
            chosen = sorted((name, value) for name, value in constants.items() if name not in NOT_CONSTANT)
            launched[part[0]].add(f"{self._kernel.__name__} {chosen}")
            get(self, grid)(**arguments)

        return launch

    def rehearse_first(self) -> None:
        part[0] = "rehearsal"
        self._rehearse()
        part[0] = "training"
        try_out(self)

    monkeypatch.setattr(_Launch, "__getitem__", note)
    monkeypatch.setattr(GraphSteps, "_try_out", rehearse_first)
    monkeypatch.setattr("circurve.engine.cuda.launch.BUSY_SHARE", 3 / PROGRAMS)  # batches are below, all rows are above
    rows, held_out = binary_rows(200, variables=4), binary_rows(10, seed=1, variables=4)
    options = {"backend": "fused", "device": DEVICE, "epochs": 1, "batch_size": 32}
    fit_fleet(small_circuit(rows), rows, [Run()], valid=held_out, **options)
    assert {name.split()[0] for name in launched["training"]} >= {"forward", "elements", "maximize"}
    assert launched["training"] == launched["rehearsal"]


@pytest.mark.skipif(DEVICE != "cuda", reason="graphs are recorded on a GPU")
def test_memory_does_not_grow_over_a_thousand_steps():
    circuit, used = small_circuit(ROWS), []

    def remember(end) -> None:
        used.append(torch.cuda.memory_allocated())

    fit_fleet(circuit, ROWS, [Run(method=Gated(0.1))], epochs=400, batch_size=15, device=DEVICE, callbacks=[remember])
    assert used[-1] <= used[10] + 1024


def test_out_of_memory_halves_the_chunk_and_goes_on(monkeypatch):
    tried = []
    add = FusedSums.add

    def short_of_memory(self, states, labels, batch) -> None:
        tried.append(self.engine.samples)
        if self.engine.samples > 7:
            raise torch.OutOfMemoryError("pretended")
        add(self, states, labels, batch)

    monkeypatch.setattr(FusedSums, "add", short_of_memory)
    with pytest.warns(CircurveWarning, match="out of memory on .*: continuing with 6 samples at once"):
        found = fit_fleet(small_circuit(ROWS), ROWS, [Run()], backend="fused", device=DEVICE, epochs=1, batch_size=13)
    monkeypatch.undo()
    assert tried[0] == 13
    assert max(tried[1:]) == 6
    wanted = fit_fleet(small_circuit(ROWS), ROWS, [Run()], backend="fused", device=DEVICE, epochs=1, batch_size=13)
    assert found[0].train_ll == pytest.approx(wanted[0].train_ll, rel=1e-6)


@pytest.mark.skipif(DEVICE != "cuda", reason="graphs are recorded on a GPU")
def test_out_of_memory_while_a_step_is_recorded_halves_the_chunk_as_well(monkeypatch):
    add = FusedSums.add

    def short_of_memory(self, states, labels, batch) -> None:
        if torch.cuda.is_current_stream_capturing() and self.engine.samples > 7:
            with self.engine.aside():  # a second stream, which nobody joins
                self.totals.zero_()
            raise torch.OutOfMemoryError("pretended")
        add(self, states, labels, batch)

    monkeypatch.setattr(FusedSums, "add", short_of_memory)
    with pytest.warns(CircurveWarning, match="out of memory on .*: continuing with 6 samples at once"):
        found = fit_fleet(small_circuit(ROWS), ROWS, [Run()], backend="fused", device=DEVICE, epochs=1, batch_size=13)
    monkeypatch.undo()
    wanted = fit_fleet(small_circuit(ROWS), ROWS, [Run()], backend="fused", device=DEVICE, epochs=1, batch_size=13)
    assert found[0].train_ll == pytest.approx(wanted[0].train_ll, rel=1e-6)
