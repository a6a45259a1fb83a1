"""The tuned path for latent trees against the reference backend, which other tests compare with the definitions."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from latent_trees import tree_of, trees, with_samples

import circurve as cc
from circuits import ALL, Case, all_sums, assert_close, random_parameters, random_weights
from circurve.engine import Batch, Reference, compile, stack
from circurve.engine.numerics import MESSAGES, MessageRange
from circurve.engine.tree import LatentTree, messages, tree_layout
from circurve.engine.tree.tables import JointTables
from circurve.graph import Circuit, Input, Node, Product, Sum
from circurve.inputs import Bernoulli, Categorical, Gaussian, Indicator
from circurve.structures import hmm, mixture

some = settings(max_examples=60, deadline=None)
few = settings(max_examples=15, deadline=None)


def compare(case: Case, tolerance: float = 1e-10, dtype: torch.dtype = torch.float64) -> LatentTree:
    tree, samples, params = tree_of(case, dtype), case.samples(dtype), case.params.to(dtype=dtype)
    batch = samples.rows(0, len(samples))
    found, wanted = tree.statistics(params, [batch], ALL), case.statistics()
    for one, other in zip(all_sums(found), all_sums(wanted), strict=True):
        assert_close(one, other, tolerance)
    assert torch.equal(found.impossible, wanted.impossible)
    values = case.backend().log_prob(case.params, case.samples().rows(0, len(samples)))
    assert_close(tree.log_prob(params, batch), values, tolerance)
    return tree


@given(case=trees())
@few
def test_scaling_changes_nothing(case):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MESSAGES, torch.float64, MessageRange(1e-300, 1e-270, 1e-140, small=2.0))
        compare(case)


@given(case=trees(), parts=st.integers(2, 6))
@some
def test_samples_in_parts_have_the_same_sums(case, parts):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LatentTree, "_parts", lambda *_: parts)
        compare(case)


def flipped(batch: Batch) -> Batch:
    """The same samples in the opposite order: other samples, so without the key."""
    observed = None if batch.observed is None else batch.observed.flip(-1)
    return replace(batch, x=batch.x.flip(-1), observed=observed, key=None)


@given(case=trees())
@few
def test_a_batch_that_comes_again_is_not_mistaken_for_another(case):
    tree, samples = tree_of(case), case.samples()
    whole, half = samples.rows(0, len(samples)), samples.rows(0, len(samples) // 2)
    assert samples.rows(0, len(samples)).key is whole.key is not half.key
    turned = flipped(whole)
    wanted = {id(batch): tree_of(case).log_prob(case.params, batch) for batch in (whole, half, turned)}
    for batch in (whole, whole, turned, whole, half, whole, whole):
        assert_close(tree.log_prob(case.params, batch), wanted[id(batch)], 1e-12)


@given(case=trees())
@few
def test_a_batch_whose_marking_was_interrupted_is_marked_again(case):
    tree, samples = tree_of(case), case.samples()
    whole = samples.rows(0, len(samples))
    other = flipped(whole)
    wanted = tree.log_prob(case.params, whole)

    def interrupted(plan, views, batch):
        views.indicators[0].zero_()
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("circurve.engine.tree.bound.mark_states", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tree.log_prob(case.params, other)
    assert_close(tree.log_prob(case.params, whole), wanted, 1e-12)


@given(case=trees())
@few
def test_products_in_logs_are_the_same(case):
    real = JointTables.start

    def start(self, program, tree, params):
        real(self, program, tree, params)
        self.in_logs = {number for number, level in enumerate(tree.levels) if level.inner}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JointTables, "start", start)
        compare(case)


@given(case=trees())
@few
def test_chunks_that_go_to_the_reference_add_up_with_the_others(case):
    samples = case.samples()
    batches = [samples.rows(0, 2), samples.rows(2, 4), samples.rows(4, len(samples))]
    tree, real = tree_of(case), messages.upward

    def gives_up_on_two(views, weights, tables, on_level):
        return None if views.samples == 2 else real(views, weights, tables, on_level)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("circurve.engine.tree.bound.upward", gives_up_on_two)
        found = tree.statistics(case.params, batches, ALL)
    for one, other in zip(all_sums(found), all_sums(case.statistics()), strict=True):
        assert_close(one, other)


@given(case=trees(), seed=st.integers(0, 1000), parts=st.integers(1, 3))
@few
def test_each_run_of_a_fleet_equals_the_same_run_alone(case, seed, parts):
    rng = np.random.default_rng(seed)
    drawn = [
        replace(
            case,
            weights={node: random_weights(node, False, rng) for node in case.circuit.sums},
            inputs={node: random_parameters(node, False, rng) for node in case.circuit.inputs},
        ).params
        for _ in range(2)
    ]
    members, samples = [case.params, *drawn], case.samples()
    index = torch.from_numpy(rng.integers(0, len(samples), (3, 4)))
    batches = [samples.pick(index), samples.rows(0, len(samples))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LatentTree, "_parts", lambda *_: parts)
        together = tree_of(case, runs=3).statistics(stack(members), batches, ALL)
    for run, params in enumerate(members):
        alone = case.backend().statistics(params, [samples.pick(index[run : run + 1]), batches[1]], ALL)
        for one, other in zip(all_sums(together), all_sums(alone), strict=True):
            assert_close(one[run], other[0])


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("samples", [1, 2, 63, 1021, 2048])
def test_rows_of_any_length_have_the_same_sums(samples, parts, monkeypatch):
    """Most of these are padded; the padding must not count."""
    monkeypatch.setattr(LatentTree, "_parts", lambda *_: parts)
    tree = compare(with_samples(hmm(5, 3), samples))
    views = tree.bind(samples).memory.views(samples, tree._plans[False])
    assert views.parts == parts
    assert views.width == {63: 64, 1021: 1056, 2048: 2080}.get(samples, samples) or parts > 1
    assert samples <= views.width * parts <= max(1.1 * samples, samples + parts)


def test_all_threads_get_the_same_work_unless_it_is_little(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 6)

    def parts(runs: int, samples: int) -> int:
        program = compile(hmm(4, 32))
        return LatentTree(program, tree_layout(program), runs, torch.float32).bind(samples).memory.parts

    assert [parts(runs, 100_000) for runs in (1, 2, 3, 4, 6, 12, 25)] == [6, 3, 2, 3, 1, 1, 1]
    assert [parts(1, samples) for samples in (1, 256, 512, 1024)] == [1, 1, 2, 4]


@pytest.mark.parametrize("weighted", [False, True])
def test_a_product_of_very_many_factors_and_messages(weighted):
    """200 factors in many tables and 30 messages: without scaling in between, their product underflows."""
    messages = [Sum(Product([Input(v, Bernoulli(), 3), Sum(Input(v + 30, Bernoulli(), 3), 3)]), 3) for v in range(30)]
    factors = [Input(v, Bernoulli(), 3) for v in range(60, 260)]
    case = with_samples(Circuit(Sum(Product([*messages, *factors]))), 12)
    weights = torch.linspace(0.5, 2, 12).double() if weighted else None
    compare(replace(case, sample_weights=weights), 2e-3, torch.float32)


@pytest.mark.parametrize("kind", ["factors", "leaves", "messages"])
def test_a_unit_that_falls_far_behind_and_wins_in_the_end(kind):
    """Half of the variables speak for unit 0, the other half, slightly louder, for unit 1: exp(-200) in between."""
    half, speaks = 100, [[0.9], [0.1]]
    inputs = [Input(v, Bernoulli(), 2) for v in range(2 * half)]
    parameters = {node: torch.tensor(speaks if node.variable < half else speaks[::-1]).double() for node in inputs}
    parameters[inputs[-1]] = torch.tensor([[0.05], [0.95]]).double()
    on_top = {
        "factors": lambda node: node,
        "leaves": lambda node: Sum(node, 2),
        "messages": lambda node: Sum(Product(node), 2),
    }[kind]
    circuit = Circuit(Sum(Product([on_top(node) for node in inputs])))
    weights = {node: torch.eye(2).double() * (1 - 2e-6) + 1e-6 for node in circuit.sums if node.units == 2}
    weights[circuit.roots[0]] = torch.tensor([[0.5, 0.5]]).double()
    case = Case(circuit, ("binary",) * len(inputs), weights, parameters, np.ones((3, len(inputs))))
    compare(case, 1e-3, torch.float32)


def test_a_chain_of_500_variables_in_single_precision():
    compare(with_samples(hmm(500, 3), 8), 2e-3, torch.float32)


def test_a_state_that_no_unit_can_have_makes_its_samples_impossible():
    node = Input(0, Bernoulli(), 2)
    circuit = Circuit(Sum(Product([node, Sum(Input(1, Bernoulli(), 2), 2)])))
    case = with_samples(circuit, 20)
    impossible = replace(case, inputs={**case.inputs, node: torch.zeros(2, 1).double()})
    assert 0 < int(impossible.statistics().impossible) < 20
    compare(impossible)


def test_parts_that_go_to_the_reference_need_no_more_memory(monkeypatch):
    monkeypatch.setattr("circurve.engine.tree.bound.upward", lambda *_: None)
    sizes, passes = [], Reference.passes

    def watched(self, params, batch, memory):
        sizes.append(batch.size)
        return passes(self, params, batch, memory)

    monkeypatch.setattr(Reference, "passes", watched)
    case = with_samples(hmm(6, 4), 100)
    tree = tree_of(case)
    tree.statistics(case.params, [case.samples().rows(0, 100)], ALL)
    needed = case.backend().bytes_per_sample(backward=True)
    assert needed > tree.bytes_per_sample(backward=True)
    assert sum(sizes) == 100
    assert max(sizes) * needed <= 100 * tree.bytes_per_sample(backward=True)


def test_buffers_are_kept_from_batch_to_batch():
    case = with_samples(hmm(4, 2), 10)
    tree = tree_of(case)
    memory, plan = tree.bind(10).memory, tree._plans[False]
    first = memory.views(10, plan)
    assert memory.views(10, plan) is first
    smaller = memory.views(4, plan)
    assert smaller.levels[0].elements.data_ptr() == first.levels[0].elements.data_ptr()
    for samples in range(20, 30):
        memory.views(samples, plan)
    assert len(memory._views) <= 4


# --- which circuits are latent trees ---


def is_tree(root: Node | list[Node]) -> bool:
    return tree_layout(compile(Circuit(root))) is not None


def leaf(variable: int, units: int = 2) -> Sum:
    return Sum(Input(variable, Bernoulli(), units), units)


def test_hidden_trees_and_mixtures_are_recognised():
    rows = np.random.default_rng(0).integers(0, 2, (50, 6))
    for circuit in (cc.hclt(rows, units=3), hmm(5, 3), mixture(5, 3)):
        assert is_tree(list(circuit.roots))
    assert is_tree(Sum(Product([leaf(0), leaf(1)]), 4))


SHARED = Input(0, Bernoulli(), 2)

OTHERS: dict[str, Node | list[Node]] = {
    "a leaf alone": leaf(0),
    "a sum over two products": Sum([Product([leaf(0), leaf(1)]), Product([leaf(0), leaf(1)])]),
    "a shared input": Sum([Sum(Product([SHARED, leaf(1)]), 2), Sum(Product([SHARED, leaf(1)]), 2)]),
    "two roots": [Sum(Product([leaf(0), leaf(1)])), Sum(Product([leaf(0), leaf(1)]))],
    "a product is the root": Product([leaf(0, 1), leaf(1, 1)]),
    "a product of products": Sum(Product([Product([leaf(0), leaf(1)]), leaf(2)])),
    "a sum over a sum": Sum(Product([Sum(leaf(0), 2), leaf(1)])),
    "units differ": Sum(Product([Sum(Product([leaf(0, 3), leaf(1, 3)]), 2), leaf(2)])),
    "units are selected": Sum(Product([leaf(0), leaf(1)], [[1, 0], None])),
    "a mask": Sum(Product([leaf(0), leaf(1)]), mask=[[True, False]]),
    "a mask inside": Sum(Product([Sum(Product([leaf(0), leaf(1)]), 2, mask=[[True, False]] * 2), leaf(2)])),
    "a continuous factor": Sum(Product([leaf(0), Input(1, Gaussian(), 2)])),
    "an indicator": Sum(Product([leaf(0), Input(1, Indicator((0, 1)), 2)])),
    "very many states": Sum(Product([leaf(0), Input(1, Categorical(40), 2)])),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_circuits_are_left_to_the_reference(name):
    assert not is_tree(OTHERS[name])


@given(case=trees(zeros=False))
@settings(max_examples=10, deadline=None)
def test_scores_follow_parameters_that_change_in_place_and_the_pass_before(case):
    """Tables are kept between scores with the same parameters, and with no others."""
    tree, params = tree_of(case), case.params.clone()
    batch = case.samples().rows(0, len(case.x))
    first = tree.log_prob(params, batch)
    tree.statistics(params, [batch], ALL)
    torch.testing.assert_close(tree.log_prob(params, batch), first)
    for weights in params.weights:
        weights.copy_(weights.flip(-1))
    torch.testing.assert_close(tree.log_prob(params, batch), tree_of(case).log_prob(params.clone(), batch))
    with torch.inference_mode():
        made = case.params.clone()
        torch.testing.assert_close(tree.log_prob(made, batch), first)
