"""Learning: EM over fleets of runs, plain or regularised by curvature.

Names are imported when the first of them is used, so that the records of options, which the command line shows in its
help, do not wait for torch.
"""

from typing import TYPE_CHECKING, Any

from circurve.lazy import public_name, public_names

if TYPE_CHECKING:
    from circurve.learning.public import *  # noqa: F403


def __getattr__(name: str) -> Any:
    return public_name(__name__, name)


def __dir__() -> list[str]:
    return public_names(__name__)
