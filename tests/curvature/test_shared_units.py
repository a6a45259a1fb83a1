"""What the records of models of one program have in common."""

import numpy as np
from hessian_oracle import model_of, wide_case

from circurve import Model, curvature
from circurve.curvature.record import COLUMNS


def test_models_of_one_program_have_their_nodes_in_common_and_nothing_else():
    case = wide_case()
    first = model_of(case)
    second = Model(first.circuit, first.params.clone(), first.program)
    one, other = (curvature(model, case.x, labels=case.labels) for model in (first, second))
    assert one.nodes is other.nodes
    assert one.nodes == curvature(Model(first.circuit, first.params), case.x, labels=case.labels).nodes
    for name in COLUMNS:
        assert np.array_equal(getattr(one, name), getattr(other, name))
        assert not np.shares_memory(getattr(one, name), getattr(other, name))
