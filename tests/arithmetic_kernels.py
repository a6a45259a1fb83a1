"""One small Triton kernel for each instruction that a GPU computes otherwise than numpy, with awkward operands.

`python arithmetic_kernels.py FILE` runs all of them in the interpreter with the arithmetic of a GPU and saves the
results: on a machine with a GPU, where kernels are compiled, another process has to run the interpreter.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
import triton
import triton.language as tl

__all__ = ["DOTS", "EXACT", "KERNELS", "LEFT", "RIGHT", "run_all", "run_dot", "run_elementwise"]

BLOCK = 1024
VALUES = np.array(
    [
        *(0.0, 2.0**-149, 2.0**-140, 2.0**-137, 2.0**-127, 2.0**-126 - 2.0**-149, 2.0**-126, 2.0**-125, 1e-30, 1e-12),
        *(1 / 3, 0.5, 1.0, 1.5, 2.0, 10.0, 87.5, 100.0, 126.5, 150.0, 1e12, 1e30, 2.0**126, 2.0**127, 3e38, np.inf),
    ],
    dtype=np.float32,
)
SIGNED = np.concatenate([VALUES, -VALUES, np.array([np.nan], dtype=np.float32)])
LEFT, RIGHT = (a.ravel() for a in np.meshgrid(SIGNED, SIGNED, indexing="ij"))
"""All pairs of values around the smallest normal number, the smallest number, one, and the largest, with both signs."""


@triton.jit
def sqrt(x, y, out, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.sqrt(tl.load(x + i, mask=i < N)), mask=i < N)


@triton.jit
def rsqrt(x, y, out, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.rsqrt(tl.load(x + i, mask=i < N)), mask=i < N)


@triton.jit
def exp(x, y, out, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.exp(tl.load(x + i, mask=i < N)), mask=i < N)


@triton.jit
def exp2(x, y, out, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.exp2(tl.load(x + i, mask=i < N)), mask=i < N)


@triton.jit
def log(x, y, out, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.log(tl.load(x + i, mask=i < N)), mask=i < N)


@triton.jit
def log2(x, y, out, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.log2(tl.load(x + i, mask=i < N)), mask=i < N)


@triton.jit
def floor(x, y, out, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.floor(tl.load(x + i, mask=i < N)), mask=i < N)


@triton.jit
def ceil(x, y, out, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.ceil(tl.load(x + i, mask=i < N)), mask=i < N)


@triton.jit
def divide(x, y, out, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < N) / tl.load(y + i, mask=i < N), mask=i < N)


@triton.jit
def add(x, y, out, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < N) + tl.load(y + i, mask=i < N), mask=i < N)


@triton.jit
def multiply(x, y, out, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < N) * tl.load(y + i, mask=i < N), mask=i < N)


@triton.jit
def maximum(x, y, out, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.maximum(tl.load(x + i, mask=i < N), tl.load(y + i, mask=i < N)), mask=i < N)


@triton.jit
def minimum(x, y, out, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.minimum(tl.load(x + i, mask=i < N), tl.load(y + i, mask=i < N)), mask=i < N)


@triton.jit
def largest_of_two(x, y, out, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    pairs = tl.join(tl.load(x + i, mask=i < N), tl.load(y + i, mask=i < N))
    tl.store(out + i, tl.max(pairs, axis=1), mask=i < N)


@triton.jit
def smallest_of_two(x, y, out, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    pairs = tl.join(tl.load(x + i, mask=i < N), tl.load(y + i, mask=i < N))
    tl.store(out + i, tl.min(pairs, axis=1), mask=i < N)


@triton.jit
def through_float64(x, y, out, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    product = tl.load(x + i, mask=i < N).to(tl.float64) * tl.load(y + i, mask=i < N)
    tl.store(out + i, product.to(tl.float32), mask=i < N)


@triton.jit
def sqrt_rn(x, y, out, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.sqrt_rn(tl.load(x + i, mask=i < N)), mask=i < N)


@triton.jit
def div_rn(x, y, out, N, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.div_rn(tl.load(x + i, mask=i < N), tl.load(y + i, mask=i < N)), mask=i < N)


@triton.jit
def dot(x, y, out, N: tl.constexpr, PRECISION: tl.constexpr):
    i = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + i, tl.dot(tl.load(x + i), tl.load(y + i), input_precision=PRECISION))


EXACT = {
    kernel.__name__: kernel
    for kernel in (
        *(add, multiply, maximum, minimum, largest_of_two, smallest_of_two),
        *(through_float64, sqrt_rn, div_rn, floor, ceil),
    )
}
"""Instructions whose every bit is known."""

KERNELS = EXACT | {k.__name__: k for k in (sqrt, rsqrt, exp, exp2, log, log2, divide)}

DOTS = [(precision, size) for precision in ("tf32", "tf32x3", "ieee") for size in (16, 64)]
"""Small products compile to mma, larger ones to wgmma."""


def run_elementwise(name: str, device: str) -> np.ndarray:  # (pairs,)
    """The kernel of that name on all pairs."""
    x, y = (torch.from_numpy(a.copy()).to(device) for a in (LEFT, RIGHT))
    out = torch.zeros_like(x)
    KERNELS[name][(triton.cdiv(len(LEFT), BLOCK),)](x, y, out, len(LEFT), B=BLOCK)
    return out.cpu().numpy()


def dot_operands(size: int) -> tuple[np.ndarray, np.ndarray]:  # (size, size) each
    """A diagonal matrix, so that each result is one product, and one of awkward values."""
    rng = np.random.default_rng(size)
    diagonal = np.array([2.0**-149, 2.0**-137, 2.0**-130, 2.0**-126, 1e-30, 1 / 3, 1.0, 1 + 2.0**-10], dtype=np.float32)
    scales = np.array([1e-40, 1e-20, 1e-8, 1.0, 3.0, 1e8, 1e20, 1e30], dtype=np.float32)
    values = (rng.random((size, size), dtype=np.float32) + 0.5) * np.resize(scales, size)
    return np.diag(np.resize(diagonal, size)), values.astype(np.float32)


def run_dot(precision: str, size: int, device: str) -> np.ndarray:  # (size, size)
    """A product of matrices at that precision."""
    x, y = (torch.from_numpy(a.copy()).to(device) for a in dot_operands(size))
    out = torch.zeros_like(x)
    dot[(1,)](x, y, out, N=size, PRECISION=precision)
    return out.cpu().numpy()


def run_all(device: str) -> dict[str, np.ndarray]:
    """Results of all kernels by name."""
    results = {name: run_elementwise(name, device) for name in KERNELS}
    return results | {f"dot_{p}_{size}": run_dot(p, size, device) for p, size in DOTS}


if __name__ == "__main__":
    from gpu_arithmetic import gpu_arithmetic

    with gpu_arithmetic():
        np.savez(sys.argv[1], **run_all("cpu"))
