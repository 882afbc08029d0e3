"""The histogram of dissimilarities and distances counts each pair once."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform

from tartan.analytics import density
from tartan.comm.loopback import run_ranks
from tartan.errors import ConfigError


def test_it_is_the_histogram_of_the_pairs() -> None:
    random = np.random.default_rng(0)
    points = random.normal(size=(40, 5))
    D, x = squareform(pdist(points)), points[:, :2]
    found = density(D, x, bins=10, dissimilarity_end=6.0, distance_end=4.0)
    expected = np.histogram2d(pdist(points), pdist(x), 10, [[0, 6], [0, 4]])[0]
    np.testing.assert_array_equal(found.counts, expected)
    assert found.n_pairs == 40 * 39 // 2
    assert found.levels().max() == 1.0
    (other,) = {tuple(f.counts.ravel()) for f in run_ranks(3, lambda ranks: density(D, x, bins=10, communicator=ranks))}
    assert other == tuple(density(D, x, bins=10).counts.ravel())


def test_pairs_of_points_without_a_place_do_not_count() -> None:
    x = np.array([[0.0], [1.0], [np.nan]])
    D = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 2.0], [2.0, 2.0, 0.0]])
    found = density(D, x, bins=4)
    assert found.counts.sum() == found.n_pairs == 1
    assert found.dissimilarity_end == pytest.approx(1.0)


@pytest.mark.parametrize(("x", "bins", "message"), [(np.zeros((2, 2)), 5, "3 points"), (np.zeros((3, 2)), 0, "bins")])
def test_bad_input_is_refused(x: np.ndarray, bins: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        density(1 - np.eye(3), x, bins=bins)
