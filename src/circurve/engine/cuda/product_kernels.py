"""Products of matrices on tensor cores, block by block: in one product of shortened numbers, or in three to float32."""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["product", "rounded"]


@triton.jit
def _truncated(x):
    """x without its last 13 bits, which tensor cores ignore."""
    return (x.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)


@triton.jit
def rounded(x):
    """x, positive, rounded to what tensor cores take."""
    return ((x.to(tl.int32, bitcast=True) + 4096) & -8192).to(tl.float32, bitcast=True)


@triton.jit
def product(a, b, total, PRECISION: tl.constexpr):
    """total + a b. Float32 takes three products: of a's high part with both of b's, and of the rest with b's high part.

    The high part of b is what tensor cores see of it. Products go to a sum of their own, so that none is still under
    way when its operands make room for the next ones.
    """
    if PRECISION == "tf32x3":
        high = rounded(a)
        part = tl.dot(a - high, b, input_precision="tf32")
        part = tl.dot(high, b - _truncated(b), part, input_precision="tf32")
        total += tl.dot(high, b, part, input_precision="tf32")
    elif PRECISION == "tf32":
        total += tl.dot(rounded(a), rounded(b), input_precision="tf32")
    else:
        total = tl.dot(a, b, total, input_precision=PRECISION)
    return total
