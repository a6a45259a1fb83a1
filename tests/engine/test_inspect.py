"""`values` and `flows` of every node against the oracle."""

from hypothesis import given, settings

from circuits import Case, Truth, assert_close, cases
from circurve.engine import flows, values


@given(case=cases())
@settings(max_examples=25, deadline=None)
def test_values_and_flows_of_every_node_equal_the_oracle(case: Case):
    truth = Truth.of(case)
    samples = case.samples()
    batch = samples.rows(0, len(samples))
    found = values(case.program, case.params, batch)
    assert tuple(found) == case.circuit.nodes
    for node, log_value in found.items():
        assert_close(log_value[0].exp(), truth.value[node])
    for node, flow in flows(case.program, case.params, batch).items():
        assert_close(flow[0], truth.flow[node] * case.weight)
