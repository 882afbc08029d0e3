"""Hierarchies against SciPy's, clusters at a threshold against connected components."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from scipy.cluster import hierarchy
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from scipy.spatial.distance import pdist, squareform

import tartan.analytics as analytics
from tartan.analytics import Monitor, clusters_at, linkage, linkage_tree, upgma
from tartan.analytics.trees import linkage_process as _linkage_process
from tartan.errors import ConfigError, InternalError, ResourceError, RunCancelledError


def distances(n: int = 60, seed: int = 0) -> np.ndarray:
    return squareform(pdist(np.random.default_rng(seed).normal(size=(n, 3))))


@pytest.mark.parametrize("method", ["single", "complete", "average", "weighted"])
def test_hierarchies_are_those_of_scipy(method: str) -> None:
    D = distances()
    expected = hierarchy.linkage(squareform(D), method)
    found = linkage(D, method)
    np.testing.assert_allclose(found[:, 2:], expected[:, 2:], rtol=1e-12)
    np.testing.assert_allclose(hierarchy.cophenet(found), hierarchy.cophenet(expected), rtol=1e-12)


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
    with pytest.raises(ConfigError, match="method: 'ward' is unknown; choose from single"):
        linkage(distances(), "ward")
    for threshold in (-1.0, float("nan")):
        with pytest.raises(ConfigError, match="threshold is"):
            clusters_at(distances(), threshold)
    with pytest.raises(ConfigError, match="2 names for 3 items"):
        linkage_tree(linkage([1.0, 2.0, 3.0]), ["a", "b"])


def test_a_stop_is_heard_while_a_tree_is_spanned() -> None:
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


@pytest.mark.slow
class TestProcess:
    """Many items are joined by a process of its own; here any number counts as many."""

    @pytest.fixture(autouse=True)
    def _few_are_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_linkage_process, "_MOST_HERE", 1)

    @pytest.fixture
    def processes(self, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
        """Return the processes that were started."""
        started: list[Any] = []
        start = subprocess.Popen

        def remember(*args: Any, **options: Any) -> Any:
            started.append(start(*args, **options))
            return started[-1]

        monkeypatch.setattr(subprocess, "Popen", remember)
        return started

    @pytest.mark.parametrize("method", ["complete", "average", "weighted"])
    def test_gives_what_scipy_gives(self, method: str) -> None:
        D = distances(40)
        expected = hierarchy.linkage(squareform(D, checks=False), method)
        np.testing.assert_array_equal(linkage(D, method), expected)

    def test_is_left_when_somebody_asks_for_a_stop(self, processes: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
        endless = "import signal; signal.pause()"
        monkeypatch.setattr(_linkage_process, "_CODE", endless)

        class Stopping(Monitor):
            left = 3

            def report(self, phase: str, **numbers: object) -> None:
                self.left -= phase == "average linkage"
                if self.left == 0:
                    self.cancel(2)

        with pytest.raises(RunCancelledError):
            linkage(distances(10), "average", monitor=Stopping())
        assert [process.returncode for process in processes] == [-signal.SIGKILL]

    @pytest.mark.parametrize(
        ("code", "error", "says"),
        [
            ("raise MemoryError('no room')", ResourceError, "MemoryError: no room.*want of memory"),
            ("import os, signal; os.kill(os.getpid(), 9)", ResourceError, "signal 9.*want of memory"),
            ("raise RuntimeError('odd')", InternalError, "RuntimeError: odd"),
        ],
    )
    def test_that_fails_is_told(
        self, code: str, error: type[Exception], says: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(_linkage_process, "_CODE", code)
        with pytest.raises(error, match=says):
            linkage(distances(10), "complete")

    def test_ends_with_us(self) -> None:
        """The process asks for the signal before anything else, and sees that we have gone before."""
        words = json.dumps([0, 1, 1, "average", os.getpid() + 1, sys.path])
        assert subprocess.run([sys.executable, "-c", _linkage_process._CODE, words], check=False).returncode == 1


@pytest.mark.parametrize("when", ["pairs", "average linkage"])
def test_a_stop_is_not_lost_where_scipy_joins(when: str) -> None:
    class Stopping(Monitor):
        def report(self, phase: str, **numbers: object) -> None:
            if phase == when:
                self.cancel(2)

    with pytest.raises(RunCancelledError):
        linkage(np.ones((5, 5)) - np.eye(5), "average", monitor=Stopping())
