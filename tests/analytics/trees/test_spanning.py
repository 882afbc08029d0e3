"""The spanning tree and single linkage, against SciPy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from tartan._native import SpanningForest
from tartan.analytics.trees.spanning import SpanningTree, spanning_tree
from tartan.errors import ConfigError


def batches(matrix: np.ndarray, size: int, descending: bool = False) -> Iterator[pa.RecordBatch]:
    """Yield the pairs i < j of a matrix in the order of their scores, those without one last."""
    i, j = np.triu_indices(len(matrix), 1)
    scores = matrix[i, j]
    order = np.argsort(-scores if descending else scores, kind="stable")
    for start in range(0, len(order), size):
        part = order[start : start + size]
        score = pa.array(scores[part], mask=np.isnan(scores[part]))
        yield pa.record_batch({"i": pa.array(i[part]), "j": pa.array(j[part]), "score": score})


def distances(n: int, seed: int, *, ties: bool = False) -> np.ndarray:
    points = np.random.default_rng(seed).standard_normal((n, 2))
    matrix = np.sqrt(((points[:, None] - points[None]) ** 2).sum(-1))
    return np.round(matrix, 1) if ties else matrix


@pytest.mark.parametrize("n", [2, 3, 10, 60])
@pytest.mark.parametrize("size", [1, 7, 5000])
def test_linkage_is_that_of_scipy(n: int, size: int) -> None:
    matrix = distances(n, n)
    tree = spanning_tree(batches(matrix, size), n)
    truth = linkage(squareform(matrix, checks=False), "single")
    np.testing.assert_allclose(tree.linkage(), truth, rtol=1e-12)


@pytest.mark.parametrize("k", [1, 2, 5, 40])
def test_clusters_with_ties(k: int) -> None:
    matrix = distances(40, 3, ties=True)
    tree = spanning_tree(batches(matrix, 50), 40)
    truth = linkage(squareform(matrix, checks=False), "single")
    np.testing.assert_allclose(np.sort(tree.scores), truth[:, 2])
    assert len(set(tree.cut(k).tolist())) == k
    for threshold in (0.1, 0.3, 0.5):
        expected = fcluster(truth, threshold, "distance")
        found = tree.labels(threshold)
        assert len({*zip(found.tolist(), expected.tolist(), strict=True)}) == len(set(expected.tolist()))
        assert list(dict.fromkeys(found.tolist())) == list(range(found.max() + 1))


def test_similarities_make_the_largest_tree() -> None:
    matrix = distances(20, 1)
    tree = spanning_tree(batches(-matrix, 30, descending=True), 20)
    truth = spanning_tree(batches(matrix, 30), 20)
    np.testing.assert_array_equal(tree.scores, -truth.scores)
    np.testing.assert_array_equal(tree.labels(-0.7), truth.labels(0.7))
    with pytest.raises(ConfigError, match="similarities"):
        tree.linkage()


def test_reading_ends_with_the_last_join() -> None:
    stream = batches(np.arange(16.0).reshape(4, 4), 1)
    spanning_tree(stream, 4)
    assert len(list(stream)) == 3


def test_pairs_without_a_score_join_nothing() -> None:
    matrix = distances(6, 2)
    matrix[:3, 3:] = matrix[3:, :3] = np.nan
    tree = spanning_tree(batches(matrix, 4), 6)
    assert tree.n_parts == 2
    assert tree.cut(2).tolist() == [0, 0, 0, 1, 1, 1]
    with pytest.raises(ConfigError, match="2 to 6"):
        tree.cut(1)
    with pytest.raises(ConfigError, match="2 parts"):
        tree.linkage()


def test_no_pairs_at_all() -> None:
    assert spanning_tree([], 1).linkage().shape == (0, 4)
    assert spanning_tree([], 3).cut(3).tolist() == [0, 1, 2]
    assert SpanningTree(1, np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)).labels(1.0).tolist() == [0]


def test_edges_to_nowhere_are_refused() -> None:
    with pytest.raises(ValueError, match="0 to 2"):
        SpanningForest(3).offer(np.array([0]), np.array([3]))
