"""Hierarchies against SciPy's, clusters at a threshold against connected components."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster import hierarchy
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from scipy.spatial.distance import pdist, squareform

import tartan.analytics as analytics
from tartan import _native
from tartan.analytics import Monitor, clusters_at, linkage, linkage_tree, upgma
from tartan.errors import ConfigError, RunCancelledError


def distances(n: int = 60, seed: int = 0) -> np.ndarray:
    return squareform(pdist(np.random.default_rng(seed).normal(size=(n, 3))))


@pytest.mark.parametrize("method", ["single", "complete", "average", "weighted", "ward"])
def test_hierarchies_are_those_of_scipy(method: str) -> None:
    D = distances()
    np.testing.assert_array_equal(linkage(D, method), hierarchy.linkage(squareform(D), method))


@st.composite
def tied_pairs(draw: st.DrawFn) -> np.ndarray:
    """Draw the pairs of 2 to 40 items: many ties, whole numbers or tenths, the means of which are rounded."""
    n = draw(st.integers(2, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    unit = draw(st.sampled_from([1.0, 0.1, 1 / 3]))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    return (rng.integers(0, draw(st.integers(1, 12)), n * (n - 1) // 2, endpoint=True) * unit).astype(dtype)


@pytest.mark.slow
@given(tied_pairs(), st.sampled_from(["complete", "average", "weighted", "ward"]))
def test_ties_are_broken_as_scipy_breaks_them(pairs: np.ndarray, method: str) -> None:
    np.testing.assert_array_equal(linkage(pairs, method), hierarchy.linkage(pairs.astype(float), method))


@pytest.mark.slow
@given(tied_pairs())
def test_single_linkage_joins_at_the_distances_of_scipy(pairs: np.ndarray) -> None:
    found, expected = linkage(pairs, "single"), hierarchy.linkage(pairs.astype(float), "single")
    np.testing.assert_array_equal(found[:, 2], expected[:, 2])
    np.testing.assert_array_equal(hierarchy.cophenet(found), hierarchy.cophenet(expected))
    assert found[-1, 3] == len(found) + 1


def test_means_beyond_float64_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"exceed the largest float64; divide all by 1e\+308"):
        linkage(np.full(6, 1e308))
    assert linkage(np.full(6, 1e308), "complete")[-1].tolist() == [3, 5, 1e308, 4]


@pytest.mark.parametrize(
    ("i", "j", "problem"),
    [([0, 1], [1, 0], "close a circle"), ([0, 0], [1, 3], "two of the 3 items"), ([0], [1], "one edge less")],
)
def test_edges_that_are_no_tree_have_no_dendrogram(i: list[int], j: list[int], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        _native.dendrogram(3, np.array(i), np.array(j), np.zeros(len(i)))


def test_the_kernel_refuses_what_it_cannot_join() -> None:
    with pytest.raises(ValueError, match=r"rows have shape \(2, 3\); they must be square"):
        _native.link_rows(np.zeros((2, 3)), "average")
    with pytest.raises(ValueError, match='"nearest" is unknown'):
        _native.link_rows(np.zeros((3, 3)), "nearest")
    with pytest.raises(TypeError, match="int16, float32 or float64"):
        _native.link_rows(np.zeros((3, 3), np.int64), "average")
    with pytest.raises(ValueError, match="differ"):  # 0 -> 1 -> 2 -> 0 would go on for ever
        _native.link_rows(np.array([[0.0, 1, 3], [3, 0, 1], [1, 3, 0]]), "average")
    with pytest.raises(OSError, match="Bad file descriptor"):
        _native.link_rows((12345, 0, 3, "float32"), "average")
    with pytest.raises(ValueError, match='type "int8" is unknown'):
        _native.link_rows((0, 0, 3, "int8"), "average")


@pytest.mark.parametrize("form", ["float64", "float32", "int16", "condensed"])
def test_a_spanning_tree_has_the_least_length(form: str) -> None:
    D = distances(80) / 10
    given = {
        "float64": D,
        "float32": D.astype(np.float32),
        "int16": np.rint(D * 32767).astype(">i2"),
        "condensed": squareform(D),
    }
    tree = analytics.minimum_spanning_tree(given[form])
    expected = minimum_spanning_tree(D)
    assert tree.n_parts == 1
    assert tree.scores.sum() == pytest.approx(expected.sum(), rel=1e-3)
    edges = {tuple(sorted(edge)) for edge in zip(*expected.nonzero())}
    assert set(zip(tree.i.tolist(), tree.j.tolist())) == edges
    assert np.all(np.diff(tree.scores) >= 0)


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.8, 1.2, 100.0])
def test_clusters_at_a_threshold_are_connected_components(threshold: float) -> None:
    D = distances(100)
    D[5, 6] = D[6, 5] = 0.0
    labels = clusters_at(D, threshold)
    n_parts, expected = connected_components((threshold >= D) * 1)
    assert labels.max() + 1 == n_parts
    assert len(set(zip(labels.tolist(), expected.tolist()))) == n_parts
    assert labels[np.sort(np.unique(labels, return_index=True)[1])].tolist() == list(range(n_parts))


@pytest.mark.parametrize("method", ["complete", "average"])
def test_clusters_of_other_hierarchies(method: str) -> None:
    D = distances()
    labels = clusters_at(D, 1.5, method)
    expected = hierarchy.fcluster(hierarchy.linkage(squareform(D), method), 1.5, "distance")
    assert len(set(zip(labels.tolist(), expected.tolist()))) == labels.max() + 1 == expected.max()
    assert labels[0] == 0


def test_missing_pairs_join_nothing() -> None:
    D = distances(12)
    group = np.arange(12) % 3
    D[group[:, None] != group] = np.nan
    np.testing.assert_array_equal(clusters_at(D, 100.0, missing="nan"), group)
    assert analytics.minimum_spanning_tree(D, missing="nan").n_parts == 3
    with pytest.raises(ConfigError, match="into 3 groups"):
        linkage(D, "single", missing="nan")
    with pytest.raises(ConfigError, match="48 pairs are missing, and average linkage needs all of them"):
        linkage(D, missing="nan")


def test_one_and_two_items() -> None:
    assert linkage([[0.0]]).shape == (0, 4)
    assert linkage([3.0], "single").tolist() == [[0, 1, 3, 2]]
    for method in ("single", "complete"):
        assert clusters_at([[0.0]], 1, method).tolist() == [0]
        assert clusters_at([3.0], 2.9, method).tolist() == [0, 1]
        assert clusters_at([3.0], 3.0, method).tolist() == [0, 0]


def test_wrong_use() -> None:
    with pytest.raises(ConfigError, match="method: 'median' is unknown; choose from single"):
        linkage(distances(), "median")
    for threshold in (-1.0, float("nan")):
        with pytest.raises(ConfigError, match="threshold is"):
            clusters_at(distances(), threshold)
    with pytest.raises(ConfigError, match="2 names for 3 items"):
        linkage_tree(linkage([1.0, 2.0, 3.0]), ["a", "b"])


def test_a_spanning_tree_can_be_cancelled() -> None:
    monitor = Monitor()
    D = analytics.as_dissimilarities(distances(300))
    D.check()
    monitor.cancel()
    with pytest.raises(RunCancelledError):
        clusters_at(D, 1.0, monitor=monitor)


def test_the_tree_of_a_hierarchy_is_upgma() -> None:
    D = distances(20)
    tree = linkage_tree(linkage(D, "average"))
    assert tree.newick() == upgma(D).newick()
    depths = np.zeros(tree.n_nodes)
    for node in tree.order[1:]:
        depths[node] = depths[tree.parents[node]] + tree.lengths[node]
    np.testing.assert_allclose(depths[list(tree.leaves)], depths[tree.leaves[0]])


@pytest.mark.parametrize("when", ["check", "average linkage"])
def test_a_linkage_can_be_cancelled(when: str) -> None:
    class Stopping(Monitor):
        def report(self, phase: str, **numbers: object) -> None:
            if phase == when:
                self.cancel(2)

    with pytest.raises(RunCancelledError):
        linkage(np.ones((5, 5)) - np.eye(5), "average", monitor=Stopping())
