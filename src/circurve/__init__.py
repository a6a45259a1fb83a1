"""Circurve: curvature-aware learning of probabilistic circuits.

Names are imported when the first of them is used, so that `circurve --help` does not wait for torch.
"""

from circurve import early  # noqa: F401, I001 - before all others: it handles Ctrl-C while they are imported
from typing import TYPE_CHECKING, Any

from circurve._version import __version__ as __version__
from circurve.lazy import public_name, public_names

if TYPE_CHECKING:
    from circurve import plots as plots
    from circurve.public import *  # noqa: F403


def __getattr__(name: str) -> Any:
    return public_name(__name__, name)


def __dir__() -> list[str]:
    return public_names(__name__)
