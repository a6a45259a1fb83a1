"""Keys of kernels in Triton's cache that do not depend on what a process did before. No torch here."""

from __future__ import annotations

import sys
from typing import Any

from triton.runtime import JITFunction

__all__ = ["fix_keys"]


def fix_keys(module: Any) -> None:
    """Make Triton hash the functions of a module in the order of their definition, those that they call first.

    The hash of a function includes the constants of the functions that it calls, but only if those have been hashed
    before. Without an order, processes that launch kernels in different orders compile the same ones again.
    """
    for function in list(vars(module).values()):
        if isinstance(function, JITFunction) and not function.module.startswith("triton."):
            home = sys.modules[function.module]
            if home is not module:
                fix_keys(home)
            function.cache_key  # noqa: B018 - a property that is computed once
