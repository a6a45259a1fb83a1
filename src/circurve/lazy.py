"""Packages whose public names are imported when they are first used."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

__all__ = ["public_name", "public_names"]


def public_name(package: str, name: str) -> Any:
    """The value of `package.name`, for the `__getattr__` of a package: one of its modules, or a name of `public`.

    The value becomes an attribute of the package, so that this is called once for each name.
    """
    if name.startswith("_") and name != "__all__":
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    if find_spec(f"{package}.{name}") is not None:
        return import_module(f"{package}.{name}")
    try:
        value = getattr(import_module(f"{package}.public"), name)
    except AttributeError:
        raise AttributeError(f"module {package!r} has no attribute {name!r}") from None
    setattr(sys.modules[package], name, value)
    return value


def public_names(package: str) -> list[str]:
    """What `dir(package)` lists."""
    return sorted({*vars(sys.modules[package]), *import_module(f"{package}.public").__all__})
