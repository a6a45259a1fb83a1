"""Triton's interpreter with less work per call.

The interpreter replaces the functions of `triton.language` by ones that compute in numpy. It does so at each launch
and at each call of one jitted function by another, and looks through every name of the language each time: most of the
time of a small kernel. `language_replaced` does it once for the whole process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

__all__ = ["language_replaced"]


@contextmanager
def language_replaced() -> Iterator[None]:
    """Replace the functions of the language; launches and calls inside find them replaced and change nothing."""
    import triton.language as tl
    from triton.runtime import interpreter

    kernels_see = SimpleNamespace(__globals__={"tl": tl, "core": tl.core})  # core is what tl's own library calls
    replaced = interpreter._patch_lang(kernels_see)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_patch_lang", lambda _: interpreter._LangPatchScope())
        yield
    replaced.restore()
