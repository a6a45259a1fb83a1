"""The emulation of a GPU's arithmetic follows the PTX manual, and the GPU itself where there is one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

import triton
import triton.language as tl

from arithmetic_kernels import DOTS, EXACT, KERNELS, LEFT, RIGHT, dot_operands, run_all, run_dot, run_elementwise
from gpu_arithmetic import _divide, _three_products, flushed, gpu_arithmetic

HAS_GPU = torch.cuda.is_available()
interpreted = pytest.mark.skipif(HAS_GPU, reason="kernels are compiled here")
TINY = np.float32(2.0**-126)
APPROXIMATE = 4e-7
"""Relative error of the approximate instructions, 2 units in the last place, and of exp beside that of its argument."""

EXPONENT_ROUNDING = 1.5 * 88 * 2.0**-23
"""tl.exp rounds x log2(e), |x| up to 104, to float32 before it takes the power: this is how far the result moves."""


FLUSHING = {"sqrt", "rsqrt", "exp2"}


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """Results of all kernels in the interpreter; in another process if kernels are compiled in this one."""
    if not HAS_GPU:
        with gpu_arithmetic():
            return run_all("cpu")
    file = tmp_path_factory.mktemp("emulated") / "results.npz"
    script = Path(__file__).with_name("arithmetic_kernels.py")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([sys.executable, str(script), str(file)], check=True, env=environment)
    return dict(np.load(file))


def same_bits(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Where two arrays agree to the bit, with the sign of zero; any NaN is like any other."""
    return (found.view(np.int32) == wanted.astype(np.float32).view(np.int32)) | (np.isnan(found) & np.isnan(wanted))


def assert_bits(found: np.ndarray, wanted: np.ndarray, where: np.ndarray | bool = True) -> None:
    wrong = where & ~same_bits(found, wanted)
    assert not wrong.any(), list(zip(LEFT[wrong], RIGHT[wrong], found[wrong], wanted[wrong], strict=True))[:5]


def assert_near(found: np.ndarray, wanted: np.ndarray, tolerance: float, absolute: float = 2.0**-149) -> None:
    """The same class of number (NaN, infinite with its sign, zero) and the same to a relative tolerance elsewhere."""
    assert np.array_equal(np.isnan(found), np.isnan(wanted))
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=absolute)


# -- the rules, against what the PTX manual says


def exactly(function, *operands: np.ndarray) -> np.ndarray:
    """A numpy function in float64, rounded to float32: right to the last bit but for rare double rounding."""
    with np.errstate(all="ignore"):
        return function(*(x.astype(np.float64) for x in operands)).astype(np.float32)


def test_square_roots_take_subnormal_numbers_for_zero(emulated):
    wanted = exactly(np.sqrt, flushed(LEFT))
    assert_bits(emulated["sqrt"], wanted)
    subnormal = (np.abs(LEFT) < TINY) & (LEFT != 0)
    assert subnormal.any()
    assert (emulated["sqrt"][subnormal] == 0).all()  # also of negative ones: no NaN


def test_inverse_square_roots_of_subnormal_numbers_are_infinite(emulated):
    assert_near(emulated["rsqrt"], exactly(lambda x: 1 / np.sqrt(x), flushed(LEFT)), APPROXIMATE)
    assert np.isposinf(emulated["rsqrt"][(LEFT > 0) & (LEFT < TINY)]).all()
    assert np.isneginf(emulated["rsqrt"][(LEFT < 0) & (LEFT > -TINY)]).all()


def test_powers_of_two_flush_their_results(emulated):
    assert_near(emulated["exp2"], flushed(exactly(np.exp2, LEFT)), APPROXIMATE, absolute=0)
    assert (emulated["exp2"][LEFT == -126.5] == 0).all()


def test_exponentials_keep_subnormal_results(emulated):
    assert_near(emulated["exp"], exactly(np.exp, LEFT), EXPONENT_ROUNDING)
    assert (emulated["exp"][LEFT == -100] > 0).all()
    assert (emulated["exp"][LEFT == -100] < TINY).all()


@pytest.mark.parametrize("name", ["log", "log2"])
def test_logarithms_know_subnormal_numbers(emulated, name):
    assert_near(emulated[name], exactly(getattr(np, name), LEFT), APPROXIMATE)
    assert np.isfinite(emulated[name][(LEFT > 0) & (LEFT < TINY)]).all()
    assert np.isneginf(emulated[name][LEFT == 0]).all()


def test_quotients_keep_subnormal_numbers(emulated):
    wanted = exactly(np.divide, LEFT, RIGHT)
    assert_near(emulated["divide"], wanted, APPROXIMATE)
    by_subnormal = (np.abs(RIGHT) < TINY) & (RIGHT != 0) & (LEFT == RIGHT)
    assert (np.abs(emulated["divide"][by_subnormal] - 1) < APPROXIMATE).all()
    assert ((np.abs(wanted) < TINY) & (wanted != 0) & (emulated["divide"] != 0)).any()


def test_quotients_of_equal_numbers_need_not_be_one():
    """a (1 / b) with the inverse rounded: a weight divided by itself may exceed one."""
    numbers = np.linspace(1, 2, 1000, dtype=np.float32)
    quotients = _divide(numbers, numbers)
    assert (quotients != 1).any()
    assert (np.abs(quotients - 1) <= 2.0**-23).all()


@pytest.mark.parametrize("name", ["maximum", "largest_of_two"])
def test_the_larger_number_wins_over_nan_and_minus_zero(emulated, name):
    assert np.array_equal(np.isnan(emulated[name]), np.isnan(LEFT) & np.isnan(RIGHT))
    assert np.array_equal(emulated[name], np.fmax(LEFT, RIGHT), equal_nan=True)
    zeros = (LEFT == 0) & (RIGHT == 0)
    assert np.array_equal(np.signbit(emulated[name][zeros]), (np.signbit(LEFT) & np.signbit(RIGHT))[zeros])


@pytest.mark.parametrize("name", ["minimum", "smallest_of_two"])
def test_the_smaller_number_wins_over_nan_and_plus_zero(emulated, name):
    assert np.array_equal(emulated[name], np.fmin(LEFT, RIGHT), equal_nan=True)
    zeros = (LEFT == 0) & (RIGHT == 0)
    assert np.array_equal(np.signbit(emulated[name][zeros]), (np.signbit(LEFT) | np.signbit(RIGHT))[zeros])


@pytest.mark.parametrize(("name", "function"), [("floor", np.floor), ("ceil", np.ceil)])
def test_whole_numbers_next_to_a_subnormal_one_are_zero(emulated, name, function):
    assert_bits(emulated[name], function(flushed(LEFT)))
    assert (emulated[name][np.abs(LEFT) < TINY] == 0).all()


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("add", np.add),
        ("multiply", np.multiply),
        ("through_float64", np.multiply),
        ("div_rn", np.divide),
        ("sqrt_rn", lambda x, y: np.sqrt(x)),
    ],
)
def test_everything_else_keeps_subnormal_numbers(emulated, name, function):
    with np.errstate(all="ignore"):
        wanted = function(LEFT, RIGHT)
    assert_bits(emulated[name], wanted)
    assert ((np.abs(wanted) < TINY) & (wanted != 0)).any() or name == "sqrt_rn"


# -- products of matrices


def cut(x: np.ndarray, bits: int = 13) -> np.ndarray:
    """x without its last bits: a multiple of 2^bits units in the last place, towards zero."""
    unit = np.spacing(np.abs(x)).astype(np.float64) * 2**bits
    return np.trunc(x.astype(np.float64) / unit) * unit


@pytest.mark.parametrize("size", [16, 64])
def test_tensor_cores_cut_their_operands(emulated, size):
    diagonal, values = dot_operands(size)
    wanted = (cut(np.diag(diagonal))[:, None] * cut(values)).astype(np.float32)
    assert np.array_equal(emulated[f"dot_tf32_{size}"], wanted)
    assert (wanted == 0).any()
    assert ((wanted != 0) & (wanted < TINY)).any()


@pytest.mark.parametrize("size", [16, 64])
def test_three_products_restore_float32(emulated, size):
    diagonal, values = dot_operands(size)
    wanted = np.diag(diagonal).astype(np.float64)[:, None] * values
    normal = (np.diag(diagonal)[:, None] >= 2.0**-110) & (values >= 2.0**-110) & (wanted >= 2.0**-110)
    assert normal.any()
    np.testing.assert_allclose(emulated[f"dot_tf32x3_{size}"][normal], wanted[normal], rtol=APPROXIMATE)


@interpreted
def test_an_infinite_operand_of_three_products_stays_infinite():
    x = np.eye(16, dtype=np.float32)
    x[3, 3] = np.inf
    ones = np.ones((16, 16), dtype=np.float32)
    with np.errstate(all="ignore"):
        found = _three_products(x, ones)
    assert np.isposinf(found[3]).all()
    assert (np.delete(found, 3, axis=0) == 1).all()


# -- the context manager


@triton.jit
def _sine(x, out):
    tl.store(out, tl.sin(tl.load(x)))


@interpreted
def test_operations_without_a_rule_raise():
    x, out = torch.ones(1), torch.zeros(1)
    _sine[(1,)](x, out)
    assert out.item() == pytest.approx(np.sin(1.0))
    with gpu_arithmetic(), pytest.raises(Exception, match="add a rule to gpu_arithmetic"):
        _sine[(1,)](x, out)


def test_nothing_is_left_behind():
    from triton.runtime.interpreter import InterpreterBuilder, ReduceOps

    before = [dict(vars(InterpreterBuilder)), dict(vars(ReduceOps)), np.geterr()]
    with gpu_arithmetic():
        assert vars(InterpreterBuilder)["create_sqrt"] is not before[0]["create_sqrt"]
    with pytest.raises(ZeroDivisionError), gpu_arithmetic():
        raise ZeroDivisionError
    assert [dict(vars(InterpreterBuilder)), dict(vars(ReduceOps)), np.geterr()] == before


@interpreted
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_outside_the_interpreter_computes_as_numpy_does():
    with gpu_arithmetic():
        assert run_elementwise("sqrt", "cpu")[(LEFT > 0) & (LEFT < TINY)].max() == 0
    assert_bits(run_elementwise("sqrt", "cpu"), exactly(np.sqrt, LEFT))


# -- a GPU, where there is one


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs a CUDA device")
@pytest.mark.parametrize("name", sorted(EXACT))
def test_a_gpu_computes_the_same_bits(emulated, name):
    assert_bits(run_elementwise(name, "cuda"), emulated[name])


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs a CUDA device")
@pytest.mark.parametrize("name", sorted(set(KERNELS) - set(EXACT)))
def test_a_gpu_computes_the_same_to_its_accuracy(emulated, name):
    assert_near(run_elementwise(name, "cuda"), emulated[name], 2 * APPROXIMATE, absolute=2 * 2.0**-149)
    if name in FLUSHING:
        assert_bits(run_elementwise(name, "cuda"), emulated[name], where=emulated[name] == 0)


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs a CUDA device")
@pytest.mark.parametrize(("precision", "size"), DOTS)
def test_a_gpu_multiplies_matrices_alike(emulated, precision, size):
    """One product per result: nothing to be rounded in an accumulator, but for the parts of tf32x3.

    Where an operand of tf32x3 is below 2^-110, its low part is subnormal, and its last bits are not emulated.
    """
    found, wanted = run_dot(precision, size, "cuda"), emulated[f"dot_{precision}_{size}"]
    if precision != "tf32x3":
        np.testing.assert_allclose(found, wanted, rtol=2.0**-23, atol=2 * 2.0**-149)
        return
    diagonal, values = dot_operands(size)
    small = (np.abs(np.diag(diagonal)[:, None]) < 2.0**-110) | (np.abs(values) < 2.0**-110)
    np.testing.assert_allclose(found[~small], wanted[~small], rtol=APPROXIMATE, atol=2 * 2.0**-149)
    np.testing.assert_allclose(found[small], wanted[small], rtol=2.0**-12, atol=2 * 2.0**-149)
