"""Public names are imported when they are used, and mean the same however modules were imported before."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

import pytest

import circurve as cc

PACKAGES = ("circurve", "circurve.learning")


@pytest.mark.parametrize("name", PACKAGES)
def test_every_public_name_is_that_of_the_module_public(name):
    package, public = import_module(name), import_module(f"{name}.public")
    assert package.__all__ == public.__all__
    assert {entry: getattr(package, entry) for entry in public.__all__ if entry != "report"} == {
        entry: getattr(public, entry) for entry in public.__all__ if entry != "report"
    }
    assert set(public.__all__) <= set(dir(package))


@pytest.mark.parametrize("name", PACKAGES)
def test_a_module_does_not_hide_a_function_of_its_name(name):
    """Importing `package.name` makes the module an attribute of the package."""
    package = import_module(name)
    for module in {found.name for found in iter_modules(package.__path__)} & set(package.__all__):
        assert isinstance(getattr(package, module), ModuleType)
    assert callable(cc.curvature)
    assert callable(cc.report)


def test_a_wrong_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'circurve' has no attribute 'fits'"):
        cc.fits  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'fits' from 'circurve'"):
        from circurve import fits  # noqa: F401


def test_the_import_alone_does_not_import_torch():
    code = "import sys, circurve; before = 'torch' in sys.modules; circurve.fit; print(before, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "False True\n"


def test_a_star_imports_all_public_names():
    names: dict[str, object] = {}
    exec("from circurve import *", names)
    assert set(cc.__all__) <= set(names)
