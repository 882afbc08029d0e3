"""Kept pairs and graphs of neighbours that were made elsewhere: clustered, listed and mapped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist
from sklearn.neighbors import kneighbors_graph, radius_neighbors_graph

from tartan.analytics import cluster, embed
from tartan.analytics.matrix.edges import neighbors_of_pairs, read_edges
from tartan.errors import ConfigError

POINTS = np.random.default_rng(0).normal(size=(60, 2)) + np.repeat([[0, 0], [9, 0], [0, 9]], 20, axis=0)
GRAPH = radius_neighbors_graph(POINTS, 1.5, mode="distance")
NAMES = [f"x{row}" for row in range(60)]


def parts(graph: Any) -> np.ndarray:
    """Return the connected parts that SciPy finds, numbered by their first item."""
    labels = connected_components(graph, directed=False)[1]
    return np.unique(labels, return_inverse=True)[1]


def same(found: np.ndarray, truth: np.ndarray) -> bool:
    """Whether two labellings group alike."""
    return len(set(zip(found.tolist(), truth.tolist(), strict=True))) == len(set(truth.tolist())) == len(set(found))


def table(graph: Any = GRAPH, *, names: Any = NAMES, score: str = "distance") -> pa.Table:
    """Return a graph as edges, each in one direction."""
    entries = sp.triu(graph).tocoo()
    ends = [[names[at] for at in side.tolist()] for side in (entries.row, entries.col)]
    return pa.table({"source": ends[0], "target": ends[1], score: entries.data})


def test_a_graph_of_scikit_learn_is_clustered_by_its_parts(tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "graph.npz", GRAPH)
    for given in (tmp_path / "graph.npz", GRAPH, sp.coo_array(GRAPH)):
        found = cluster(given)
        assert same(found.labels, parts(GRAPH))
        near = GRAPH - GRAPH.multiply(GRAPH > 0.7)
        near.eliminate_zeros()
        assert same(cluster(given, threshold=0.7).labels, parts(near))


def test_a_graph_of_neighbours_has_each_pair_once(tmp_path: Path) -> None:
    graph = kneighbors_graph(POINTS, 4, mode="distance")
    pairs = read_edges(graph)
    either = graph.maximum(graph.T).tocoo()
    assert len(pairs.i) == either.nnz // 2
    truth = cdist(POINTS, POINTS)
    np.testing.assert_allclose(pairs.distances, truth[pairs.i, pairs.j])
    found, distances = neighbors_of_pairs(pairs, 4)
    np.fill_diagonal(truth, np.inf)
    np.testing.assert_array_equal(found, np.argsort(truth, axis=1)[:, :4])
    np.testing.assert_allclose(distances, np.sort(truth, axis=1)[:, :4])


def test_items_without_pairs_have_no_neighbours() -> None:
    pairs = read_edges(sp.coo_matrix(([0.0, 2.0], ([0, 3], [2, 2])), shape=(5, 5)))
    found, distances = neighbors_of_pairs(pairs, 2)
    assert found.tolist() == [[2, -1], [-1, -1], [0, 3], [2, -1], [-1, -1]]
    np.testing.assert_array_equal(distances[2], [0, 2])
    assert np.isnan(distances[1]).all(), "a stored 0 is a distance; what is not stored is none"


@pytest.mark.parametrize("suffix", [".parquet", ".feather", ".csv", ".tsv", ".txt"])
def test_a_table_of_edges_has_names(tmp_path: Path, suffix: str) -> None:
    path, edges = tmp_path / f"edges{suffix}", table()
    if suffix == ".parquet":
        pq.write_table(edges, path)
    elif suffix == ".feather":
        pyarrow.feather.write_feather(edges, str(path))
    else:
        mark = "," if suffix == ".csv" else "\t"
        rows = zip(*edges.to_pydict().values(), strict=True)
        path.write_text("\n".join(mark.join(map(str, row)) for row in [edges.column_names, *rows]) + "\n")
    pairs = read_edges(path)
    assert set(pairs.names) <= set(NAMES)
    dense = GRAPH.toarray()
    at = [[NAMES.index(pairs.names[item]) for item in side] for side in (pairs.i, pairs.j)]
    np.testing.assert_array_equal(pairs.distances, dense[at[0], at[1]])
    assert len(pairs.i) == GRAPH.nnz // 2
    assert pairs.conversion is None


def test_columns_i_and_j_count_items(tmp_path: Path) -> None:
    edges = pa.table({"i": [0, 4, 4], "j": [1, 2, 0], "score": [0.5, 0.25, 1.0]})
    pq.write_table(edges, tmp_path / "edges.parquet")
    pairs = read_edges(tmp_path / "edges.parquet")
    assert list(pairs.names) == ["0", "1", "2", "3", "4"]
    assert list(zip(pairs.i, pairs.j, pairs.distances)) == [(0, 1, 0.5), (0, 4, 1.0), (2, 4, 0.25)]
    (tmp_path / "edges.csv").write_text("i,j,distance\n0,1,0.5\n4,2,0.25\n4,0,1\n")
    again = read_edges(tmp_path / "edges.csv")
    assert (again.n, again.distances.tolist()) == (5, pairs.distances.tolist())


def test_similarities_become_distances(tmp_path: Path) -> None:
    near = GRAPH.copy()
    near.data = 1 / (1 + near.data)
    pq.write_table(table(near, score="similarity"), tmp_path / "edges.parquet")
    pairs = read_edges(tmp_path / "edges.parquet")
    assert pairs.conversion == "1-s"
    np.testing.assert_allclose(pairs.distances, 1 - pairs.scores)
    found = cluster(tmp_path / "edges.parquet", cut=0.5)
    truth = cluster(GRAPH, threshold=1.0)
    names = [NAMES.index(name) for name in pairs.names]
    assert same(found.labels, truth.labels[names])
    assert read_edges(near, distance="1-s").distances.min() >= 0


def test_a_graph_is_mapped_by_its_paths() -> None:
    line = sp.coo_matrix((np.ones(29), (np.arange(29), np.arange(1, 30))), shape=(30, 30))
    points = embed(line, "smacof", 1, random_state=0).points[:, 0]
    steps = np.diff(points)
    assert np.all(steps > 0) or np.all(steps < 0)


def edges_of(*rows: tuple[Any, Any, Any], columns: tuple[str, ...] = ("source", "target", "distance")) -> pa.Table:
    return pa.table(dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True)))


WRONG: dict[str, tuple[pa.Table, str]] = {
    "null name": (edges_of(("a", "b", 1.0), ("a", None, 2.0)), r"row 1 names no item in 'target'; leave it out"),
    "null score": (edges_of(("a", "b", None), ("a", "c", 2.0)), r"row 0, a and b, has nan in 'distance'; leave"),
    "NaN": (edges_of(("a", "b", 1.0), ("b", "c", np.nan)), r"row 1, b and c, has nan in 'distance'"),
    "infinite": (edges_of(("a", "b", 1.0), ("b", "c", np.inf)), r"row 1, b and c, has inf in 'distance'"),
    "negative": (edges_of(("a", "b", 1.0), ("b", "c", -2.0)), r"b and c are at -2, and a distance is 0 or more; .*1-s"),
    "twice": (edges_of(("a", "b", 1.0), ("a", "b", 2.0)), r"a with b has the scores 1 and 2; keep one of them"),
    "alone": (edges_of(("a", "a", 1.0)), r"has no pair of two items"),
    "two columns": (
        pa.table({"a": ["x"], "b": ["y"]}),
        r"has the columns a \(string\) and b \(string\); two that name",
    ),
    "no score": (pa.table({"a": ["x"], "b": ["y"], "c": ["z"]}), r"which column is the score of a pair\?"),
}


@pytest.mark.parametrize("case", WRONG)
def test_edges_that_are_none_are_named(tmp_path: Path, case: str) -> None:
    edges, said = WRONG[case]
    pq.write_table(edges, tmp_path / "edges.parquet")
    with pytest.raises(ConfigError, match=said):
        read_edges(tmp_path / "edges.parquet")


def test_the_mean_of_both_directions_counts(tmp_path: Path) -> None:
    pq.write_table(edges_of(("a", "b", 1.0), ("b", "a", 2.0), ("b", "a", 2.0)), tmp_path / "edges.parquet")
    assert read_edges(tmp_path / "edges.parquet").distances.tolist() == [1.5]


def test_matrices_that_are_none_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has shape \(3, 4\); a graph of items has as many columns as rows"):
        read_edges(sp.csr_matrix(np.ones((3, 4))))
    broken = sp.csr_matrix(np.ones((3, 3)))
    broken.indptr[1] = 900
    with pytest.raises(ConfigError, match=r"is damaged"):
        read_edges(broken)
    broken = sp.csr_matrix(np.ones((3, 3)))
    broken.indices[2] = 70
    with pytest.raises(ConfigError, match=r"is damaged"):
        read_edges(broken)
    np.savez(tmp_path / "plain.npz", a=np.ones(3))
    with pytest.raises(ConfigError, match=r"not a sparse matrix of SciPy, .*scipy.sparse.save_npz"):
        read_edges(tmp_path / "plain.npz")
    with pytest.raises(ConfigError, match=r"the pair 0 and 1 has nan; leave such pairs out"):
        read_edges(sp.csr_matrix(np.array([[0, np.nan], [0, 0]])))


def test_what_needs_a_matrix_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"leave out `missing=`"):
        cluster(GRAPH, missing="nan")
    with pytest.raises(ConfigError, match=r"keeps pairs and no matrix; leave out start"):
        embed(GRAPH, start=POINTS)
