"""All arrays of a safetensors file at once are those that the library reads one by one."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from circurve import FileFormatError
from circurve.host_memory import without_collector
from circurve.tensor_files import read_arrays

ARRAYS = {
    "odd": np.array([True, False, True]),
    "half": np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3),
    "full": np.linspace(0, 1, 4).reshape(4, 1),
    "whole": np.arange(5),
    "none": np.zeros((2, 0), np.float32),
}
ANY = ("F32", "F64", "BOOL", "I64")


def test_arrays_are_those_of_the_library(tmp_path):
    save_file(ARRAYS, tmp_path / "x")
    found, expected = read_arrays(tmp_path / "x", dict.fromkeys(ARRAYS, ANY), False), load_file(tmp_path / "x")
    for name, array in found.items():
        assert array.dtype == expected[name].dtype
        assert array.flags.writeable
        np.testing.assert_array_equal(array, expected[name])


def test_another_dtype_and_a_header_that_does_not_fit_are_refused(tmp_path):
    save_file(ARRAYS, tmp_path / "x")
    with pytest.raises(FileFormatError, match="the tensor 'full' has dtype F64, expected F32"):
        read_arrays(tmp_path / "x", {**dict.fromkeys(ARRAYS, ANY), "full": ("F32",)}, False)
    with pytest.raises(FileFormatError, match="the tensor 'more' is missing"):
        read_arrays(tmp_path / "x", dict.fromkeys([*ARRAYS, "more"], ANY), False)
    with pytest.raises(FileFormatError, match="the tensor 'full' belongs to no node"):
        read_arrays(tmp_path / "x", dict.fromkeys(["odd", "half", "whole"], ANY), False)
    content = (tmp_path / "x").read_bytes()
    (tmp_path / "cut").write_bytes(content[:-8])
    with pytest.raises(FileFormatError, match="the header does not fit the file"):
        read_arrays(tmp_path / "cut", dict.fromkeys(ARRAYS, ANY), False)


def test_the_collector_is_on_again_afterwards():
    states = []
    with pytest.raises(ZeroDivisionError), without_collector():
        states.append(gc.isenabled() or 1 / 0)
    assert not states
    assert gc.isenabled()
