"""Hidden Chow-Liu trees whose leaves hang on the latent of their parent, on every backend."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from backends import Entry, every_backend
from expected import true_statistics
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from circuits import ALL, Case, Shape, Truth, with_parameters
from circurve.engine import choose_backend
from circurve.engine.cuda.blueprint import FACTOR, draw
from circurve.engine.tree import LatentTree
from circurve.inputs import Bernoulli, Binomial, Categorical, Gaussian
from circurve.structures import hclt

FAMILIES = {"binary": (Bernoulli(), Categorical(2)), "ternary": (Categorical(3), Binomial(2)), "real": (Gaussian(),)}
DISCRETE = ("binary", "ternary")

pytestmark = pytest.mark.filterwarnings("ignore:(divide by zero|invalid value):RuntimeWarning")


@st.composite
def shared_leaves(drawn: st.DrawFn, domains: tuple[str, ...] = DISCRETE, variables: int = 6) -> Case:
    """Stars, chains and other trees over variables of several families, with missing values and sample weights."""
    kinds = drawn(st.lists(st.sampled_from(domains), min_size=2, max_size=variables))
    families = tuple(drawn(st.sampled_from(FAMILIES[kind])) for kind in kinds)
    star = drawn(st.booleans())
    parents = [-1, *(0 if star else drawn(st.integers(0, v - 1)) for v in range(1, len(kinds)))]
    units = drawn(st.integers(1, 4))
    circuit = hclt(np.zeros((1, len(kinds))), units, families, tree=parents, leaves="shared")
    samples = Shape(samples=drawn(st.sampled_from([4, 21])), missing=drawn(st.booleans()))
    return with_parameters(circuit, tuple(kinds), samples, np.random.default_rng(drawn(st.integers(0, 2**32 - 1))))


@every_backend
@pytest.mark.parametrize("domains", [DISCRETE, (*DISCRETE, "real")], ids=["discrete", "with real numbers"])
def test_values_and_all_sums_are_those_of_the_definition(entry: Entry, domains: tuple[str, ...]) -> None:
    if entry.backend == "tree" and "real" in domains:
        pytest.skip("latent trees have discrete inputs")

    def holds(case: Case) -> None:
        params = entry.params(case.params)
        backend = entry.make(case.program, case.params)
        values = backend.log_prob(params, entry.batch(case))
        entry.assert_close(values[0], Truth.of(case).outputs.log())
        entry.assert_same(backend.statistics(params, [entry.batch(case)], ALL), true_statistics(case))

    some = settings(
        max_examples=3 if entry.small else 20,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        phases=[Phase.generate] if entry.small else list(Phase),
    )
    holds.__name__ = f"shared_leaves_{entry}_{len(domains)}".replace("-", "_")
    some(given(case=shared_leaves(domains, 3 if entry.small else 6))(holds))()


@given(case=shared_leaves())
@settings(max_examples=20, deadline=None)
def test_all_inputs_are_tables_on_a_cpu_and_on_a_gpu(case: Case) -> None:
    """No input is computed sample by sample, however many of them one product multiplies."""
    chosen = choose_backend(case.program, case.params.to(dtype=torch.float32))
    assert isinstance(chosen, LatentTree)
    assert not chosen.layout.leaves
    blueprint = draw(case.program)
    assert not blueprint.written
    assert sum(table.groups for table in blueprint.tables) == len(case.circuit.inputs)
    tabulated = sum(int((plan.kinds > FACTOR).sum()) for plan in blueprint.sums)
    assert tabulated == len(case.circuit.inputs)
