"""Representatives of clusters, and matrices and labels of parts."""

from __future__ import annotations

import numpy as np
import pytest
from pwc_data import blobs, points_and_squares
from scipy.spatial.distance import cdist

from tartan.analytics import as_dissimilarities, cluster_centres, extract_clusters, join_clusters, merge_labels
from tartan.errors import ConfigError


@pytest.fixture(scope="module")
def case():
    points, squares = points_and_squares(90)
    labels = (points[:, 0] > np.median(points[:, 0])).astype(int)
    labels[:3] = -1
    return points, np.sqrt(squares), labels


def test_centres_are_those_of_their_definitions(case):
    points, D, labels = case
    centres = cluster_centres(D, labels, embedding=points, n_centres=4)
    assert set(centres) == {
        "mean", "bucket 0.15", "bucket 0.4", "bucket 0.75", "embedding mean", "centroid", "vote"
    }  # fmt: skip
    for k in (0, 1):
        members = np.flatnonzero(labels == k)
        inside = D[np.ix_(members, members)]
        by_mean = members[np.argsort(inside.sum(1), kind="stable")[:4]]
        assert centres["mean"][k].tolist() == by_mean.tolist()
        assert centres["embedding mean"][k].tolist() == by_mean.tolist()  # the map is exact here
        nearest = cdist(points[members], [points[members].mean(0)])[:, 0]
        assert centres["centroid"][k].tolist() == members[np.argsort(nearest)[:4]].tolist()
        radius = np.quantile(inside[np.triu_indices(len(members), 1)], 0.4)
        near = (inside <= radius).sum(1)
        assert near[np.searchsorted(members, centres["bucket 0.4"][k, 0])] >= near.max() - 1
        assert set(centres["vote"][k]) <= set(members.tolist())


def test_small_clusters_have_fewer_centres():
    centres = cluster_centres([[0, 1.0, 5], [1, 0, 5], [5, 5, 0]], [0, 0, 1], n_centres=2)
    assert centres["mean"].tolist() == [[0, 1], [2, -1]]
    assert centres["vote"].tolist() == [[0, 1], [2, -1]]


def test_missing_pairs_are_left_out_of_means():
    D = np.ma.masked_invalid([[0, 1, np.nan, 3], [1, 0, 1, 1], [np.nan, 1, 0, 9], [3, 1, 9, 0]])
    assert cluster_centres(D, [0, 0, 0, 0], n_centres=3)["mean"][0].tolist() == [1, 0, 3]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"labels": [0, 1]}, "3 whole numbers"),
        ({"labels": [0.0, 1.0, 1.0]}, "whole numbers"),
        ({"embedding": [[0.0], [1.0]]}, "3 rows"),
        ({"n_centres": 0}, "n_centres"),
        ({"fractions": (0.0,)}, "fractions"),
    ],
)
def test_wrong_centres(wrong, says):
    options = {"labels": [0, 1, 1], **wrong}
    with pytest.raises(ConfigError, match=says):
        cluster_centres([[0, 1.0, 5], [1, 0, 5], [5, 5, 0]], **options)


def test_extract_and_merge():
    D, labels = blobs(60, 3)
    part, items = extract_clusters(as_dissimilarities(D, maximum=2.0), labels, [0, 2])
    assert (items == np.flatnonzero(labels != 1)).all()
    assert part.values(slice(0, part.n), slice(0, part.n)) == pytest.approx(D[np.ix_(items, items)] / 32767 * 2)
    refined = np.arange(len(items)) % 2
    merged = merge_labels(labels, [(items, refined)])
    assert len(set(merged.tolist())) == 3
    assert len(set(merged[labels == 1].tolist())) == 1


def test_extract_keeps_names_and_missing_pairs():
    D = as_dissimilarities(np.array([[0, 1, np.nan], [1, 0, 2], [np.nan, 2, 0]]), missing="nan", names="abc")
    part, items = extract_clusters(D, [0, 1, 0], [0])
    assert part.names == ("a", "c")
    assert items.tolist() == [0, 2]
    assert part.check().n_missing == 1


def test_extract_nothing():
    with pytest.raises(ConfigError, match=r"no item has a label of \[7\]"):
        extract_clusters([[0, 1.0], [1, 0]], [0, 1], [7])


def test_wrong_parts():
    with pytest.raises(ConfigError, match="a part has"):
        merge_labels([0, 1], [([0, 5], [0, 1])])


def test_join():
    assert join_clusters([4, 2, 4, 7, -1], [[2, 7]]).tolist() == [0, 1, 0, 1, -1]
    assert join_clusters([0, 1, 2, 3, 4, 5], [[1, 3], [4, 5], (4, 3), []]).tolist() == [0, 1, 2, 1, 1, 1]


def test_items_with_a_masked_label_belong_to_no_cluster():
    x = np.arange(6.0)
    D = np.abs(x[:, None] - x)
    centres = [
        cluster_centres(D, labels) for labels in (np.ma.masked_equal([0, 0, 0, 1, 7, 7], 7), [0, 0, 0, 1, -1, -1])
    ]
    for kind, chosen in centres[0].items():
        np.testing.assert_array_equal(chosen, centres[1][kind])
