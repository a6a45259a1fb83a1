"""Triton's interpreter with the arithmetic of a GPU: what the kernels compute on sm_90, without one.

The interpreter computes in numpy, which keeps subnormal numbers everywhere and passes NaN through `maximum`. Compiled
kernels do not. Inside `gpu_arithmetic()`, float32 operations follow the PTX that Triton 3.7 emits for sm_90:

| in a kernel           | PTX                              | rule                                                      |
|-----------------------|----------------------------------|-----------------------------------------------------------|
| tl.sqrt               | sqrt.approx.ftz.f32              | a subnormal operand counts as zero of the same sign       |
| tl.rsqrt              | rsqrt.approx.ftz.f32             | the same: the result is infinite                          |
| tl.exp2               | ex2.approx.ftz.f32               | subnormal operand and subnormal result count as zero      |
| tl.exp                | mul.f32, ex2.approx.f32          | x log2(e) is rounded; subnormal results are kept          |
| tl.log, tl.log2       | libdevice, a polynomial          | subnormal operands are kept: scaled by 2^23 first         |
| a / b, tl.fdiv        | div.full.f32                     | a (1 / b), the inverse rounded; subnormals are kept       |
| tl.floor, tl.ceil     | cvt.rmi.ftz.f32, cvt.rpi.ftz.f32 | a subnormal operand counts as zero                        |
| tl.maximum, tl.max    | max.f32                          | NaN is dropped if the other operand is a number; +0 > -0  |
| tl.minimum, tl.min    | min.f32                          | likewise                                                  |
| tl.dot, "tf32"        | mma, wgmma                       | the last 13 bits of the operands are cut off              |
| tl.dot, "tf32x3"      | cvt.rna.tf32.f32, three products | high and low parts; NaN of the low products becomes zero  |
| tl.dot, "ieee"        | fma.rn.f32                       | as the interpreter does                                   |
| +, -, *, casts, where | add.f32, mul.f32, cvt.rn.f32.f64 | as the interpreter does: subnormal numbers are kept       |
| tl.sqrt_rn, tl.div_rn | sqrt.rn.f32, div.rn.f32          | as the interpreter does                                   |

`div.full.f32` compiles to: scale both operands by 1/4 if |b| > 2^126, by 2^24 if |b| < 2^-126; take the inverse of b;
multiply. So the inverse neither flushes nor overflows, and the quotient of equal numbers may differ from one in the
last bit. The remark of the PTX manual that a quotient may become zero for |b| > 2^126 is about `div.approx.f32`.

Assumed of tensor cores: operands are cut to 10 bits of mantissa, subnormal operands and results are kept (what is
below 2^-136 is zero after the cut). The order of their sums and the rounding of their accumulators are not emulated.
Neither are the last bits of approximate instructions nor the contraction of a product and a sum to an fma. The tests
in `test_gpu_arithmetic.py` compare all rules with a GPU where there is one; `engine/test_ptx.py` lists what the
project's kernels contain. Operations without a rule here (clamp, sine, cosine, erf, atomic
additions) raise an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

__all__ = ["flushed", "gpu_arithmetic"]

Array = NDArray[Any]

SMALLEST_NORMAL = np.float32(2.0**-126)
LARGEST_PLAIN_DIVISOR = np.float32(2.0**126)
LOG2_E = np.float32(1.4426950408889634)
TF32_BITS = np.int32(-8192)
"""Sign, exponent and 10 bits of mantissa."""

TF32_HALF = np.int32(4096)
"""Half a unit in the last place of such a number."""


@contextmanager
def gpu_arithmetic() -> Iterator[None]:
    """Interpreted kernels compute as compiled ones do on sm_90. Without effect on kernels that run on a GPU.

    Overflow and invalid operations do not warn: a GPU does not either.
    """
    from triton.runtime.interpreter import InterpreterBuilder, ReduceOps

    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        for name, rule in _unary_rules().items():
            patch.setattr(InterpreterBuilder, name, _unary(rule, getattr(InterpreterBuilder, name)))
        for name, rule in _binary_rules().items():
            patch.setattr(InterpreterBuilder, name, _binary(rule, getattr(InterpreterBuilder, name)))
        for name in ("create_sin", "create_cos", "create_erf", "create_atomic_rmw", "create_clampf"):
            patch.setattr(InterpreterBuilder, name, _not_emulated(name))
        patch.setattr(InterpreterBuilder, "create_dot", _dot(InterpreterBuilder.create_dot))
        patch.setattr(ReduceOps, "apply_impl", _reduce(ReduceOps.apply_impl))
        yield


def _unary_rules() -> dict[str, Callable[[Array], Array]]:
    return {
        "create_sqrt": lambda x: np.sqrt(flushed(x)),
        "create_rsqrt": lambda x: np.float32(1) / np.sqrt(flushed(x)),
        "create_exp2": lambda x: flushed(np.exp2(flushed(x))),
        "create_exp": _exp,
        "create_floor": lambda x: np.floor(flushed(x)),
        "create_ceil": lambda x: np.ceil(flushed(x)),
    }


def _binary_rules() -> dict[str, Callable[[Array, Array], Array]]:
    return {"create_fdiv": _divide, "create_maxnumf": _maximum, "create_minnumf": _minimum}


# -- the rules, on float32 arrays


def flushed(x: Array) -> Array:
    """Subnormal numbers become zeros of the same sign."""
    return np.where(np.abs(x) < SMALLEST_NORMAL, np.copysign(np.float32(0), x), x)


def _exp(x: Array) -> Array:
    """2^(x log2 e); below 2^-126 as the square of 2^(x log2(e) / 2), which keeps subnormal results."""
    exponent = x * LOG2_E
    tiny = exponent < -126
    power = np.exp2(np.where(tiny, exponent * np.float32(0.5), exponent))
    return np.where(tiny, power * power, power)


def _divide(a: Array, b: Array) -> Array:
    size = np.abs(b)
    scale = np.where(size > LARGEST_PLAIN_DIVISOR, np.float32(0.25), np.float32(1))
    scale = np.where(size < SMALLEST_NORMAL, np.float32(2.0**24), scale)
    return (a * scale) * (np.float32(1) / (b * scale))


def _maximum(a: Array, b: Array) -> Array:
    return np.where((a == 0) & (b == 0), a + b, np.fmax(a, b))


def _minimum(a: Array, b: Array) -> Array:
    return -_maximum(-a, -b)


def _truncated(x: Array) -> Array:
    """What tensor cores see of a float32 operand."""
    return (np.ascontiguousarray(x).view(np.int32) & TF32_BITS).view(np.float32)


def _rounded(x: Array) -> Array:
    """The nearest number with 10 bits of mantissa, ties away from zero."""
    rounded = ((np.ascontiguousarray(x).view(np.int32) + TF32_HALF) & TF32_BITS).view(np.float32)
    return np.where(np.isfinite(x), rounded, x)


def _tensor_product(a: Array, b: Array) -> Array:  # (M, K), (K, N) -> (M, N)
    return np.matmul(_truncated(a), _truncated(b))


def _three_products(a: Array, b: Array) -> Array:  # (M, K), (K, N) -> (M, N)
    """High and low parts, as Triton's tf32x3 does; what is NaN in the low products is left out."""
    high_a, high_b = _rounded(a), _rounded(b)
    low = _tensor_product(a - high_a, high_b) + _tensor_product(high_a, b - high_b)
    return _tensor_product(high_a, high_b) + np.where(np.isnan(low), np.float32(0), low)


# -- how they take the place of the interpreter's methods


def _unary(rule: Callable[[Array], Array], plain: Any) -> Any:
    def create(self: Any, arg: Any) -> Any:
        return self.unary_op(arg, rule) if arg.data.dtype == np.float32 else plain(self, arg)

    return create


def _binary(rule: Callable[[Array, Array], Array], plain: Any) -> Any:
    def create(self: Any, lhs: Any, rhs: Any) -> Any:
        float32 = lhs.data.dtype == rhs.data.dtype == np.float32
        return self.binary_op(lhs, rhs, rule) if float32 else plain(self, lhs, rhs)

    return create


def _not_emulated(name: str) -> Any:
    def create(self: Any, *args: Any) -> Any:
        raise NotImplementedError(f"{name}: read the PTX it compiles to and add a rule to gpu_arithmetic.py")

    return create


def _dot(plain: Any) -> Any:
    from triton._C.libtriton import ir

    products = {ir.INPUT_PRECISION.TF32: _tensor_product, ir.INPUT_PRECISION.TF32x3: _three_products}

    def create(self: Any, a: Any, b: Any, total: Any, precision: Any, imprecise: Any) -> Any:
        if a.data.dtype != np.float32 or precision == ir.INPUT_PRECISION.IEEE:
            return plain(self, a, b, total, precision, imprecise)
        return self.binary_op(total, total, lambda start, _: products[precision](a.data, b.data) + start)

    return create


def _reduce(plain: Any) -> Any:
    """max.f32 and min.f32 between lanes; other reductions as they are."""
    from triton.language import standard

    rules = {standard._elementwise_max: _maximum, standard._elementwise_min: _minimum}

    def apply(self: Any, input: Any) -> Any:
        rule = rules.get(self.combine_fn)
        if rule is None or input[0].handle.data.dtype != np.float32:
            return plain(self, input)

        def halves(data: Array, axis: int | None, keepdims: bool) -> Array:
            return _by_halves(rule, data, axis, keepdims)

        return self.min_max(input[0], val_reduce_op=halves)

    return apply


def _by_halves(rule: Callable[[Array, Array], Array], data: Array, axis: int | None, keepdims: bool) -> Array:
    """Reduce an axis of a power of two by combining its halves until one entry is left."""
    rows = data.reshape(-1) if axis is None else np.moveaxis(data, axis, 0)
    while len(rows) > 1:
        half = len(rows) // 2
        rows = rule(rows[:half], rows[half:])
    if not keepdims:
        return rows[0]
    return rows[0].reshape((1,) * data.ndim) if axis is None else np.expand_dims(rows[0], axis)
