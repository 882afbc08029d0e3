"""Distances, neighbours, groups and maps against scikit-learn, on difficult input."""

from __future__ import annotations

import numpy as np
import pytest
from difficult import KINDS, as_groups, distances, rows
from scipy.spatial.distance import pdist, squareform

import tartan
from tartan.analytics import clusters_at, embed, neighbors, outliers
from tartan.apps.vectors.app import Vectors
from tartan.apps.vectors.metrics import METRICS

pytestmark = [pytest.mark.exhaustive, pytest.mark.filterwarnings("ignore:::sklearn")]
sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not installed")


@pytest.mark.parametrize("kind", ["plain", "ties", "duplicates", "huge", "zeros", "constants", "far"])
@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_is_that_of_pairwise_distances(metric: str, kind: str) -> None:
    """Compare in float64, with room for its squares of sums, which lose what is far from the origin.

    It takes rows shorter than 2e-15 for zeros when it makes units of them: these are compared with SciPy alone.
    """
    from sklearn.metrics import pairwise_distances

    items = rows(kind)
    items = items != 0 if metric == "jaccard" else items
    expected = pairwise_distances(items, metric=metric)
    run = tartan.allpairs(Vectors(metric=metric, dtype="float64"), items, workers=1, quiet=True)
    good = np.setdiff1d(np.arange(len(items)), [failure.i for failure in run.failures])
    unit = 1.0 if metric in ("cosine", "correlation", "hamming", "jaccard") else float(np.abs(items).max())
    unit = unit**2 if metric == "sqeuclidean" else unit
    room = 1e-7 if metric == "euclidean" else 1e-13
    places = np.ix_(good, good)
    np.testing.assert_allclose(
        run.matrix(diagonal=0.0)[places], expected[places], rtol=1e-10, atol=room * unit * items.shape[1]
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kept", [False, True])
def test_neighbours_are_those_of_brute_force(kind: str, kept: bool) -> None:
    """Compare distances at each place; which of several that are equally near is named is up to each program."""
    from sklearn.neighbors import NearestNeighbors

    D = distances(kind)
    expected, _ = NearestNeighbors(n_neighbors=7, metric="precomputed").fit(D).kneighbors()
    if kept:
        items = rows(kind, d=5).astype(float)
        app = Vectors(metric="euclidean", dtype="float64")
        run = tartan.allpairs(app, items, workers=1, quiet=True, reduce={"kind": "top-k", "k": 7})
        indices, found = run.neighbors(7)
    else:
        indices, found = neighbors(D, 7)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-14 * D.max())
    np.testing.assert_allclose(np.take_along_axis(D, indices, axis=1), expected, rtol=1e-9, atol=1e-14 * D.max())
    assert (indices != np.arange(len(D))[:, None]).all()
    assert all(len(set(row)) == 7 for row in indices.tolist())


@pytest.mark.parametrize("kind", KINDS)
def test_outliers_are_scored_by_the_neighbours_of_scikit_learn(kind: str) -> None:
    from sklearn.neighbors import NearestNeighbors

    D = distances(kind)
    expected, _ = NearestNeighbors(n_neighbors=5, metric="precomputed").fit(D).kneighbors()
    np.testing.assert_allclose(outliers(D, k=5).scores, expected.mean(axis=1), rtol=1e-9, atol=1e-14 * D.max())


@pytest.mark.parametrize("kind", KINDS)
def test_groups_at_a_bound_are_those_of_dbscan_of_one(kind: str) -> None:
    """Take bounds that are distances of the matrix: what is equal to them is within."""
    from sklearn.cluster import DBSCAN

    D = distances(kind)
    for bound in np.quantile(D[D > 0], [0.0, 0.02, 0.1], method="nearest"):
        expected = DBSCAN(eps=bound, min_samples=1, metric="precomputed").fit(D).labels_
        assert as_groups(clusters_at(D, float(bound))) == as_groups(expected)


def squared_errors(points: np.ndarray, scaled: np.ndarray) -> float:
    return float(np.square(squareform(pdist(points)) - scaled).sum())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["damds", "smacof"])
def test_maps_are_no_worse_than_those_of_smacof(method: str, kind: str, seed: int) -> None:
    """Compare one map with the median of eight starts of scikit-learn, by a stress that is measured here for both.

    Annealing counts pairs at 0 as the smallest other one unless it is told to keep them, as scikit-learn does. Errors
    of three hundredths of the distances count for nothing: where a few rows are a million times larger, all have less.
    """
    from sklearn.manifold import smacof

    D = distances(kind, 40, seed)
    scaled = D / D.max()
    theirs = [
        squared_errors(smacof(scaled, n_components=2, n_init=1, random_state=start, normalized_stress=False)[0], scaled)
        for start in range(8)
    ]
    found = squared_errors(embed(D, method, 2, random_state=0, zeros="keep").points / D.max(), scaled)
    assert found <= np.median(theirs) * 1.001 + 1e-3 * np.square(scaled).sum()
