"""Clusters and maps of the pairs that a run keeps instead of the matrix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tartan.analytics import cluster
from tartan.analytics.clusters.find import cluster_pairs
from tartan.analytics.matrix.kept import KeptPairs
from tartan.analytics.monitor import Monitor
from tartan.errors import ConfigError

QUIET = Monitor(0)


def kept(n: int, edges: Sequence[tuple[int, int, float]], failed: Sequence[int] = ()) -> KeptPairs:
    """Pairs made by hand."""
    i, j, d = (np.array(column) for column in zip(*edges))
    names = tuple(map(str, range(n)))
    return KeptPairs(n, i, j, d, d, names, "made", np.array(failed, np.int64))


EDGES = [(0, 1, 1.0), (1, 2, 1.0), (0, 2, 2.0), (3, 4, 0.5), (4, 5, 4.0)]


def test_components_have_representatives() -> None:
    found = cluster_pairs(kept(8, EDGES, failed=[7]), None, "components", monitor=QUIET)
    assert found.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, -1]
    assert found.n_clusters == 3
    assert found.representatives is not None
    assert found.representatives.tolist() == [1, 4, 6]
    assert found.notes == ("2 groups of two or more items, 1 item alone", "1 failed item is left out: 7")


def test_a_threshold_leaves_out_pairs() -> None:
    found = cluster_pairs(kept(6, EDGES), None, "components", threshold=1.0, monitor=QUIET)
    assert found.labels.tolist() == [0, 0, 0, 1, 1, 2]
    assert found.reason == "the connected components of 3 kept pairs up to the distance 1"


@pytest.mark.parametrize(("k", "labels"), [(2, [0, 0, 0, 1, 1, 1]), (3, [0, 0, 0, 1, 1, 2]), (6, [0, 1, 2, 3, 4, 5])])
def test_a_number_cuts_single_linkage(k: int, labels: list[int]) -> None:
    found = cluster_pairs(kept(6, EDGES), k, "components", monitor=QUIET)
    assert (found.labels.tolist(), found.method) == (labels, "single")


def test_too_few_clusters_for_the_parts() -> None:
    with pytest.raises(ConfigError, match="1 clusters: 6 items in 2 unconnected parts make 2 to 6 clusters"):
        cluster_pairs(kept(6, EDGES), 1, "components", monitor=QUIET)


@pytest.mark.parametrize("method", ["pwc", "average"])
def test_methods_that_need_all_pairs(method: str) -> None:
    with pytest.raises(ConfigError, match=f"made keeps pairs and no matrix, and {method} needs all pairs"):
        cluster_pairs(kept(6, EDGES), None, method, monitor=QUIET)


def neighbours(points: np.ndarray, k: int) -> KeptPairs:
    """The k nearest of each point, each pair once."""
    D = np.sqrt(np.square(points[:, None] - points[None]).sum(-1))
    np.fill_diagonal(D, np.inf)
    edges = {(min(i, j), max(i, j)) for i in range(len(D)) for j in np.argsort(D[i])[:k].tolist()}
    return kept(len(D), [(i, j, float(D[i, j])) for i, j in sorted(edges)])


def groups(seed: int = 0) -> np.ndarray:
    """Three groups of thirty points, far apart."""
    centres = np.repeat([[0.0, 0.0], [100.0, 0.0], [0.0, 100.0]], 30, axis=0)
    return centres + np.random.default_rng(seed).standard_normal((90, 2))


def test_leiden_finds_communities_whatever_the_seed() -> None:
    pytest.importorskip("igraph", reason="igraph, the extra leiden, is not installed")
    bridge = [(0, 35, 50.0)]
    near = neighbours(groups(), 5)
    edges = [*zip(near.i.tolist(), near.j.tolist(), near.distances.tolist()), *bridge]
    pairs = kept(90, sorted(edges))
    for seed in (0, 1):
        found = cluster_pairs(pairs, None, "leiden", seed=seed, monitor=QUIET)
        again = cluster_pairs(pairs, None, "leiden", seed=seed, monitor=QUIET)
        assert found.labels.tolist() == again.labels.tolist()
        assert len({*found.labels[:30], *found.labels[30:60]} & set(found.labels[60:])) == 0
        assert len(set(found.labels[:30]) & set(found.labels[30:60])) == 0


@pytest.mark.parametrize("min_size", [2, 3])
def test_hdbscan_of_all_pairs_is_that_of_the_matrix(min_size: int) -> None:
    from sklearn.metrics import adjusted_rand_score

    rng = np.random.default_rng(3)
    points = np.concatenate([rng.normal(0, 1, (40, 2)), rng.normal(4, 0.4, (30, 2)), rng.uniform(-6, 9, (30, 2))])
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    i, j = np.triu_indices(len(points), 1)
    found = cluster_pairs(
        kept(len(points), list(zip(i, j, distances[i, j]))), None, "hdbscan", min_size=min_size, monitor=QUIET
    )
    whole = cluster(distances, method="hdbscan", min_size=min_size)
    assert adjusted_rand_score(found.labels, whole.labels) > 0.98  # equal distances of reach may join otherwise


def test_hdbscan_takes_each_part_alone() -> None:
    found = cluster_pairs(neighbours(groups(), 6), None, "hdbscan", min_size=8, monitor=QUIET)
    labels = found.labels
    assert found.n_clusters >= 3
    for one, other in ((0, 30), (0, 60), (30, 60)):
        inside, outside = set(labels[one : one + 30]) - {-1}, set(labels[other : other + 30]) - {-1}
        assert inside
        assert not inside & outside
