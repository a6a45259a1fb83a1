"""Points in the plane, drawn by seed: the two-dimensional set of the paper, two moons, spirals, pinwheels.

The same seed gives the same points with every version of numpy: they come from the raw stream of PCG64.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from circurve.data.dataset import Dataset, check_seed
from circurve.errors import OptionError
from circurve.inputs.common import check_whole

__all__ = ["SIZES", "noisy_triangle", "pinwheel", "ring", "spiral", "synthetic_dataset", "triangle", "two_moons"]

Points = NDArray[np.float64]
"""(N, 2)."""


def triangle(rows: int = 50, seed: int = 0, noise: float = 0.25, radius: float = 1.0) -> Points:
    """Three round Gaussians of standard deviation `noise` at the corners of an equilateral triangle.

    The corners are at distance `radius` from the origin.
    """
    draw = _Draws(rows, seed, noise)
    corner = np.floor(3 * draw.uniform())
    return radius * _circle(math.pi * (0.5 + corner * 2 / 3)) + draw.blur()


def ring(rows: int = 8, seed: int = 0, noise: float = 0.12, radius: float = 2.3) -> Points:
    """Points all around a ring whose distance from the origin scatters by `noise`."""
    draw = _Draws(rows, seed, noise)
    distance = radius + noise * draw.normal()
    return distance[:, None] * _circle(2 * math.pi * draw.uniform())


def two_moons(rows: int = 1000, seed: int = 0, noise: float = 0.1) -> Points:
    """Two half circles, each with an end inside the other."""
    draw = _Draws(rows, seed, noise)
    lower = draw.uniform() < 0.5
    arc = _circle(math.pi * draw.uniform())
    return np.where(lower[:, None], np.array([1.0, 0.5]) - arc, arc) + draw.blur()


def spiral(rows: int = 1000, seed: int = 0, noise: float = 0.05, arms: int = 2, turns: float = 1.5) -> Points:
    """Arms that wind outwards `turns` times around the origin, evenly dense, to a distance of 2."""
    check_whole("arms", arms, least=1)
    draw = _Draws(rows, seed, noise)
    along = np.sqrt(draw.uniform())
    arm = np.floor(arms * draw.uniform()) / arms
    return 2 * along[:, None] * _circle(2 * math.pi * (turns * along + arm)) + draw.blur()


def pinwheel(rows: int = 1000, seed: int = 0, noise: float = 0.1, arms: int = 5, twist: float = 0.8) -> Points:
    """Long narrow clouds that point outwards and bend by `twist` radians for each unit of distance.

    `noise` is half the width of an arm.
    """
    check_whole("arms", arms, least=1)
    draw = _Draws(rows, seed, noise)
    arm = np.floor(arms * draw.uniform()) * 2 * math.pi / arms
    across = noise * draw.normal()
    outwards = 1.5 + 0.4 * draw.normal()
    angle = arm + twist * np.hypot(outwards, across)
    return outwards[:, None] * _circle(angle) + across[:, None] * _circle(angle + math.pi / 2)


def noisy_triangle(seed: int = 0) -> Dataset:
    """The set of the paper: 50 points of `triangle` and 8 of `ring` for training, 800 of `triangle` for the test.

    There are no validation rows. The paper does not print the size of its triangle; here its corners are at distance 1.
    """
    check_seed(seed)
    train = np.concatenate([triangle(50, 3 * seed), ring(8, 3 * seed + 1)])
    return Dataset("triangle", train, test=triangle(800, 3 * seed + 2), columns=("x", "y"))


SHAPES: dict[str, Callable[[int, int], Points]] = {"moons": two_moons, "spiral": spiral, "pinwheel": pinwheel}
ROWS = (2000, 500, 2000)
SIZES: dict[str, tuple[int, tuple[int, int | None, int]]] = {
    "triangle": (2, (58, None, 800)),
    **dict.fromkeys(SHAPES, (2, ROWS)),
}
"""The sets that have a name: variables, and rows for training, validation and test."""


def synthetic_dataset(name: str, seed: int = 0) -> Dataset:
    """`triangle` (see `noisy_triangle`), or 2000, 500 and 2000 points of `moons`, `spiral` or `pinwheel`."""
    if name == "triangle":
        return noisy_triangle(seed)
    if name not in SHAPES:
        raise OptionError(f"name must be one of {', '.join(SIZES)}, not {name!r}")
    check_seed(seed)
    train, valid, test = (SHAPES[name](rows, 3 * seed + part) for part, rows in enumerate(ROWS))
    return Dataset(name, train, valid, test, columns=("x", "y"))


def _circle(angle: Points) -> Points:  # (N,) -> (N, 2)
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1)


class _Draws:
    """Random numbers for `rows` points."""

    def __init__(self, rows: int, seed: int, noise: float) -> None:
        self.rows = check_whole("rows", rows, least=1)
        check_seed(seed)
        if isinstance(noise, bool) or not isinstance(noise, int | float) or not 0 <= noise < math.inf:
            raise OptionError(f"noise must be a finite number >= 0, not {noise!r}")
        self.noise = noise
        self.source = np.random.PCG64(int(seed))

    def uniform(self) -> Points:  # (N,)
        """From 0 to below 1, in steps of 2^-53."""
        raw = self.source.random_raw(self.rows) >> np.uint64(11)
        return raw.astype(np.float64) * 2.0**-53

    def normal(self) -> Points:  # (N,)
        """Standard normal, by the method of Box and Muller."""
        distance: Points = np.sqrt(-2 * np.log1p(-self.uniform()))
        return distance * np.cos(2 * math.pi * self.uniform())

    def blur(self) -> Points:  # (N, 2)
        """Round Gaussian noise."""
        return self.noise * np.stack([self.normal(), self.normal()], axis=-1)
