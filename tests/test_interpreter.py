"""The quicker interpreter: blocks are broadcast as in numpy, and shapes that Triton refuses are still refused."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

tl = pytest.importorskip("triton.language")
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are compiled, not interpreted")

SHAPES = [(4,), (1,), (4, 1), (2, 1), (1, 4), (2, 4), (8, 2, 4)]


def tensor(data: np.ndarray, element: object = None) -> object:
    from triton.runtime.interpreter import TensorHandle

    element = element or tl.float32
    return tl.tensor(TensorHandle(data, element), tl.block_type(element, list(data.shape)) if data.shape else element)


def semantic() -> object:
    from triton.runtime import interpreter

    return interpreter.interpreter_semantic


@pytest.mark.parametrize(("left", "right"), list(product(SHAPES, repeat=2)))
def test_two_blocks_are_broadcast_as_in_numpy(left, right):
    """Or refused, where an axis has two sizes. Blocks of one type come through as they are."""
    rng = np.random.default_rng(0)
    a, b = (rng.random(shape, np.float32) for shape in (left, right))
    try:
        wanted = a + b
    except ValueError:
        with pytest.raises(ValueError, match="incompatible dimensions"):
            semantic().add(tensor(a), tensor(b), True)
        return
    found = semantic().add(tensor(a), tensor(b), True)
    assert found.type == tl.block_type(tl.float32, list(wanted.shape))
    assert [size.value for size in found.shape] == list(wanted.shape)
    assert found.numel.value == wanted.size
    np.testing.assert_array_equal(found.handle.data, wanted)


def test_operands_of_two_types_are_converted():
    whole, real = tensor(np.arange(4, dtype=np.int32), tl.int32), tensor(np.full(4, 0.5, np.float32))
    assert semantic().add(whole, real, True).dtype == tl.float32
    halves = tensor(np.ones(4, np.float16), tl.float16)
    assert semantic().truediv(halves, halves).dtype == tl.float32, "as Triton divides short floats"
    assert semantic().add(whole, whole, True).dtype == tl.int32


@pytest.mark.parametrize("shape", [[3], [4, 6], []])
def test_a_shape_that_triton_refuses_is_refused_each_time(shape):
    for _ in range(2):
        with pytest.raises((TypeError, ValueError), match=r"power of 2|0d"):
            tl.block_type(tl.float32, shape)


def test_types_differ_by_element_and_shape():
    shapes, elements = ([4], [4, 1], [1, 4]), (tl.float32, tl.int32, tl.pointer_type(tl.float32))
    types = [tl.block_type(element, shape) for element in elements for shape in shapes]
    for i, j in product(range(len(types)), repeat=2):
        assert (types[i] == types[j]) == (i == j)
