"""Circuits of PyJuice with damaged parts: they are imported, or refused with a message."""

from __future__ import annotations

import random
from contextlib import suppress
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from standin_pyjuice import below, draw

from circurve.errors import CircurveError
from circurve.interop import from_pyjuice


def small(juice: ModuleType) -> Any:
    leaves = [juice.inputs(v, num_node_blocks=2, dist=juice.distributions.Bernoulli(), block_size=2) for v in range(2)]
    return draw(juice.summate(juice.multiply(*leaves), num_node_blocks=1, block_size=1))


def damage(generator: random.Random, root: Any) -> None:
    """Change numbers, shapes or edges of one node."""
    node = generator.choice(list(below(root)))
    match generator.randrange(5):
        case 0 if node._params is not None:
            flat = node._params.reshape(-1)
            flat[generator.randrange(flat.numel())] = generator.choice((float("nan"), float("inf"), -1.0, 0.0, 1e30))
        case 1 if node._params is not None:
            node._params = node._params.reshape(-1)[: generator.randrange(node._params.numel() + 1)]
        case 2 if hasattr(node, "edge_ids") and node.edge_ids is not None:
            flat = node.edge_ids.reshape(-1)
            flat[generator.randrange(flat.numel())] = generator.choice((-1, 0, 1, 7, 2**40))
        case 3:
            node.chs = node.chs * 2 if generator.random() < 0.5 else node.chs[:-1]
        case _:
            node._params = torch.zeros(0)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_circuits_are_imported_or_refused(juice: ModuleType, seed: int) -> None:
    root = small(juice)
    damage(random.Random(seed), root)
    with suppress(CircurveError):
        from_pyjuice(root)


def test_the_undamaged_circuit_is_imported(juice: ModuleType) -> None:
    assert from_pyjuice(small(juice)).circuit.variables == 2
    with pytest.raises(CircurveError):
        from_pyjuice(object())
