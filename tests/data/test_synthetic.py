"""Points in the plane lie where they should, by seed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from circurve.data import load_dataset
from circurve.data.synthetic import noisy_triangle, pinwheel, ring, spiral, synthetic_dataset, triangle, two_moons
from circurve.errors import OptionError

Draw = Callable[..., NDArray[np.float64]]
ALL: list[Draw] = [triangle, ring, two_moons, spiral, pinwheel]

each = pytest.mark.parametrize("draw", ALL, ids=lambda draw: draw.__name__)


def distance(points: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.hypot(points[:, 0], points[:, 1])


@each
def test_size_and_seed_decide(draw: Draw) -> None:
    points = draw(200, seed=4)
    assert points.shape == (200, 2)
    assert points.dtype == np.float64
    assert np.isfinite(points).all()
    np.testing.assert_array_equal(points, draw(200, seed=4))
    assert not np.array_equal(points, draw(200, seed=5))
    assert len(np.unique(points, axis=0)) == 200


@each
def test_wrong_arguments_are_refused(draw: Draw) -> None:
    with pytest.raises(OptionError, match="rows must be a whole number from 1 to "):
        draw(0)
    with pytest.raises(OptionError, match="seed must be a whole number >= 0, not -1"):
        draw(5, seed=-1)
    for noise in (-0.1, float("nan"), float("inf"), "much"):
        with pytest.raises(OptionError, match="noise must be a finite number >= 0, not "):
            draw(5, noise=noise)


@pytest.mark.parametrize("draw", [spiral, pinwheel], ids=lambda draw: draw.__name__)
def test_there_is_at_least_one_arm(draw: Draw) -> None:
    with pytest.raises(OptionError, match="arms must be a whole number from 1 to "):
        draw(5, arms=0)


def test_the_triangle_is_three_gaussians_at_equal_distances() -> None:
    corners = triangle(300, noise=0)
    unique = np.unique(corners.round(12), axis=0)
    assert len(unique) == 3
    sides = [np.linalg.norm(unique[i] - unique[j]) for i, j in ((0, 1), (0, 2), (1, 2))]
    np.testing.assert_allclose(sides, np.sqrt(3))
    blur = triangle(20_000, seed=1) - triangle(20_000, seed=1, noise=0)
    np.testing.assert_allclose(blur.std(axis=0), 0.25, rtol=0.03)
    np.testing.assert_allclose(blur.mean(axis=0), 0, atol=0.01)
    assert abs(np.corrcoef(blur.T)[0, 1]) < 0.03
    assert abs((np.abs(blur[:, 0]) < 0.25).mean() - 0.6827) < 0.02  # normal, not merely of that spread


def test_the_ring_scatters_around_its_radius() -> None:
    points = ring(20_000)
    assert abs(distance(points).mean() - 2.3) < 0.01
    assert abs(distance(points).std() - 0.12) < 0.005
    np.testing.assert_allclose(points.mean(axis=0), 0, atol=0.06)


def test_the_moons_are_two_half_circles() -> None:
    points = two_moons(400, noise=0)
    upper = np.isclose(distance(points), 1) & (points[:, 1] >= 0)
    lower = np.isclose(distance(points - [1, 0.5]), 1) & (points[:, 1] <= 0.5)
    assert (upper | lower).all()
    assert 150 < upper.sum() < 250


def test_the_spiral_winds_outwards_on_its_arms() -> None:
    points = spiral(500, noise=0, arms=3, turns=2)
    along = distance(points) / 2
    assert (along <= 1).all()
    angle = np.arctan2(points[:, 1], points[:, 0]) / (2 * np.pi)
    arm = 3 * ((angle - 2 * along) % 1)
    np.testing.assert_allclose(np.minimum(arm % 1, 1 - arm % 1), 0, atol=1e-9)
    assert set(np.round(arm).astype(int) % 3) == {0, 1, 2}


def test_the_pinwheel_has_arms_that_bend() -> None:
    points = pinwheel(500, noise=0, arms=4, twist=0)
    angle = np.arctan2(points[:, 1], points[:, 0]) / (2 * np.pi) * 4
    np.testing.assert_allclose(angle, np.round(angle), atol=1e-9)
    bent = pinwheel(500, noise=0, arms=4)
    np.testing.assert_allclose(distance(bent), distance(points))
    turned = np.angle((bent @ [1, 1j]) / (points @ [1, 1j]))
    np.testing.assert_allclose(turned, np.angle(np.exp(0.8j * distance(points))), atol=1e-9)


def test_the_set_of_the_paper() -> None:
    data = load_dataset("triangle")
    assert data.valid is None
    assert data.test is not None
    assert (data.train.shape, data.test.shape) == ((58, 2), (800, 2))
    outside = distance(data.train) > 1.9
    assert outside[-8:].all()
    assert outside[:50].sum() <= 1
    assert (distance(data.test) > 2.1).sum() == 0
    assert not np.array_equal(noisy_triangle(1).train, data.train)
    np.testing.assert_array_equal(noisy_triangle(0).train, data.train)


@pytest.mark.parametrize("name", ["moons", "spiral", "pinwheel"])
def test_named_sets_have_parts_of_their_own(name: str) -> None:
    data = load_dataset(name)
    assert data.valid is not None
    assert data.test is not None
    assert data.columns == ("x", "y")
    together = np.concatenate([data.train, data.valid, data.test])
    assert len(np.unique(together, axis=0)) == len(together)
    np.testing.assert_array_equal(load_dataset(name).train, data.train)
    other = synthetic_dataset(name, seed=1)
    assert len(np.unique(np.concatenate([together, other.train]), axis=0)) == len(together) + len(other.train)


def test_other_names_and_seeds_are_refused() -> None:
    with pytest.raises(OptionError, match="name must be one of triangle, moons, spiral, pinwheel, not 'circle'"):
        synthetic_dataset("circle")
    for name in ("triangle", "moons"):
        with pytest.raises(OptionError, match="seed must be a whole number >= 0, not -1"):
            synthetic_dataset(name, seed=-1)
