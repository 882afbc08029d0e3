"""Bounds are rounded as the scores are, and inclusive, wherever one is given; SciPy is the oracle."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster
from scipy.cluster.hierarchy import linkage as scipy_linkage
from scipy.spatial.distance import pdist, squareform

import tartan
from tartan.analytics import cluster, clusters_at, minimum_spanning_tree
from tartan.analytics.labels import number_labels
from tartan.apps.forensics import cameras
from tartan.apps.vectors import Vectors
from tartan.base.bounds import round_bound
from tartan.errors import ConfigError

TENTHS = range(1, 10)
POINTS = np.random.default_rng(0).random((200, 10)) < 0.5
EXACT = squareform(pdist(POINTS, "hamming"))
STORED = {
    "float64": EXACT,
    "float32": EXACT.astype(np.float32),
    "float16": EXACT.astype(np.float16),
    "int16": np.round(EXACT * 32767).astype(np.int16),
}
# Of exact similarities k/10; the bounds are those of the tenths.
FORMULAS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "1-s": lambda s: 1 - s,
    "max-s": lambda s: 1 - s,
    "sqrt(2-2s)": lambda s: np.sqrt(2 - 2 * s),
    "-log(s/2+0.5)": lambda s: -np.log(s / 2 + 0.5),
}


def right(distances: np.ndarray, method: str, bound: float) -> list[int]:
    """Return SciPy's clusters up to a bound and a little more, which no pair is in between."""
    found = fcluster(scipy_linkage(squareform(distances, checks=False), method), bound * (1 + 1e-5), "distance")
    return number_labels(found).tolist()


@pytest.mark.parametrize("method", ["single", "complete"])
@pytest.mark.parametrize("dtype", STORED)
def test_pairs_exactly_at_the_bound_are_within(dtype: str, method: str) -> None:
    for tenth in TENTHS:
        found = cluster(STORED[dtype], method=method, threshold=tenth / 10)
        assert found.labels.tolist() == right(EXACT, method, tenth / 10), tenth
        assert found.labels.tolist() == cluster(STORED[dtype], method=method, cut=tenth / 10).labels.tolist()


@pytest.mark.parametrize("method", ["average", "weighted"])
@pytest.mark.parametrize("dtype", STORED)
def test_means_exactly_at_the_bound_are_within(dtype: str, method: str) -> None:
    # Which of equally near clusters are joined first depends on rounding: the oracle gets the stored values.
    stored = STORED[dtype].astype(np.float64) / (32767 if dtype == "int16" else 1)
    for tenth in TENTHS if dtype in ("float32", "float64") else ():
        assert clusters_at(STORED[dtype], tenth / 10, method).tolist() == right(stored, method, tenth / 10), tenth
    twos = np.array([[0, 0.1, 0.3], [0.1, 0, 0.5], [0.3, 0.5, 0]])
    made = np.round(twos * 32767).astype(np.int16) if dtype == "int16" else twos.astype(dtype)
    assert clusters_at(made, 0.4, method).tolist() == [0, 0, 0]
    assert clusters_at(made, 0.39, method).tolist() == [0, 0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_distances_made_of_similarities(dtype: type, formula: str) -> None:
    similarities, made = (1 - EXACT).astype(dtype), FORMULAS[formula]
    exact = np.abs(made(np.round(1 - EXACT, 1)))
    for method in ("single", "complete"):
        for tenth in TENTHS:
            bound = float(made(np.float64(1 - tenth / 10)))
            for how in ({"threshold": bound}, {"cut": 1 - tenth / 10}):
                found = cluster(similarities, method=method, distance=formula, **how)
                assert found.labels.tolist() == right(exact, method, bound), (method, tenth, how)


def test_a_transform_of_distances_made_of_similarities() -> None:
    similarities = (1 - EXACT).astype(np.float32)
    for tenth in TENTHS:
        bound = float(np.sqrt(tenth / 10))
        found = cluster(similarities, method="single", distance="1-s", transform="sqrt", threshold=bound)
        assert found.labels.tolist() == right(EXACT, "single", tenth / 10)


def test_a_mean_of_similarities_at_the_cut() -> None:
    s = np.array([[1, 0.9, 0.7], [0.9, 1, 0.5], [0.7, 0.5, 1]], np.float32)
    assert cluster(s, method="average", distance="1-s", cut=0.6).labels.tolist() == [0, 0, 0]
    assert cluster(s, method="average", distance="1-s", cut=0.61).labels.tolist() == [0, 0, 1]
    assert cameras(s, 0.6).tolist() == [0, 0, 0]
    assert cameras(s, 0.61).tolist() == [0, 0, 1]


def test_a_spanning_tree_is_cut_in_the_type_of_its_scores() -> None:
    tree = minimum_spanning_tree(STORED["float32"])
    for tenth in TENTHS:
        assert tree.labels(np.float64(tenth / 10)).tolist() == right(EXACT, "single", tenth / 10)


def test_a_run_and_its_kept_pairs_answer_alike(tmp_path) -> None:
    whole = tartan.allpairs(Vectors(metric="hamming"), POINTS, out=tmp_path / "whole")
    for tenth in (1, 2, 3):
        bound = tenth / 10
        kept = tartan.allpairs(
            Vectors(metric="hamming"),
            POINTS,
            out=tmp_path / f"kept{tenth}",
            reduce={"kind": "threshold", "threshold": bound},
        )
        wanted = right(EXACT, "single", bound)
        for run in (whole, kept):
            assert run.cluster(method="single", threshold=bound).tolist() == wanted
            assert run.cluster(method="single", cut=bound).tolist() == wanted
        assert kept.cluster(threshold=bound).tolist() == kept.cluster(cut=bound).tolist() == wanted


class Ratio(tartan.Application):
    """Similarities k/10: positions with equal values."""

    similarity = True
    releases_gil = True
    outputs: ClassVar[dict[str, str]] = {"score": "float32"}

    def parse(self, key, data):
        return np.asarray(data)

    def compare_pair(self, a, b):
        return (a == b).mean()


def test_a_cut_of_kept_similarities(tmp_path) -> None:
    points = list(POINTS[:60])
    exact = EXACT[:60, :60]
    rule = {"kind": "threshold", "threshold": 0.5, "largest": True}
    for options in ({}, {"reduce": rule}):
        run = tartan.allpairs(Ratio(), points, out=tmp_path / str(len(options)), **options)
        for tenth in (6, 7, 8, 9):
            wanted = right(exact, "single", 1 - tenth / 10)
            assert run.cluster(method="single", cut=tenth / 10).tolist() == wanted
            assert run.cluster(method="single", distance="1-s", cut=tenth / 10).tolist() == wanted
            found = run.cluster(method="single", distance="1-s", threshold=round(1 - tenth / 10, 1))
            assert found.tolist() == wanted


def test_a_cut_beyond_all_scores() -> None:
    s = np.array([[1, 0.9], [0.9, 1]])
    found = cluster(s, method="single", distance="max-s", cut=2.0)
    assert (found.labels.tolist(), found.cut) == ([0, 1], 2.0)
    with pytest.raises(ConfigError, match="cut is 2, and sqrt"):
        cluster(s, method="single", distance="sqrt(2-2s)", cut=2.0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cut": 1.0, "threshold": 1.0}, "give one of"),
        ({"cut": 1.0, "n_clusters": 2}, "give one of"),
        ({"cut": 1.0, "method": "pwc"}, "a cut is for a linkage"),
        ({"cut": float("nan")}, "cut is nan; it must be a finite number"),
    ],
)
def test_contradictions(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        cluster(EXACT, **options)


def test_a_bound_is_rounded_as_the_scores() -> None:
    assert round_bound(0.1, np.float32) == float(np.float32(0.1))
    assert round_bound(2.5, np.int32) == 2.5
    assert round_bound(1e300, np.float32) == np.inf
