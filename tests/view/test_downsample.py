from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from fake_run import camera_scores

from tartan.errors import ConfigError
from tartan.store.downsample import CellSums, block_means, leaf_tree, shrink


def test_small_matrix_comes_back_as_it_is(make_run):
    run = make_run(24)
    np.testing.assert_allclose(block_means(run), run.full, equal_nan=True)


def test_order_permutes_rows_and_columns(make_run):
    run = make_run(10, 2)
    order = np.arange(10)[::-1]
    np.testing.assert_allclose(block_means(run, order=order), run.full[::-1, ::-1], equal_nan=True)


@pytest.mark.parametrize("wrong", [[0, 1], [0] * 10, list(range(1, 11))])
def test_order_must_be_a_permutation(make_run, wrong):
    with pytest.raises(ConfigError, match="each of the 10 item indices"):
        block_means(make_run(10, 2), order=np.array(wrong))


def test_rectangle_has_no_order():
    manifest = SimpleNamespace(outputs={"scores": np.dtype(float)})
    run = SimpleNamespace(shape=(2, 3), manifest=manifest, matrix=lambda: np.arange(6.0).reshape(2, 3))
    assert block_means(run).shape == (2, 3)
    with pytest.raises(ConfigError, match="cannot be reordered"):
        block_means(run, order=np.array([1, 0]))


def test_shrink_means_skip_what_is_not_known():
    matrix = np.array([[1.0, 3.0, np.nan, np.nan], [np.nan, 5.0, np.nan, np.inf]])
    np.testing.assert_allclose(shrink(matrix, 2), [[2.0, np.nan], [5.0, np.nan]], equal_nan=True)


def test_shrink_of_square_blocks():
    matrix = np.arange(16.0).reshape(4, 4)
    np.testing.assert_allclose(shrink(matrix, 2), [[2.5, 4.5], [10.5, 12.5]])


@pytest.mark.slow
@pytest.mark.parametrize("permuted", [False, True])
def test_large_matrix_is_streamed_and_equals_plain_means(make_run, permuted):
    n, side = 2100, 50
    run = make_run(n, 3)
    order = np.random.default_rng(3).permutation(n) if permuted else None
    expected = run.full if order is None else run.full[np.ix_(order, order)]
    got = block_means(run, side, order=order)
    np.testing.assert_allclose(got, shrink(expected, side), rtol=1e-6)


def test_a_picture_takes_no_memory_for_items_that_are_not_there():
    cells = CellSums((10**15, 10**15), 10)
    cells.add(10**15 - 2, 0, np.array([[1.0], [3.0]]), np.ones((2, 1), bool))
    cells.add_pairs(np.array([0], np.uint32), np.array([10**14]), np.array([5.0]))
    means = cells.means(symmetric=False)
    assert (means[9, 0], means[0, 1], np.isfinite(means).sum()) == (2.0, 5.0, 2)


def test_leaf_order_brings_groups_together():
    scores, truth = camera_scores(40, 4)
    order = leaf_tree(scores, similarity=True)[0]
    assert sorted(order) == list(range(40))
    labels = [truth[i] for i in order]
    assert sum(a != b for a, b in pairwise(labels)) == 3


def test_leaf_order_of_distances_and_gaps():
    scores, truth = camera_scores(20, 2)
    distances = 1.0 - scores
    distances[3, 4] = distances[4, 3] = np.nan
    labels = [truth[i] for i in leaf_tree(distances, similarity=False)[0]]
    assert sum(a != b for a, b in pairwise(labels)) == 1


@pytest.mark.parametrize("n", [0, 1, 2])
def test_leaf_order_of_next_to_nothing(n):
    assert list(leaf_tree(np.zeros((n, n)), similarity=True)[0]) == list(range(n))


@pytest.mark.slow
def test_leaf_order_of_nothing_known():
    assert sorted(leaf_tree(np.full((4, 4), np.nan), similarity=True)[0]) == [0, 1, 2, 3]
