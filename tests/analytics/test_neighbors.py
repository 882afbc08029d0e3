"""Nearest neighbours and outliers against their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from tartan.analytics import Monitor, as_dissimilarities, neighbors, outliers
from tartan.analytics.neighbours import nearest_items
from tartan.errors import ConfigError, RunCancelledError


def whole_distances(n: int, seed: int = 0) -> np.ndarray:
    """Return distances that are whole numbers, many of them equal."""
    x = np.random.default_rng(seed).integers(0, 9, (n, 2))
    return np.abs(x[:, None] - x).sum(2).astype(float)


def defined(D: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the k nearest by sorting (distance, index) of the others."""
    n = len(D)
    indices, distances = np.full((n, k), -1), np.full((n, k), np.nan)
    for i in range(n):
        others = sorted((D[i, j], j) for j in range(n) if j != i and not np.isnan(D[i, j]))[:k]
        for place, (distance, j) in enumerate(others):
            indices[i, place], distances[i, place] = j, distance
    return indices, distances


@pytest.mark.parametrize("k", [1, 3, 29, 30, 40])
@pytest.mark.parametrize("missing", [False, True])
def test_neighbors_are_those_of_the_definition(k: int, missing: bool) -> None:
    D = whole_distances(30)
    if missing:
        holes = np.triu(np.random.default_rng(1).random((30, 30)) < 0.3, 1)
        holes[4] = holes[:, 4] = True
        D[holes | holes.T] = np.nan
        np.fill_diagonal(D, 0)
    found = neighbors(D, k, missing="nan")
    for mine, theirs in zip(found, defined(D, k)):
        np.testing.assert_array_equal(mine, theirs)


def test_blocks_of_rows_give_the_same() -> None:
    D = whole_distances(50)
    found = nearest_items(as_dissimilarities(D), 7, Monitor(), block_bytes=3 * 8 * 50)
    for mine, theirs in zip(found, neighbors(D, 7)):
        np.testing.assert_array_equal(mine, theirs)


def test_int16_and_similarities() -> None:
    D = whole_distances(40)
    stored = np.rint(D / D.max() * 32767).astype(">i2")
    np.testing.assert_array_equal(neighbors(stored, 5)[0], neighbors(D, 5)[0])
    np.testing.assert_array_equal(neighbors(20 - D, 5, distance="20-s")[0], neighbors(D, 5)[0])


def test_no_neighbours_are_refused_and_a_stop_is_heard() -> None:
    with pytest.raises(ConfigError, match="k is 0; it must be a whole number, 1 or more"):
        neighbors(whole_distances(3), 0)
    monitor = Monitor()
    monitor.cancel()
    with pytest.raises(RunCancelledError):
        neighbors(whole_distances(3), 1, monitor=monitor)


def test_one_item_has_no_neighbour() -> None:
    indices, distances = neighbors([[0.0]], 2)
    assert indices.tolist() == [[-1, -1]]
    assert np.isnan(distances).all()
    assert np.isnan(outliers([[0.0]]).scores).all()


def test_outliers_are_far_from_the_others() -> None:
    rng = np.random.default_rng(2)
    x = np.vstack([rng.normal(size=(60, 3)), rng.normal(size=(2, 3)) * 0.1 + 40, [[0, 0, 15.0]]])
    D = np.sqrt(((x[:, None] - x) ** 2).sum(2))
    found = outliers(D, k=5, threshold=12)
    assert set(found.indices.tolist()) == {60, 61, 62}
    assert found.indices[-1] == 62
    nearest = np.sort(D, axis=1)[:, 1:6].mean(axis=1)
    np.testing.assert_allclose(found.scores, nearest, rtol=1e-12)
    apart = nearest - np.median(nearest)
    np.testing.assert_allclose(found.z, apart / (1.482602218505602 * np.median(np.abs(apart))), rtol=1e-12)
    assert outliers(D, k=5, threshold=1e6).indices.size == 0


def test_outliers_where_most_distances_are_equal() -> None:
    D = np.ones((20, 20)) - np.eye(20)
    assert not outliers(D, k=3).z.any()
    D[7] = D[:, 7] = 9.0
    D[7, 7] = 0
    assert outliers(D, k=3).indices.tolist() == [7]


def test_items_without_pairs_have_no_score() -> None:
    D = whole_distances(12)
    D[3] = D[:, 3] = np.nan
    D[3, 3] = 0
    found = outliers(D, k=2, missing="nan")
    assert np.isnan(found.scores[3])
    assert np.isnan(found.z[3])
    assert 3 not in found.indices
    assert np.isfinite(np.delete(found.z, 3)).all()
