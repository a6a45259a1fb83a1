"""All gates keep one contract; each also its own formula; a user's own gate is called run by run and checked."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from circurve.engine.numerics import KEPT_BITS, rounded
from circurve.errors import OptionError
from circurve.learning import Gated
from circurve.learning.gates import (
    GATES,
    NodeCurvature,
    apply_gate,
    flow_local,
    log_norm,
    max_norm,
    ones,
    power,
    rank,
    sigmoid,
    top_fraction,
    unused_sharp,
)
from circurve.learning.methods import as_gate

some = settings(max_examples=30, deadline=None)

FRACTIONS = [top_fraction(q, by) for q in (0.01, 0.3, 0.5, 1.0) for by in ("local", "total")]
ALL = [*GATES.values(), *FRACTIONS]
MONOTONE = [ones, max_norm, log_norm, rank, sigmoid, top_fraction(0.3), top_fraction(0.01), power(2), power(0.5)]
TIES_BY_ORDER = top_fraction


def named(gate) -> str:
    return getattr(gate, "__name__", repr(gate))


every_gate = pytest.mark.parametrize("gate", ALL, ids=named)
monotone_gate = pytest.mark.parametrize("gate", MONOTONE, ids=named)


@st.composite
def curvatures(draw, runs: int | None = None, distinct: bool = False) -> NodeCurvature:
    """(M,), or (R, M): numbers of any magnitude, zeros and (unless `distinct`) ties included."""
    nodes = draw(st.integers(1, 12))
    source = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    decades = draw(st.sampled_from([0.1, 2.0, 30.0]))
    shape = (nodes,) if runs is None else (runs, nodes)

    def positive() -> Tensor:
        values = 10 ** (decades * (2 * torch.rand(shape, generator=source, dtype=torch.float64) - 1))
        if not distinct:
            values = values * (torch.rand(shape, generator=source) < 0.8)
            values = torch.where(torch.rand(shape, generator=source) < 0.3, values[..., :1], values)
        return values

    flow_squared = positive()
    found = NodeCurvature(positive(), positive(), flow_squared / flow_squared.amax().clamp_min(1e-300))
    if distinct:
        assume(all(rounded(values).unique().numel() == values.numel() for values in vars(found).values()))
    return found


def vectors(local, total=None, flow=None) -> NodeCurvature:
    local = torch.tensor(local, dtype=torch.float64)
    total = local if total is None else torch.tensor(total, dtype=torch.float64)
    return NodeCurvature(local, total, torch.ones_like(local) if flow is None else torch.tensor(flow).double())


# --- the contract ---


@every_gate
@given(curvature=curvatures())
@some
def test_gates_have_the_nodes_shape_and_lie_between_0_and_1(gate, curvature):
    omega = gate(curvature)
    assert omega.shape == curvature.local.shape
    assert omega.dtype == torch.float64
    assert bool(omega.isfinite().all())
    assert float(omega.min()) >= 0
    assert float(omega.max()) <= 1


@every_gate
@given(curvature=curvatures(distinct=True), seed=st.integers(0, 99))
@some
def test_nodes_may_come_in_any_order(gate, curvature, seed):
    order = torch.randperm(curvature.local.shape[-1], generator=torch.Generator().manual_seed(seed))
    permuted = NodeCurvature(curvature.local[order], curvature.total[order], curvature.flow_squared[order])
    torch.testing.assert_close(gate(permuted), gate(curvature)[order], rtol=1e-9, atol=1e-12)


@every_gate
@given(curvature=curvatures(runs=3))
@some
def test_a_fleet_is_its_runs(gate, curvature):
    rows = zip(curvature.local, curvature.total, curvature.flow_squared, strict=True)
    alone = torch.stack([gate(NodeCurvature(*row)) for row in rows])
    torch.testing.assert_close(apply_gate(gate, curvature), alone, rtol=1e-12, atol=1e-15)


@monotone_gate
@given(curvature=curvatures())
@some
def test_sharper_nodes_never_get_a_smaller_gate(gate, curvature):
    order = curvature.local.argsort(stable=True)
    omega = gate(curvature)[order]
    if isinstance(gate, TIES_BY_ORDER):  # of equals, the first are chosen: compare distinct values only
        kept = torch.cat([rounded(curvature.local)[order].diff() > 0, torch.tensor([True])])
        omega = omega[kept]
    assert bool((omega.diff() >= -1e-12).all())


@every_gate
def test_gates_leave_the_curvature_alone(gate):
    curvature = vectors([3.0, 1.0, 2.0], [1.0, 5.0, 2.0], [0.1, 0.5, 0.4])
    gate(curvature)
    assert curvature.local.tolist() == [3.0, 1.0, 2.0]
    assert curvature.total.tolist() == [1.0, 5.0, 2.0]


@every_gate
@pytest.mark.parametrize("nodes", [1, 5])
def test_curvature_of_zero_throughout_gives_valid_gates(gate, nodes):
    zero = torch.zeros(nodes, dtype=torch.float64)
    omega = gate(NodeCurvature(zero, zero, zero))
    assert bool(((omega >= 0) & (omega <= 1)).all())


@every_gate
def test_a_single_node_gets_a_gate(gate):
    omega = gate(vectors([7.0]))
    assert omega.shape == (1,)
    assert 0 <= float(omega) <= 1


@pytest.mark.parametrize("gate", [max_norm, log_norm, sigmoid, unused_sharp], ids=named)
def test_nothing_is_gated_while_nothing_was_measured(gate):
    assert gate(vectors([0.0, 0.0, 0.0])).tolist() == [0.0, 0.0, 0.0]


# --- each gate's own formula ---


def test_ones_opens_all():
    assert ones(vectors([0.0, 5.0])).tolist() == [1.0, 1.0]


def test_max_norm_is_the_share_of_the_largest():
    assert max_norm(vectors([1.0, 4.0, 0.0, 2.0])).tolist() == [0.25, 1.0, 0.0, 0.5]


def test_max_norm_looks_at_the_local_curvature_alone():
    assert max_norm(vectors([1.0, 2.0], total=[9.0, 1.0], flow=[0.1, 0.9])).tolist() == [0.5, 1.0]


def test_log_norm_compares_logarithms():
    found = log_norm(vectors([0.0, 9.0, 99.0]))
    torch.testing.assert_close(found, torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64))


def test_rank_counts_the_smaller_nodes_and_ties_share():
    assert rank(vectors([5.0, 1.0, 100.0])).tolist() == [0.5, 0.0, 1.0]
    assert rank(vectors([2.0, 2.0, 1.0, 9.0, 2.0])).tolist() == [0.5, 0.5, 0.0, 1.0, 0.5]
    assert rank(vectors([3.0])).tolist() == [1.0]


def test_sigmoid_is_centred_on_the_typical_node():
    found = sigmoid(vectors([1.0, 10.0, 100.0]))
    step = 1 / (1 + torch.tensor(-(1.5**0.5), dtype=torch.float64).exp())  # one of three equal steps, standardised
    torch.testing.assert_close(found, torch.stack([1 - step, torch.tensor(0.5).double(), step]))


def test_flow_local_opens_for_nodes_that_are_used_and_sharp():
    found = flow_local(vectors([1.0, 2.0, 3.0], flow=[0.1, 0.3, 0.2]))
    torch.testing.assert_close(found, torch.tensor([0.0, 0.5**0.5, 0.5**0.5], dtype=torch.float64))


def test_unused_sharp_opens_for_sharp_nodes_without_flow():
    found = unused_sharp(vectors([4.0, 4.0, 2.0], flow=[0.8, 0.0, 0.4]))
    torch.testing.assert_close(found, torch.tensor([0.0, 1.0, 0.25], dtype=torch.float64))


@pytest.mark.parametrize(("q", "count"), [(0.01, 1), (0.1, 1), (0.25, 2), (0.5, 5), (0.99, 10), (1, 10)])
def test_top_fraction_opens_so_many_nodes(q, count):
    local = [float((3 * i) % 10) for i in range(10)]
    omega = top_fraction(q)(vectors(local))
    assert int(omega.sum()) == count
    assert set(omega.tolist()) <= {0.0, 1.0}
    assert sorted(value for value, gate in zip(local, omega, strict=True) if gate) == list(range(10 - count, 10))


def test_top_fraction_takes_the_first_of_equals():
    assert top_fraction(0.5)(vectors([1.0, 1.0, 1.0, 1.0])).tolist() == [1.0, 1.0, 0.0, 0.0]


def test_top_fraction_by_total_looks_at_the_total():
    curvature = vectors([1.0, 2.0, 3.0], total=[9.0, 1.0, 2.0])
    assert top_fraction(0.3)(curvature).tolist() == [0.0, 0.0, 1.0]
    assert top_fraction(0.3, by="total")(curvature).tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("gate", [rank, flow_local, top_fraction(0.3), top_fraction(0.3, by="total")], ids=named)
def test_the_last_bits_of_a_curvature_do_not_change_the_order_of_nodes(gate):
    source = torch.Generator().manual_seed(0)
    drawn = torch.randint(1, 40, (3, 200), generator=source).double()  # whole numbers: many ties, and far from edges
    noise = 1 + 2.0 ** -(KEPT_BITS + 3) * (2 * torch.rand(2, 3, 200, generator=source, dtype=torch.float64) - 1)
    one, other = (NodeCurvature(*(drawn * factor)) for factor in noise)
    assert torch.equal(gate(one), gate(other))
    assert torch.equal(gate(one), gate(NodeCurvature(*drawn)))


# --- names ---


@pytest.mark.parametrize("name", GATES)
def test_a_gate_is_found_by_its_name(name):
    assert as_gate(name) is GATES[name]
    assert GATES[name].__name__ == name
    assert Gated(0.1, gate=name).gate is GATES[name]


def test_top_fraction_by_name_carries_its_arguments():
    assert as_gate("top_fraction:0.1") == top_fraction(0.1, by="local")
    assert as_gate("top_fraction:0.25:total") == top_fraction(0.25, by="total")
    assert as_gate("power:2") == power(2.0)


@pytest.mark.parametrize(
    ("gate", "message"),
    [
        ("max", r"gate must be a function or one of ones, max_norm, .*, top_fraction:Q, power:P, not 'max'"),
        ("top_fraction", r"gate must be .*, not 'top_fraction'"),
        ("top_fraction:0.1:local:x", r"gate must be .*, not 'top_fraction:0.1:local:x'"),
        ("top_fraction:x", r"gate 'top_fraction:x': could not convert"),
        ("top_fraction:2", r"gate 'top_fraction:2': top_fraction: q must be above 0 and at most 1, not 2.0"),
        ("top_fraction:0.5:flow", r"top_fraction: by must be 'local' or 'total', not 'flow'"),
        (3, r"gate must be .*, not 3"),
        (None, r"gate must be .*, not None"),
    ],
)
def test_a_wrong_gate_is_refused(gate, message):
    with pytest.raises(OptionError, match=message):
        Gated(0.1, gate=gate)


@pytest.mark.parametrize("q", [0, -0.1, 1.5, float("nan"), True, "0.5", None])
def test_top_fraction_refuses_what_is_no_fraction(q):
    with pytest.raises(OptionError, match=r"top_fraction: q must be above 0 and at most 1, not"):
        top_fraction(q)


# --- a user's own gate ---


def fleet_curvature() -> NodeCurvature:
    values = torch.arange(6, dtype=torch.float64).view(2, 3)
    return NodeCurvature(values, values + 10, values / 6)


def test_an_own_gate_is_called_for_each_run_with_vectors():
    seen = []

    def mine(curvature):
        seen.append((curvature.local.tolist(), curvature.total.tolist(), curvature.flow_squared.shape))
        return curvature.local / 10

    omega = apply_gate(mine, fleet_curvature())
    assert omega.tolist() == [[0.0, 0.1, 0.2], [0.3, 0.4, 0.5]]
    assert seen == [([0.0, 1.0, 2.0], [10.0, 11.0, 12.0], (3,)), ([3.0, 4.0, 5.0], [13.0, 14.0, 15.0], (3,))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_an_own_gate_may_answer_in_another_type(dtype):
    omega = apply_gate(lambda curvature: torch.tensor([0, 1, 1], dtype=dtype), fleet_curvature())
    assert omega.dtype == torch.float64
    assert omega.tolist() == [[0.0, 1.0, 1.0]] * 2


@dataclass
class Steady:
    """A gate with state, and so without a hash."""

    value: float

    def __call__(self, curvature: NodeCurvature) -> Tensor:
        return torch.full_like(curvature.local, self.value)


def test_an_object_that_can_be_called_is_a_gate():
    assert apply_gate(Steady(0.25), fleet_curvature()).tolist() == [[0.25] * 3] * 2


def mine(answer):
    def my_gate(curvature):
        return answer(curvature.local)

    return my_gate


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda local: local[:2] * 0, r"gate my_gate returned shape \(2,\), expected \(3,\)"),
        (lambda local: (local * 0).sum(), r"gate my_gate returned shape \(\), expected \(3,\)"),
        (lambda local: local * 0 - 0.5, r"gate my_gate returned -0.5, outside \[0, 1\]"),
        (lambda local: local, r"gate my_gate returned 2, outside \[0, 1\]"),
        (lambda local: local * float("nan"), "gate my_gate returned a value that is not finite"),
        (lambda local: local + float("inf"), "gate my_gate returned a value that is not finite"),
        (lambda local: local.tolist(), "gate my_gate must return a tensor, not list"),
        (lambda local: None, "gate my_gate must return a tensor, not NoneType"),
        (lambda local: local.numpy(), "gate my_gate must return a tensor, not ndarray"),
    ],
)
def test_what_an_own_gate_returns_is_checked(answer, message):
    with pytest.raises(OptionError, match=message):
        apply_gate(mine(answer), fleet_curvature())
