"""Kernels compiled in another process are found in Triton's cache; where that fails, they are compiled all the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import circurve

pytest.importorskip("triton")

SCRIPT = Path(__file__).with_name("compile_kernels.py")
SOURCES = Path(circurve.__file__).parents[1]
WORKER = SOURCES / "circurve/engine/cuda/compile_worker.py"


def python(cache: Path, *arguments: str, text: str = "") -> str:
    """The output of a Python with Triton's compiler and this cache."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(cache), "PYTHONPATH": str(SOURCES)}
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


HERE, THERE = ([["input_table", hit], ["leaf_table", hit]] for hit in (False, True))
"""Both kernels, each once: compiled in this process, or found in the cache."""


def test_kernels_come_from_the_cache_of_the_other_process_or_are_compiled_here(tmp_path):
    wanted = {"process": THERE, "broken": HERE, "none": HERE, "reversed": THERE}
    found = json.loads(python(tmp_path, str(SCRIPT), str(tmp_path), *wanted, "error"))
    after_an_error = found.pop("error")["kernels"]  # the other process may have been faster
    assert [name for name, _ in after_an_error] == [name for name, _ in HERE]
    assert {way: compiled["kernels"] for way, compiled in found.items()} == wanted
    kept = [found[way]["cache"] for way in ("process", "reversed")]
    assert kept[0] == kept[1], "keys do not depend on the order of the launches"
    assert kept[0]


def test_the_process_ends_when_nobody_has_orders(tmp_path):
    assert python(tmp_path, str(WORKER), json.dumps(sys.path)) == ""
    assert not any(tmp_path.iterdir())


def test_kernels_do_not_import_torch(tmp_path):
    """In the process that compiles them, its import would take longer than all the rest."""
    files = sorted(SOURCES.glob("circurve/**/cuda/*kernels.py"))
    modules = [".".join(file.relative_to(SOURCES).with_suffix("").parts) for file in files]
    code = f"""
import importlib, sys
from pathlib import Path
sys.path.insert(0, {str(WORKER.parent)!r})
import compile_worker
compile_worker._leave_out_package_code(Path({str(SOURCES / "circurve")!r}))
for module in {modules!r}:
    importlib.import_module(module)
print(sorted(set(sys.modules) & {{"torch", "numpy", *{modules!r}}}))
"""
    assert python(tmp_path, "-c", code).strip() == str(modules)
