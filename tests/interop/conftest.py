"""Both kinds of PyJuice: the stand-in everywhere, the real one where it is installed."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
import standin_pyjuice

KINDS = ["stand-in", "pyjuice"]


@pytest.fixture(params=KINDS)
def juice(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module with PyJuice's constructors, which `import pyjuice` finds."""
    if request.param == "stand-in":
        module = standin_pyjuice.as_module()
        monkeypatch.setitem(sys.modules, "pyjuice", module)
        monkeypatch.setitem(sys.modules, "pyjuice.distributions", module.distributions)
        yield module
        return
    if importlib.util.find_spec("pyjuice") is None:
        pytest.skip("needs PyJuice")
    yield pytest.importorskip("pyjuice")
