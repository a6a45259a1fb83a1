"""The kernels compile without a GPU, and contain exactly the inexact instructions that the emulation knows of."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ptx_kernels import HELPERS, VARIANTS, instructions

import circurve

pytest.importorskip("triton")

SCRIPT = Path(__file__).with_name("ptx_kernels.py")
PACKAGE = Path(circurve.__file__).parent


def compile_all(folder: Path) -> dict[str, list[str]]:
    """Instructions by variant, from one process that compiles them all."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": str(PACKAGE.parent)}
    command = [sys.executable, str(SCRIPT), str(folder / "instructions.json")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / "instructions.json").read_text())


def test_kernels_contain_the_listed_inexact_instructions(tmp_path):
    """One test for all: with several workers, each of them would compile everything."""
    found = {label: set(names) for label, names in compile_all(tmp_path).items()}
    listed = {variant.label: variant.instructions for variant in VARIANTS}
    assert found.keys() == listed.keys()
    changes = [
        f"{label}: new {sorted(found[label] - listed[label])}, gone {sorted(listed[label] - found[label])}"
        for label in listed
        if found[label] != listed[label]
    ]
    assert not changes, "\n".join(
        [
            "Kernels now compile to other instructions that flush, approximate, drop NaN or shorten operands. See",
            "whether tests/gpu_arithmetic.py has a rule for each and whether the kernel tolerates them; then change "
            "the",
            "list in tests/engine/ptx_kernels.py.",
            *changes,
        ]
    )


def test_every_kernel_is_listed():
    found = set()
    for file in PACKAGE.glob("**/cuda/*kernels.py"):
        for node in ast.parse(file.read_text()).body:
            jitted = isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(d) for d in node.decorator_list)
            if jitted and not node.name.startswith("_") and node.name not in HELPERS:
                found.add(f"{file.stem}.{node.name}")
    assert found == {variant.kernel for variant in VARIANTS}


def test_inexact_instructions_are_found_among_others():
    ptx = """
        sqrt.approx.ftz.f32 \t%r24, %r3;
        mul.f32 \t%r29, %r3, 0f3FB8AA3B;
        fma.rn.f32 \t%r29, %r3, %r3, %r3;
        setp.lt.f32 \t%p1, %r3, 0f00800000;
        cvt.rmi.ftz.f32.f32 \t%r162, %r3;
        max.NaN.f32 \t%r96, %r3, %r23;
        @%p1 min.f32 \t%r96, %r3, %r23;
        max.s32 \t%r96, %r3, %r23;
        div.rn.f64 \t%rd59, %rd5, %rd58;
        mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 { %r1 }, { %r2 };
        lg2.approx.f32 %f1, %f2;
    """
    wanted = {"sqrt.approx.ftz.f32", "cvt.rmi.ftz.f32.f32", "max.NaN.f32", "min.f32", "mma.tf32", "lg2.approx.f32"}
    assert set(instructions(ptx)) == wanted
