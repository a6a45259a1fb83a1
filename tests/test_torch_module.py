"""Gradients of log-probabilities, and circuits as modules of torch: compared with gradcheck and finite differences."""

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from torch import nn

import circurve as cc
from circuits import Case, cases
from circurve.engine import Params
from circurve.errors import DataError, OptionError, ParameterError
from circurve.graph import Circuit, Input, Product, Sum
from circurve.inputs import Bernoulli, Categorical, Gaussian, Indicator
from circurve.model import Model


def model_of(case: Case) -> Model:
    return Model.from_parameters(case.circuit, case.weights, case.inputs)


def possible(log_prob: torch.Tensor) -> torch.Tensor:
    """The scores of rows that are not impossible: minus infinity has no derivative."""
    return log_prob[log_prob.detach().isfinite()]


def mixed(dtype: torch.dtype = torch.float64) -> Model:
    """Columns 0 and 2 are Gaussian, column 1 is binary."""
    a, c = Input(0, Gaussian(), 2, name="a"), Input(2, Gaussian(), 2, name="c")
    b = Input(1, Bernoulli(), 2, name="b")
    inputs = {a: [[0, 1], [2, 0.5]], b: [[0.2], [0.7]], c: [[-1, 1], [1, 2]]}
    return Model.from_parameters(Circuit(Sum(Product([a, b, c]), name="root")), None, inputs, dtype=dtype)


ROWS = torch.tensor([[0.5, 1.0, -0.5], [1.0, 0.0, 2.0], [-0.3, 1.0, 0.1]], dtype=torch.float64)
CONTINUOUS = ROWS[:, [0, 2]]


# --- Model.log_prob ---


@given(case=cases(domains=("real",)))
@settings(max_examples=40, deadline=None)
def test_the_derivative_by_rows_passes_gradcheck(case):
    model = model_of(case)
    hidden = torch.from_numpy(np.isnan(case.x))
    filled = torch.from_numpy(np.nan_to_num(case.x)).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: model.log_prob(torch.where(hidden, torch.nan, x)), filled, atol=1e-6)


@given(case=cases(units=2, depth=3, samples=3))
@settings(max_examples=40, deadline=None)
def test_the_derivative_by_parameters_passes_gradcheck(case):
    """By the weights of sums, taken as free numbers: no projection stands between them and the result."""
    model, x = model_of(case), torch.from_numpy(case.x)
    masks = [None if s.mask is None else torch.from_numpy(s.mask.copy()) for s in case.program.sums]

    def score(*weights: torch.Tensor) -> torch.Tensor:
        kept = tuple(w if m is None else w * m for w, m in zip(weights, masks, strict=True))
        return possible(Model(case.circuit, Params(kept, model.params.inputs), case.program).log_prob(x))

    weights = [w.clone().requires_grad_() for w in model.params.weights]
    if weights:
        assert torch.autograd.gradcheck(score, weights, atol=1e-6)


def test_a_missing_value_has_no_derivative_and_the_others_keep_theirs():
    holes = CONTINUOUS.clone()
    holes[0, 1] = torch.nan
    x = torch.full((3, 3), torch.nan, dtype=torch.float64)
    x[:, [0, 2]] = holes
    x.requires_grad_()
    mixed().log_prob(x).sum().backward()
    assert bool((x.grad[:, 1] == 0).all())
    assert x.grad[0, 2] == 0
    assert bool((x.grad[:, 0] != 0).all())


def test_rows_of_another_precision_and_the_score_of_plain_rows():
    x = torch.full((3, 3), torch.nan)
    x[:, [0, 2]] = CONTINUOUS.float()
    wanted = mixed().log_prob(x)
    x.requires_grad_()
    found = mixed().log_prob(x)
    assert found.requires_grad
    torch.testing.assert_close(found, wanted)
    found.sum().backward()
    assert x.grad.dtype == torch.float32


def requiring() -> Model:
    model = mixed()
    return Model(model.circuit, model.params.map(lambda t: t.clone().requires_grad_()), model.program)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: mixed().log_prob(ROWS.clone().requires_grad_()),
            DataError,
            r"column 2 is discrete \(Bernoulli\(\)\) and has none: pass x.detach\(\), or pass the discrete",
        ),
        (
            lambda: requiring().log_prob(ROWS.numpy()),
            OptionError,
            r"a numpy result would lose: pass x as a torch tensor, or call log_prob within torch.no_grad\(\)",
        ),
        (
            lambda: requiring().log_prob(ROWS, backend="tree"),
            OptionError,
            "backend='tree' gives no gradients: use backend='reference'",
        ),
        (
            lambda: requiring().log_prob(ROWS, memory_budget=10**6),
            OptionError,
            "memory_budget has no effect when gradients are computed: pass fewer rows",
        ),
        (
            lambda: mixed().log_prob(torch.zeros(2, 4).requires_grad_()),
            DataError,
            "data has 4 columns, the circuit has 3 variables",
        ),
    ],
)
def test_a_gradient_that_would_be_lost_is_an_error(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_without_autograd_nothing_is_refused():
    wanted = mixed().log_prob(ROWS)
    with torch.no_grad():
        torch.testing.assert_close(mixed().log_prob(ROWS.clone().requires_grad_()), wanted)
        np.testing.assert_allclose(requiring().log_prob(ROWS.numpy()), wanted)
    assert not wanted.requires_grad


def test_parameters_that_require_a_gradient_can_be_read_and_saved(tmp_path):
    model = requiring()
    model.save(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(model.weights("root"), mixed().weights("root"))


# --- the module ---


@given(case=cases())
@settings(max_examples=60, deadline=None)
def test_the_module_scores_as_its_model_and_back(case):
    model, x = model_of(case), torch.from_numpy(case.x)
    module = cc.torch_module(model)
    found = module(x)
    assert found.requires_grad == any(True for _ in module.parameters())
    torch.testing.assert_close(found.detach(), model.log_prob(x), rtol=1e-6, atol=1e-6)
    back = module.to_model()
    torch.testing.assert_close(back.log_prob(x), model.log_prob(x), rtol=1e-6, atol=1e-6)


@given(case=cases(units=2, depth=3, samples=3))
@settings(max_examples=25, deadline=None)
def test_the_module_passes_gradcheck_by_all_its_parameters(case):
    module, x = cc.torch_module(model_of(case)), torch.from_numpy(case.x)
    names, values = zip(*module.named_parameters(), strict=True) if list(module.parameters()) else ((), ())

    def score(*tensors: torch.Tensor) -> torch.Tensor:
        return possible(torch.func.functional_call(module, dict(zip(names, tensors, strict=True)), (x,)))

    if values:
        leaves = [value.detach().clone().requires_grad_() for value in values]
        assert torch.autograd.gradcheck(score, leaves, atol=1e-6)


@given(case=cases(zeros=True))
@settings(max_examples=40, deadline=None)
def test_gradients_are_finite_where_the_model_has_zeros(case):
    for dtype in (torch.float32, torch.float64):
        module = cc.torch_module(model_of(case).to(dtype=dtype))
        score = possible(module(torch.from_numpy(case.x))).sum()
        if score.requires_grad:
            score.backward()
        for parameter in module.parameters():
            assert parameter.grad is None or bool(parameter.grad.isfinite().all())


def test_gradients_are_finite_at_the_ends_of_the_range():
    leaf = Input(0, Categorical(2), 2)
    flag = Input(1, Bernoulli(), 2)
    model = Model.from_parameters(
        Circuit(Sum(Product([leaf, flag]))), None, {leaf: [[0.5, 0.5]] * 2, flag: [[0.5]] * 2}, dtype=torch.float32
    )
    module = cc.torch_module(model)
    with torch.no_grad():
        for parameter in module.inputs.values():
            parameter[:, 0] = 500.0
            parameter[..., 0] = -500.0
    module(torch.tensor([[0.0, 1.0], [1.0, 0.0]])).sum().backward()
    for parameter in module.parameters():
        assert bool(parameter.grad.isfinite().all())
    module.to_model().save  # noqa: B018 - parameters are valid: made without an error


def test_masked_edges_stay_without_weight():
    leaf = Input(0, Bernoulli(), 3)
    root = Sum(leaf, 2, [[True, False, True], [True, True, False]], name="root")
    module = cc.torch_module(Model.from_parameters(Circuit(root), None, {leaf: [[0.1], [0.5], [0.9]]}))
    train(module, torch.tensor([[1.0], [1.0], [0.0]], dtype=torch.float64))
    found = module.to_model().weights("root")
    np.testing.assert_array_equal(found > 0, root.mask)
    np.testing.assert_allclose(found.sum(1), 1)


def train(module: nn.Module, *x: torch.Tensor, steps: int = 60) -> list[float]:
    optimizer = torch.optim.Adam(module.parameters(), lr=0.05)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = -module(*x).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_gradient_descent_reaches_what_em_reaches():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(-2, 1, (150, 2)), rng.normal(2, 0.5, (150, 2))])
    circuit = cc.mixture([Gaussian(), Gaussian()], 2)
    best = cc.fit(circuit, x, epochs=200, seed=0, precision="float64").train_ll
    start = cc.fit(circuit, x, epochs=1, seed=0, precision="float64").model
    losses = train(cc.torch_module(start), torch.from_numpy(x), steps=400)
    assert losses[-1] < losses[0]
    assert -losses[-1] == pytest.approx(best, abs=0.02)


class Autoencoder(nn.Module):
    """A network whose codes a circuit scores."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(5, 2)
        self.density = cc.torch_module(mixed(torch.float32))

    def forward(self, rows: torch.Tensor, flags: torch.Tensor) -> torch.Tensor:
        return self.density(self.encoder(rows), discrete=flags)


def test_it_trains_inside_a_network_with_discrete_columns_apart():
    generator = torch.Generator().manual_seed(0)
    rows, flags = torch.randn(20, 5, generator=generator), torch.randint(0, 2, (20, 1), generator=generator)
    network = Autoencoder()
    before = network.encoder.weight.detach().clone()
    losses = train(network, rows, flags)
    assert losses[-1] < losses[0]
    assert not torch.equal(network.encoder.weight, before)
    again = Autoencoder()
    again.load_state_dict(network.state_dict())
    torch.testing.assert_close(again(rows, flags), network(rows, flags))
    assert "density.weights.0" in network.state_dict()


def test_columns_given_apart_are_put_in_their_order():
    module = cc.torch_module(mixed())
    together = module(ROWS)
    torch.testing.assert_close(module(CONTINUOUS, discrete=ROWS[:, [1]]), together)
    torch.testing.assert_close(module(CONTINUOUS, discrete=ROWS[:, [1]].long().tolist()), together)


def test_precision_and_copies():
    module = cc.torch_module(mixed(torch.float32))
    assert module(ROWS).dtype == torch.float32
    wide = copy.deepcopy(module).double()
    torch.testing.assert_close(wide(ROWS).float(), module(ROWS))
    torch.testing.assert_close(pickle.loads(pickle.dumps(module))(ROWS), module(ROWS))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(module(ROWS), module(ROWS))
        assert module(ROWS).dtype == torch.float32


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_it_moves_to_a_gpu_and_back():
    module = cc.torch_module(mixed())
    wanted = module(ROWS).detach()
    found = module.to("cuda")(ROWS.cuda())
    found.sum().backward()
    torch.testing.assert_close(found.detach().cpu(), wanted)
    assert module.to_model().device.type == "cuda"


def test_the_model_shares_nothing_with_the_module():
    module = cc.torch_module(mixed())
    model = module.to_model()
    kept = model.log_prob(ROWS)
    train(module, ROWS, steps=3)
    torch.testing.assert_close(model.log_prob(ROWS), kept)
    assert not any(t.requires_grad for t in (*model.params.weights, *model.params.inputs))


def test_a_circuit_without_parameters():
    module = cc.torch_module(Model.from_parameters(Circuit(Input(0, Indicator((1,))))))
    assert list(module.parameters()) == []
    assert module(torch.tensor([[1.0], [0.0]])).tolist() == [0.0, -np.inf]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: m(ROWS.clone().requires_grad_()), DataError, "column 2 is discrete"),
        (lambda m: m(ROWS.numpy()), DataError, r"takes a torch tensor, not ndarray: use torch.as_tensor\(x\)"),
        (
            lambda m: m(CONTINUOUS, discrete=ROWS[:, [1]].clone().requires_grad_()),
            DataError,
            r"discrete requires a gradient, .*: pass discrete.detach\(\)",
        ),
        (
            lambda m: m(ROWS, discrete=ROWS[:, [1]]),
            DataError,
            r"x has shape \(3, 3\), expected \(rows, 2\): 2 columns are continuous, 1 discrete",
        ),
        (lambda m: m(CONTINUOUS, discrete=ROWS[:, 1]), DataError, r"discrete has shape \(3,\), expected \(rows, 1\)"),
        (lambda m: m(CONTINUOUS, discrete=ROWS[:2, [1]]), DataError, "x has 3 rows, discrete has 2"),
        (lambda m: m(ROWS + 0.5), DataError, "column 2, row 1: 1.5 is not a whole number"),
        (lambda m: m.half()(ROWS), OptionError, r"float32 or float64, not in torch.float16: use module.float\(\)"),
    ],
)
def test_bad_rows_are_refused_with_what_to_do(call, error, message):
    with pytest.raises(error, match=message):
        call(cc.torch_module(mixed()))


def test_what_is_no_model_and_what_has_no_free_form_is_refused():
    x = np.zeros((4, 1), dtype=int)
    x[0] = 1
    result = cc.fit(cc.fully_factorized([Bernoulli()]), x, epochs=1)
    with pytest.raises(OptionError, match=r"torch_module takes a Model, not FitResult; pass result\.model"):
        cc.torch_module(result)
    leaf = Input(0, Gaussian(min_variance=0.1), name="narrow")
    with pytest.raises(ParameterError, match=r"Input 'narrow': .* cannot represent its parameters.* min_variance"):
        cc.torch_module(Model.from_parameters(Circuit(leaf), None, {leaf: [[0.0, 0.01]]}))
