"""Parameters that are checked layer by layer, all of one shape together, are those of one node after the other."""

from __future__ import annotations

import pytest
import torch

import circurve as cc
from circurve.engine import compile, from_nodes
from circurve.engine.params import by_node


def chain(variables: int = 6) -> cc.Circuit:
    node: cc.Input | cc.Sum = cc.Input(0, cc.Categorical(3), 2, name="leaf 0")
    for variable in range(1, variables):
        leaf = cc.Input(variable, cc.Categorical(3), 2, name=f"leaf {variable}")
        node = cc.Sum(cc.Product([node, leaf]), 2, name=f"sum {variable}")
    return cc.Circuit(node)


CIRCUIT = chain()
PROGRAM = compile(CIRCUIT)


def drawn() -> tuple[dict, dict]:
    generator = torch.Generator().manual_seed(0)

    def rows(columns: int) -> torch.Tensor:
        return torch.rand(2, columns, generator=generator, dtype=torch.float64).softmax(-1)

    return {node: rows(2) for node in CIRCUIT.sums}, {node: rows(3) for node in CIRCUIT.inputs}


def test_tensors_together_give_the_parameters_of_lists_one_by_one():
    weights, inputs = drawn()
    together = from_nodes(PROGRAM, weights, inputs)
    single = from_nodes(PROGRAM, *({n: v.tolist() for n, v in given.items()} for given in (weights, inputs)))
    for one, other in zip((*together.weights, *together.inputs), (*single.weights, *single.inputs), strict=True):
        assert torch.equal(one, other)
    found = by_node(PROGRAM, together)
    assert all(torch.equal(found[node], value) for node, value in {**weights, **inputs}.items())


def test_layers_share_no_memory():
    params = from_nodes(PROGRAM, *drawn())
    assert len({weight.untyped_storage().data_ptr() for weight in params.weights}) == len(params.weights)


DAMAGES = {
    "a parameter is not finite": lambda block: block.fill_(torch.nan),
    "a weight is negative": lambda block: block.copy_(torch.tensor([[1.5, -0.5], [0.5, 0.5]])),
    "the weights of unit 1 sum to 1.1, not to 1": lambda block: block[1].copy_(torch.tensor([0.6, 0.5])),
}


@pytest.mark.parametrize("message", DAMAGES)
def test_the_node_with_wrong_weights_is_named(message):
    weights, inputs = drawn()
    DAMAGES[message](weights[CIRCUIT.sums[3]])
    with pytest.raises(cc.ParameterError, match=f"sum 4.*{message}"):
        from_nodes(PROGRAM, weights, inputs)


def test_the_input_with_wrong_probabilities_is_named():
    weights, inputs = drawn()
    inputs[CIRCUIT.inputs[2]][0] = torch.tensor([0.5, 0.5, 0.5])
    with pytest.raises(cc.ParameterError, match=r"leaf 2.*sum to one"):
        from_nodes(PROGRAM, weights, inputs)
