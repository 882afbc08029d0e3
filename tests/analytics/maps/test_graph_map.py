"""Maps of kept pairs."""

from __future__ import annotations

import numpy as np
import pytest

from tartan.analytics import DAMDS
from tartan.analytics.maps.embed import LANDMARKS, graph_map
from tartan.analytics.matrix.kept import KeptPairs
from tartan.analytics.monitor import Monitor


def ring(n: int, parts: int = 1, n_alone: int = 0) -> KeptPairs:
    """Rings of n items each, an edge of length 1 from each item to the next, and items without a pair."""
    at = np.arange(n * parts)
    following = at + 1
    following[n - 1 :: n] -= n
    i, j = np.minimum(at, following), np.maximum(at, following)
    total = n * parts + n_alone
    names = tuple(map(str, range(total)))
    ones = np.ones(len(i))
    return KeptPairs(total, i, j, ones, ones, names, "ring", np.empty(0, np.int64))


def smacof(D):
    return DAMDS(2, annealing=False, init="classical", random_state=0).fit(D)


@pytest.mark.parametrize("n", [4, 40])
def test_a_ring_becomes_a_ring(n: int) -> None:
    points, stress, numbers = graph_map(ring(n), smacof, 2, Monitor(0))
    radii = np.linalg.norm(points - points.mean(0), axis=1)
    assert radii.min() > 0.9 * radii.max()
    assert numbers["n_parts"] == 1
    assert numbers["n_landmarks"] == n
    assert np.isfinite(stress).all()


@pytest.mark.slow
def test_more_items_than_landmarks_find_their_places() -> None:
    points, _, numbers = graph_map(ring(LANDMARKS + 300), smacof, 2, Monitor(0))
    radii = np.linalg.norm(points - points.mean(0), axis=1)
    assert numbers["n_landmarks"] == LANDMARKS
    assert radii.min() > 0.85 * radii.max()  # landmarks lie denser here and there
    steps = np.linalg.norm(np.diff(points, axis=0), axis=1)
    assert steps.max() < 4 * np.median(steps)


def test_parts_stand_side_by_side_and_single_items_have_no_place() -> None:
    points, stress, numbers = graph_map(ring(12, parts=3, n_alone=2), smacof, 2, Monitor(0))
    assert np.isnan(points[36:]).all()
    assert np.isnan(stress[36:]).all()
    assert numbers["n_parts"] == 3
    boxes = [(points[at : at + 12].min(0), points[at : at + 12].max(0)) for at in (0, 12, 24)]
    for a, (low, high) in enumerate(boxes):
        for other_low, other_high in boxes[a + 1 :]:
            assert ((high < other_low) | (other_high < low)).any()


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_pairs_of_copies_have_places(dimension: int) -> None:
    zeros = np.zeros(2)
    pairs = KeptPairs(4, np.array([0, 2]), np.array([1, 3]), zeros, zeros, tuple("abcd"), "d", np.empty(0, np.int64))
    points, _, _ = graph_map(pairs, smacof, dimension, Monitor(0))
    assert points.shape == (4, dimension)
    assert np.isfinite(points).all()


def test_the_two_of_a_pair_are_nearer_to_each_other_than_to_the_next_pair() -> None:
    i, ones = np.arange(0, 8, 2), np.ones(4)
    pairs = KeptPairs(8, i, i + 1, ones, ones, tuple("abcdefgh"), "d", np.empty(0, np.int64))
    points, _, _ = graph_map(pairs, smacof, 2, Monitor(0))
    apart = np.linalg.norm(points[:, None] - points, axis=2)
    np.fill_diagonal(apart, np.inf)
    assert apart.argmin(axis=1).tolist() == [1, 0, 3, 2, 5, 4, 7, 6]
    assert np.partition(apart, 1, axis=1)[:, 1].min() > 1.2 * apart[0, 1]
