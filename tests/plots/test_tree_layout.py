from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circurve.plots.tree_layout import neighbour_distance, radial_positions, spread_positions


def random_parents(seed: int, nodes: int) -> list[int]:
    rng = np.random.default_rng(seed)
    return [-1, *(int(rng.integers(max(0, i - 8), i)) for i in range(1, nodes))]


TREES = st.builds(random_parents, st.integers(0, 1000), st.integers(1, 24))


def crosses(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> bool:
    """Whether the inner parts of ab and cd meet."""

    def side(p: np.ndarray, q: np.ndarray, r: np.ndarray) -> float:
        return float((q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0]))

    eps = 1e-9
    return side(a, b, c) * side(a, b, d) < -eps and side(c, d, a) * side(c, d, b) < -eps


@given(TREES)
def test_rings_show_the_depth(parents: list[int]) -> None:
    place = radial_positions(parents)
    depth = [0] * len(parents)
    for node in range(1, len(parents)):
        depth[node] = depth[parents[node]] + 1
    np.testing.assert_allclose(np.linalg.norm(place, axis=1), np.array(depth) / max(*depth, 1), atol=1e-12)


@pytest.mark.parametrize("parents", [[-1, 0, 0, 1, 1, 2, 2], [-1, 0, 1, 1, 1, 0, 5, 5], [-1, 0, 0, 0, 0, 0]])
def test_edges_of_the_rings_do_not_cross(parents: list[int]) -> None:
    place = radial_positions(parents)
    edges = [(parents[node], node) for node in range(1, len(parents))]
    for (a, b), (c, d) in combinations(edges, 2):
        if len({a, b, c, d}) == 4:
            assert not crosses(place[a], place[b], place[c], place[d])


@settings(max_examples=20, deadline=None)
@given(TREES)
def test_spread_nodes_fill_the_square_and_keep_apart(parents: list[int]) -> None:
    place = spread_positions(parents)
    assert place.shape == (len(parents), 2)
    assert np.abs(place).max() <= 1 + 1e-12
    if len(parents) > 2:
        np.testing.assert_allclose(np.ptp(place, axis=0).max(), 2)
        assert neighbour_distance(place) > 0.3 * np.sqrt(np.pi / len(parents))


def test_same_tree_same_place() -> None:
    parents = random_parents(3, 60)
    np.testing.assert_array_equal(spread_positions(parents), spread_positions(parents))


def test_spreading_gives_a_large_tree_much_more_room_than_rings() -> None:
    parents = random_parents(0, 400)
    assert neighbour_distance(spread_positions(parents)) > 3 * neighbour_distance(radial_positions(parents))


def test_a_long_chain_is_no_problem() -> None:
    place = radial_positions(np.arange(-1, 5000))
    assert np.isfinite(place).all()
    assert np.linalg.norm(place[-1]) == pytest.approx(1)


def test_single_node_stands_in_the_middle() -> None:
    np.testing.assert_allclose(spread_positions([-1]), [[0, 0]], atol=1e-12)
    assert neighbour_distance(np.zeros((1, 2))) == 1
