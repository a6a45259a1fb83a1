"""Models: parameters by node, log-probabilities of data of any kind, precision and devices."""

import gc
import pickle
import weakref

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings

import circurve as cc
from circuits import Truth, cases
from circurve.engine import stack
from circurve.errors import CircurveWarning, DataError, OptionError, ParameterError
from circurve.graph import Circuit, Input, Node, Product, Sum
from circurve.inputs import Bernoulli, Categorical, Gaussian, Indicator
from circurve.model import Model, as_device
from circurve.persistence import read_metadata


class Example:
    """p(x) = 0.3 N(x0; 0, 1) [x1 = 1 with 0.2] + 0.7 N(x0; 2, 4) [x1 = 1 with 0.9]."""

    height = Input(0, Gaussian(), 2, name="height")
    flag = Input(1, Bernoulli(), 2, name="flag")
    root = Sum(Product([height, flag]), name="root")
    circuit = Circuit(root)
    weights: dict[Node, list[list[float]]] = {root: [[0.3, 0.7]]}  # noqa: RUF012
    inputs: dict[Node, list[list[float]]] = {height: [[0.0, 1.0], [2.0, 4.0]], flag: [[0.2], [0.9]]}  # noqa: RUF012
    x = np.array([[0.0, 1.0], [2.0, 0.0], [-1.5, 1.0]])


def model() -> Model:
    return Model.from_parameters(Example.circuit, Example.weights, Example.inputs)


def expected(x: np.ndarray) -> np.ndarray:
    """The formula of the example; NaN is missing."""
    total = np.zeros(len(x))
    for weight, mean, variance, chance in [(0.3, 0, 1, 0.2), (0.7, 2, 4, 0.9)]:
        normal = np.exp(-((x[:, 0] - mean) ** 2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)
        flag = np.where(x[:, 1] == 1, chance, 1 - chance)
        total += weight * np.where(np.isnan(x[:, 0]), 1, normal) * np.where(np.isnan(x[:, 1]), 1, flag)
    return np.log(total)


# --- parameters ---


def refused(weights=None, inputs=None, circuit: Circuit = Example.circuit):
    Model.from_parameters(circuit, Example.weights | (weights or {}), Example.inputs | (inputs or {}))


MASKED = Sum(Example.height, 1, [[True, False]], name="masked")
NAMELESS = Input(0, Bernoulli())

REFUSED = {
    "weights of another shape": (
        lambda: refused({Example.root: [[0.2, 0.3, 0.5]]}),
        r"Sum 'root': parameters have shape \(1, 3\), expected \(1, 2\)",
    ),
    "weights that do not sum to one": (
        lambda: refused({Example.root: [[0.5, 0.6]]}),
        r"Sum 'root': the weights of unit 0 sum to 1\.1, not to 1",
    ),
    "a negative weight": (lambda: refused({Example.root: [[-0.5, 1.5]]}), r"Sum 'root': a weight is negative"),
    "a weight that is no number": (lambda: refused({Example.root: [[np.nan, 1]]}), r"Sum 'root': .* is not finite"),
    "words for weights": (
        lambda: refused({Example.root: [["a", "b"]]}),
        r"Sum 'root': parameters must be numbers of shape \(1, 2\)",
    ),
    "a weight where the mask has no edge": (
        lambda: Model.from_parameters(Circuit(MASKED), {MASKED: [[0.5, 0.5]]}, {Example.height: [[0, 1], [0, 1]]}),
        r"Sum 'masked': a weight is given where the mask has no edge",
    ),
    "no parameters for an input": (
        lambda: Model.from_parameters(Circuit(NAMELESS)),
        r"Input #0: no parameters given for Bernoulli\(\)",
    ),
    "a probability above one": (
        lambda: refused(inputs={Example.flag: [[0.2], [1.2]]}),
        r"Input 'flag': a probability is not between 0 and 1",
    ),
    "a variance of zero": (
        lambda: refused(inputs={Example.height: [[0, 1], [0, 0]]}),
        r"Input 'height': a variance is not finite or below",
    ),
    "too few input parameters": (
        lambda: refused(inputs={Example.height: [[0.0], [1.0]]}),
        r"Input 'height': parameters have shape \(2, 1\), expected \(2, 2\)",
    ),
    "a node of another circuit": (
        lambda: refused({Sum(Input(0, Bernoulli()), name="foreign"): [[1.0]]}),
        r"<Sum 'foreign': .*> is not a node of this circuit",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused_parameters(what):
    build, message = REFUSED[what]
    with pytest.raises(ParameterError, match=message):
        build()


def test_a_model_has_the_parameters_of_one_run():
    one = model()
    with pytest.raises(ParameterError, match="the parameters of one run, not of 2"):
        Model(one.circuit, stack([one.params, one.params]))


def test_parameters_come_back_by_node_and_by_name():
    found = model()
    for root in (Example.root, "root"):
        np.testing.assert_array_equal(found.weights(root), [[0.3, 0.7]])
    for flag in (Example.flag, "flag"):
        np.testing.assert_array_equal(found.input_parameters(flag), [[0.2], [0.9]])


@given(case=cases())
@settings(max_examples=40, deadline=None)
def test_parameters_of_every_node_come_back(case):
    found = Model.from_parameters(case.circuit, case.weights, case.inputs)
    for node, block in case.weights.items():
        np.testing.assert_array_equal(found.weights(node), block)
    for node, block in case.inputs.items():
        np.testing.assert_array_equal(found.input_parameters(node), block)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda m: m.weights("nobody"), "no Sum 'nobody' in this circuit"),
        (lambda m: m.weights("flag"), "no Sum 'flag' in this circuit"),
        (lambda m: m.input_parameters("root"), "no Input 'root' in this circuit"),
        (lambda m: m.weights(Sum(Example.flag)), "no Sum <Sum: .*> in this circuit"),
        (lambda m: m.input_parameters(Example.circuit.nodes[2]), "no Input <Product: .*> in this circuit"),
    ],
)
def test_parameters_of_a_node_that_has_none(ask, message):
    with pytest.raises(ParameterError, match=message):
        ask(model())


def test_a_name_that_two_nodes_share_is_refused():
    twins = [Input(v, Bernoulli(), name="twin") for v in range(2)]
    found = Model.from_parameters(Circuit(Product(twins)), inputs={twin: [[0.5]] for twin in twins})
    with pytest.raises(ParameterError, match="more than one node 'twin'"):
        found.input_parameters("twin")
    np.testing.assert_array_equal(found.input_parameters(twins[1]), [[0.5]])


def test_a_sum_without_weights_gets_uniform_ones_within_its_mask():
    leaf = Input(0, Categorical(2), 4)
    plain, masked = Sum(leaf, 2), Sum(leaf, 2, [[True, True, False, False], [True, True, True, True]])
    found = Model.from_parameters(Circuit([plain, masked]), None, {leaf: np.full((4, 2), 0.5)})
    np.testing.assert_array_equal(found.weights(plain), np.full((2, 4), 0.25))
    np.testing.assert_array_equal(found.weights(masked), [[0.5, 0.5, 0, 0], [0.25] * 4])


def test_weights_that_all_but_sum_to_one_are_made_to():
    inputs = [Input(v, Bernoulli(), 2) for v in range(50)]
    sums = [Sum(node) for node in inputs]
    weights = {node: [[0.50004, 0.50004]] for node in sums}
    made = Model.from_parameters(Circuit(Sum(Product(sums))), weights, {node: [[0.5], [0.5]] for node in inputs})
    assert made.log_prob(np.full((1, 50), np.nan))[0] == pytest.approx(0, abs=1e-12)
    assert made.weights(sums[0]).tolist() == [[0.5, 0.5]]


def test_a_node_of_one_unit_takes_a_plain_list():
    found = Model.from_parameters(Example.circuit, {Example.root: [0.3, 0.7]}, Example.inputs)
    np.testing.assert_array_equal(found.weights("root"), [[0.3, 0.7]])


def test_indicators_need_no_parameters():
    leaf = Input(0, Indicator((0, 1)), 2)
    found = Model.from_parameters(Circuit(Sum(leaf)))
    np.testing.assert_allclose(found.log_prob([[0], [1]]), np.log(0.5))
    assert found.input_parameters(leaf).shape == (2, 0)


def test_parameters_may_be_numpy_or_torch():
    block = np.array([[0.3, 0.7]])
    for given_block in (block, torch.tensor(block), torch.tensor(block, dtype=torch.float32)):
        found = Model.from_parameters(Example.circuit, {Example.root: given_block}, Example.inputs)
        np.testing.assert_allclose(found.weights("root"), block, rtol=1e-6)
    block[0, 0] = 0.9
    np.testing.assert_allclose(found.weights("root"), [[0.3, 0.7]], rtol=1e-6)  # a copy, not the array itself


# --- log-probabilities ---


@pytest.mark.parametrize(
    "kind",
    [
        lambda x: x,
        lambda x: x.astype(np.float32),
        lambda x: x.tolist(),
        np.asfortranarray,
        lambda x: pd.DataFrame(x, columns=["height", "flag"]),
    ],
    ids=["float64", "float32", "list", "columns first", "data frame"],
)
def test_log_prob_takes_tables_of_any_kind(kind):
    found = model().log_prob(kind(Example.x))
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected(Example.x), rtol=1e-12)


def test_log_prob_of_a_tensor_is_a_tensor():
    found = model().log_prob(torch.from_numpy(Example.x))
    assert isinstance(found, torch.Tensor)
    np.testing.assert_allclose(found.numpy(), expected(Example.x), rtol=1e-12)


def test_missing_values_are_nan_or_the_number_that_marks_them():
    holes = Example.x.copy()
    holes[0, 0] = holes[1, 1] = np.nan
    holes[2] = np.nan
    wanted = expected(holes)
    assert wanted[2] == pytest.approx(0, abs=1e-15)
    np.testing.assert_allclose(model().log_prob(holes), wanted, rtol=1e-12, atol=1e-15)
    marked = np.nan_to_num(holes, nan=-9)
    np.testing.assert_allclose(model().log_prob(marked, missing=-9), wanted, rtol=1e-12, atol=1e-15)


def test_integers_may_mark_missing_values_by_minus_one():
    leaves = [Input(v, Bernoulli()) for v in range(2)]
    found = Model.from_parameters(Circuit(Product(leaves)), None, {leaves[0]: [[0.25]], leaves[1]: [[0.5]]})
    x = np.array([[1, 1], [1, -1], [-1, -1]], dtype=np.int8)
    np.testing.assert_allclose(np.exp(found.log_prob(x, missing=-1)), [0.125, 0.25, 1.0])
    with pytest.raises(DataError, match=r"column 1, row 3: -1 is negative.* pass missing=-1"):
        found.log_prob(x, unseen="error")
    with pytest.warns(CircurveWarning, match=r"-1 was not seen in training .* pass missing=-1"):
        assert np.isneginf(found.log_prob(x)).tolist() == [False, True, True]


def test_several_outputs_are_columns():
    leaf = Input(0, Bernoulli(), 2)
    first, second = Sum(leaf, 2), Sum(leaf)
    weights = {first: [[1, 0], [0.5, 0.5]], second: [[0, 1]]}
    found = Model.from_parameters(Circuit([first, second]), weights, {leaf: [[0.2], [0.6]]})
    np.testing.assert_allclose(np.exp(found.log_prob([[1], [0]])), [[0.2, 0.4, 0.6], [0.8, 0.6, 0.4]])


@given(case=cases(zeros=True))
@settings(max_examples=40, deadline=None)
def test_log_prob_equals_the_definition_in_one_chunk_or_many(case):
    found = Model.from_parameters(case.circuit, case.weights, case.inputs)
    wanted = Truth.of(case).outputs.log().T.numpy()
    wanted = wanted[:, 0] if case.circuit.outputs == 1 else wanted
    np.testing.assert_allclose(found.log_prob(case.x), wanted, rtol=1e-10, atol=1e-12)
    least = 8 * len(case.x) * (case.circuit.variables + case.circuit.outputs)
    one_by_one = found.log_prob(case.x, memory_budget=least)
    np.testing.assert_allclose(one_by_one, wanted, rtol=1e-10, atol=1e-12)


def test_more_rows_than_one_chunk_holds():
    rng = np.random.default_rng(0)
    x = np.stack([rng.normal(size=1_500), rng.integers(0, 2, 1_500)], axis=1)
    np.testing.assert_allclose(model().log_prob(x), expected(x), rtol=1e-12)


def test_a_row_of_probability_zero_is_minus_infinity():
    found = Model.from_parameters(Example.circuit, Example.weights, Example.inputs | {Example.flag: [[0.0], [0.0]]})
    assert found.log_prob(Example.x).tolist()[::2] == [-np.inf, -np.inf]
    assert found.to(dtype=torch.float32).log_prob(Example.x).tolist()[::2] == [-np.inf, -np.inf]


def test_a_value_must_fit_every_family_of_its_variable():
    """p(2) of a Bernoulli has no meaning, also where the first input of the variable would take a 2."""
    wide, narrow = Input(0, Categorical(3)), Input(0, Bernoulli())
    inputs = {wide: [[0.2, 0.3, 0.5]], narrow: [[0.4]]}
    found = Model.from_parameters(Circuit(Sum([wide, narrow])), None, inputs)
    np.testing.assert_allclose(np.exp(found.log_prob([[0], [1]])), [0.4, 0.35])
    with pytest.raises(DataError, match=r"value 2 does not fit Bernoulli\(\)"):
        found.log_prob([[2]])


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([[0.0]], "data has 1 column, the circuit has 2 variables"),
        ([[np.inf, 1.0]], "column 1, row 1: inf is not finite"),
        ([0.0, 1.0], "data has 1 dimension"),
    ],
)
def test_data_that_do_not_fit(x, message):
    with pytest.raises(DataError, match=message):
        model().log_prob(x)


@pytest.mark.parametrize(
    ("value", "message"),
    [(0.5, r"column 2, row 2: 0\.5 is not a whole number"), (2.0, r"row 2: value 2 does not fit Bernoulli\(\)")],
)
def test_a_value_that_training_did_not_see_is_impossible_missing_or_an_error(value, message):
    x = [[0.0, 1.0], [0.0, value]]
    with pytest.warns(CircurveWarning, match=f"column 2: {value:g} was not seen in training .*1 row in all"):
        scores = model().log_prob(x)
    assert scores[1] == -np.inf
    assert scores[0] == model().log_prob(x[:1])[0]
    with pytest.warns(CircurveWarning, match="treated as missing"):
        assert model().log_prob(x, unseen="missing")[1] == model().log_prob([[0.0, np.nan]])[0]
    with pytest.raises(DataError, match=message):
        model().log_prob(x, unseen="error")
    with pytest.raises(OptionError, match="unseen must be one of 'impossible', 'missing', 'error', not 'ignore'"):
        model().log_prob(x, unseen="ignore")


@pytest.mark.parametrize("budget", [0, "1GB", True, 2.5])
def test_a_budget_that_is_no_number_of_bytes_is_refused(budget):
    with pytest.raises(OptionError, match="memory_budget must be a positive number of bytes"):
        model().log_prob(Example.x, memory_budget=budget)


# --- precision and devices ---


def test_precision_is_chosen_and_changed_explicitly():
    double = model()
    single = double.to(dtype=torch.float32)
    assert (double.dtype, single.dtype) == (torch.float64, torch.float32)
    np.testing.assert_allclose(single.log_prob(Example.x), expected(Example.x), rtol=1e-5)
    assert single.log_prob(torch.from_numpy(Example.x)).dtype == torch.float32
    made = Model.from_parameters(Example.circuit, Example.weights, Example.inputs, dtype=torch.float32)
    assert made.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float16, torch.int32, "float32"])
def test_a_precision_that_is_not_computed_in_is_refused(dtype):
    with pytest.raises(OptionError, match=r"dtype must be torch\.float32 or torch\.float64, not"):
        model().to(dtype=dtype)
    with pytest.raises(OptionError, match="dtype must be"):
        Model.from_parameters(Example.circuit, Example.weights, Example.inputs, dtype=dtype)


def test_a_model_keeps_its_backend_between_calls_and_takes_it_along_when_it_goes():
    made = model()
    backend = made.backend
    made.log_prob(Example.x)
    assert made.backend is backend
    left = weakref.ref(backend)
    gc.disable()
    try:
        del made, backend
        assert left() is None
    finally:
        gc.enable()


def test_a_pickled_model_leaves_its_backend_behind():
    made = model()
    made.log_prob(Example.x)
    again = pickle.loads(pickle.dumps(made))
    assert "backend" not in vars(again)
    np.testing.assert_array_equal(again.log_prob(Example.x), made.log_prob(Example.x))


def test_devices_by_name():
    assert as_device("cpu") == torch.device("cpu")
    assert as_device(torch.device("cpu")) == torch.device("cpu")
    assert as_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("device", ["gpu", "meta", "tpu:0"])
def test_unknown_devices_are_refused(device):
    with pytest.raises(OptionError, match=f"not '{device}'"):
        model().to(device)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_cuda_device_that_is_not_there_is_refused():
    with pytest.raises(OptionError, match="device 'cuda': torch finds no CUDA device"):
        model().to("cuda")


def test_repr_and_public_names():
    assert repr(model()) == "<Model: <Circuit: 2 variables, 4 nodes, 1 output>, torch.float64, cpu>"
    assert cc.Model is Model


def test_text_is_kept_beside_a_saved_model(tmp_path):
    circuit = cc.mixture(2, 2)
    model = Model.from_parameters(circuit, inputs={node: [[0.2], [0.7]] for node in circuit.inputs})
    model.save(tmp_path / "m", extra={"training": "three epochs"})
    assert read_metadata(tmp_path / "m") == {"training": "three epochs"}
    model.save(tmp_path / "m")
    assert read_metadata(tmp_path / "m") == {}
    with pytest.raises(OptionError, match="extra must map text to text"):
        model.save(tmp_path / "m", extra={"epochs": 3})
