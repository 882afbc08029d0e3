"""Vectors and hierarchies of whole runs against SciPy, on difficult input."""

from __future__ import annotations

import numpy as np
import pytest
from difficult import KINDS, as_groups, distances, rows
from scipy.cluster import hierarchy
from scipy.spatial.distance import cdist, squareform

import tartan
from tartan.analytics import cluster, clusters_at, linkage, minimum_spanning_tree
from tartan.apps.vectors.app import Vectors
from tartan.apps.vectors.metrics import METRICS

pytestmark = pytest.mark.exhaustive
UNIT = {"float32": 2.0**-24, "float64": 2.0**-53}


def oracle(metric: str, items: np.ndarray) -> np.ndarray:
    if metric == "jaccard":
        return cdist(items != 0, items != 0, "jaccard")
    wide = items.astype(float)
    with np.errstate(all="ignore"):
        return cdist(wide, wide, {"manhattan": "cityblock"}.get(metric, metric))


def undefined(metric: str, items: np.ndarray) -> np.ndarray:
    """Return the rows of which the metric says nothing."""
    if metric == "cosine":
        return np.flatnonzero(~items.any(axis=1))
    if metric == "correlation":
        return np.flatnonzero(items.min(axis=1) == items.max(axis=1))
    return np.zeros(0, int)


def tolerance(metric: str, dtype: str, d: int) -> tuple[float, float]:
    """Return the relative and absolute error that the documents allow, SciPy's own added."""
    own, theirs = UNIT[dtype], (d + 8) * UNIT["float64"]
    if metric in ("cosine", "correlation"):
        return theirs, (d + 8) * own + theirs
    return max(140, 36 * (d + 4)) * own + theirs, 0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_is_that_of_cdist(metric: str, kind: str, dtype: str) -> None:
    items = rows(kind)
    bad = undefined(metric, items)
    if len(bad) == len(items):
        return
    run = tartan.allpairs(Vectors(metric=metric, dtype=dtype), items, workers=1, quiet=True)
    assert sorted(failure.i for failure in run.failures) == bad.tolist()
    good = np.setdiff1d(np.arange(len(items)), bad)
    relative, absolute = tolerance(metric, dtype, items.shape[1])
    expected = oracle(metric, items)
    np.fill_diagonal(expected, 0.0)
    places = np.ix_(good, good)
    np.testing.assert_allclose(run.matrix(diagonal=0.0)[places], expected[places], rtol=relative, atol=absolute)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["complete", "average", "weighted"])
def test_hierarchies_are_those_of_scipy_whatever_the_unit(method: str, kind: str) -> None:
    D = distances(kind)
    np.testing.assert_array_equal(linkage(D, method), hierarchy.linkage(squareform(D), method))


@pytest.mark.parametrize("kind", KINDS)
def test_single_linkage_joins_where_scipy_does(kind: str) -> None:
    D = distances(kind)
    found, expected = linkage(D, "single"), hierarchy.linkage(squareform(D), "single")
    np.testing.assert_array_equal(found[:, 2], expected[:, 2])
    np.testing.assert_array_equal(hierarchy.cophenet(found), hierarchy.cophenet(expected))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["single", "complete", "average", "weighted"])
def test_groups_at_every_height_are_those_of_scipy(method: str, kind: str) -> None:
    """Cut at heights of joins themselves: what is equal to the bound is within."""
    D = distances(kind)
    joins = hierarchy.linkage(squareform(D), method)
    for height in np.unique(joins[:, 2])[::5]:
        expected = as_groups(hierarchy.fcluster(joins, height, "distance"))
        assert as_groups(clusters_at(D, float(height), method)) == expected
        assert as_groups(cluster(D, method=method, threshold=float(height)).labels) == expected


@pytest.mark.parametrize("kind", ["plain", "tiny", "huge", "sizes", "far", "zeros"])
@pytest.mark.parametrize("method", ["single", "complete", "average", "weighted"])
def test_groups_of_a_number_are_those_of_scipy(method: str, kind: str) -> None:
    D = distances(kind)
    joins = hierarchy.linkage(squareform(D), method)
    for count in (2, 5, 20, 50):
        expected = as_groups(hierarchy.fcluster(joins, count, "maxclust"))
        if len(expected) == count:  # ties at the bound: SciPy then gives fewer
            assert as_groups(cluster(D, count, method).labels) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_spanning_trees_are_as_short_as_single_linkage_is(kind: str) -> None:
    """Its heights are the edges; SciPy's own tree takes a distance of 0 for no edge."""
    D = distances(kind)
    heights = hierarchy.linkage(squareform(D), "single")[:, 2]
    np.testing.assert_allclose(np.sort(minimum_spanning_tree(D).scores), heights, rtol=1e-6)


def test_top_pairs_are_those_that_scipy_orders_first() -> None:
    items = rows("sizes")
    for metric in METRICS:
        if metric in ("hamming", "jaccard"):  # of numbers all are 1
            continue
        run = tartan.allpairs(
            Vectors(metric=metric, dtype="float64"), items, workers=1, quiet=True, reduce={"kind": "top-k", "k": 5}
        )
        expected = oracle(metric, items)
        np.fill_diagonal(expected, np.inf)
        found = run.neighbors(5)[1]
        np.testing.assert_allclose(found, np.sort(expected, axis=1)[:, :5], rtol=1e-9, atol=1e-13)
