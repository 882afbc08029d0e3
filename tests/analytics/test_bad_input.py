"""Every analysis with every kind of bad input: a clear error that names what is wrong, or a finite result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tartan.analytics import (
    DAMDS,
    DAPWC,
    DAVS,
    LMMDS,
    align,
    as_dissimilarities,
    cluster_centres,
    clusters_at,
    density,
    embed,
    linkage,
    linkage_tree,
    minimum_spanning_tree,
    neighbor_joining,
    neighbors,
    outliers,
    read_newick,
    upgma,
    write_int16,
)
from tartan.analytics.clusters.choose import label_clusters
from tartan.errors import ConfigError

N = 12
_POINTS = np.random.default_rng(0).normal(size=(N, 3))
GOOD = np.linalg.norm(_POINTS[:, None] - _POINTS, axis=2)
GROUPS = np.arange(N) < N // 2


def changed(i: int, j: int, upper: float, lower: float) -> np.ndarray:
    """Return the good matrix with another value for one pair."""
    D = GOOD.copy()
    D[i, j], D[j, i] = upper, lower
    return D


def holes(apart: np.ndarray) -> np.ndarray:
    """Return int16 with missing pairs between two groups."""
    D = (GOOD / GOOD.max() * 32767).astype(np.int16)
    D[apart[:, None] != apart] = -1
    return D


# What is refused, and what the message says.
REFUSED: dict[str, tuple[Any, str]] = {
    "not square": (np.ones((3, 4)), r"shape \(3, 4\)"),
    "three axes": (np.ones((2, 2, 2)), "shape"),
    "no axis": (np.float64(3), "shape"),
    "none": (None, "shape"),
    "words": (np.array([["a", "b"], ["c", "d"]]), "numbers; these have the type <U1"),
    "objects": (np.array([[0, {}], [{}, 0]], dtype=object), "objects is none: .*'dict'"),
    "complex": (GOOD + 0j, "complex128"),
    "empty": (np.zeros((0, 0)), "shape"),
    "nothing": (np.zeros(0), "has no values"),
    "ragged": ([[0, 1], [1]], "different lengths"),
    "no triangle": (np.ones(7), "7 values in one row"),
    "asymmetric": (changed(1, 2, 9.0, 1.0), r"d\(1, 2\) is 9, d\(2, 1\) is 1"),
    "nan": (changed(1, 2, np.nan, np.nan), "1 and 2 is NaN"),
    "nan on one side": (changed(1, 2, np.nan, 1.0), "1 and 2 is NaN"),
    "infinite": (changed(3, 4, np.inf, np.inf), "3 and 4 is infinite"),
    "negative": (changed(0, 1, -1.0, -1.0), "0 and 1 is negative: -1"),
    "diagonal": (changed(0, 0, 1.0, 1.0), "0 and itself is 1, not 0"),
    "no file": ("/nonexistent.npy", "there is no file"),
}
# What means something to some: those refuse it with the words, the others give a finite result.
ODD: dict[str, Any] = {
    "all zero": np.zeros((5, 5)),
    "all equal": 1.0 - np.eye(6),
    "one point": np.zeros((1, 1)),
    "two points": np.array([[0.0, 1.0], [1.0, 0.0]]),
    "two points at one place": np.zeros((2, 2)),
    "two places": np.kron(1 - np.eye(2), np.ones((6, 6))),
    "cut apart": holes(GROUPS),
    "all missing": holes(np.arange(N)),
    "huge": 1e300 * GOOD,
    "tiny": 1e-300 * GOOD,
    "far apart": changed(0, 1, 1e-200, 1e-200),
    "true and false": GOOD > 1,
}
MAP = {
    "all zero": "every dissimilarity is 0", "two points at one place": "every dissimilarity is 0",
    "cut apart": "2 groups without a pair between them: 0, 1, 2, 3, 4 and 1 more; 6, 7, 8, 9, 10 and 1 more",
    "all missing": "every pair is missing", "huge": "beyond float64", "tiny": "beyond float64",
}  # fmt: skip
COMPLETE = {"cut apart": "pairs", "all missing": "pairs"}
FEW = {"one point": "clusters of 1 item"}
ANALYSES: dict[str, tuple[Callable[[Any], Any], dict[str, str]]] = {
    "DAMDS": (lambda D: DAMDS(2, max_temperatures=30, random_state=0).fit(D).embedding_, MAP),
    "SMACOF": (lambda D: embed(D, "smacof", 2, random_state=0).points, MAP),
    "landmark": (lambda D: DAMDS(2, annealing=False, init="landmark", random_state=0).fit(D).embedding_, MAP),
    "Sammon": (lambda D: DAMDS(2, sammon=True, max_temperatures=9, random_state=0).fit(D).embedding_, MAP),
    "LMMDS": (
        lambda D: LMMDS(1, random_state=0).fit(D).embedding_,
        {**MAP, "one point": "1 item", "far apart": "smallest dissimilarity above 0 is 1e-200"},
    ),
    "DAPWC": (
        lambda D: DAPWC(2, random_state=0).fit(D).membership_,
        {kind: says for kind, says in {**MAP, **FEW, "all missing": "groups"}.items() if kind != "tiny"},
    ),
    "neighbour joining": (lambda D: neighbor_joining(D).lengths[1:], COMPLETE),
    "UPGMA": (lambda D: upgma(D).lengths[1:], COMPLETE),
    "single": (lambda D: linkage(D, "single"), {"cut apart": MAP["cut apart"], "all missing": "12 groups"}),
    "complete": (lambda D: linkage(D, "complete"), COMPLETE),
    "two clusters": (lambda D: label_clusters(D, 2, "average"), {**COMPLETE, **FEW}),
    "at a distance": (lambda D: clusters_at(D, 0.5), {}),
    "neighbors": (lambda D: np.nan_to_num(neighbors(D, 2)[1]), {}),
    "outliers": (lambda D: np.nan_to_num(outliers(D, 2).z), {}),
    "spanning tree": (lambda D: minimum_spanning_tree(D).scores, {}),
    "density": (lambda D: density(D, np.zeros((as_dissimilarities(D).n, 1))).counts, {}),
    "centres": (lambda D: cluster_centres(D, np.zeros(as_dissimilarities(D).n, int))["mean"], {}),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_matrix_of_dissimilarities_is_refused(kind: str) -> None:
    given, says = REFUSED[kind]
    with pytest.raises(ConfigError, match=says):
        as_dissimilarities(given).check()


@pytest.mark.parametrize("name", ANALYSES)
def test_every_analysis_checks_its_matrix(name: str) -> None:
    given, says = REFUSED["asymmetric"]
    with pytest.raises(ConfigError, match=says):
        ANALYSES[name][0](given)


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("name", ANALYSES)
def test_what_is_odd_is_refused_or_has_a_finite_result(name: str, kind: str) -> None:
    analysis, refused = ANALYSES[name]
    if kind in refused:
        with pytest.raises(ConfigError, match=refused[kind]):
            analysis(ODD[kind])
    else:
        assert np.isfinite(analysis(ODD[kind])).all()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: neighbors(GOOD, "x"), "k is 'x'; it must be a whole number"),
        (lambda: neighbors(GOOD, 1.5), "k is 1.5"),
        (lambda: neighbors(GOOD, 10**15), "12 items have 11 neighbours at most"),
        (lambda: outliers(GOOD, 2, np.nan), "threshold is nan"),
        (lambda: clusters_at(GOOD, None), "threshold is None"),
        (lambda: clusters_at(GOOD, -1), "threshold is -1; it must be a distance"),
        (lambda: label_clusters(GOOD, 13, "single"), "13 clusters of 12 items"),
        (lambda: label_clusters(GOOD, 2.0, "single"), "n_clusters is 2.0"),
        (lambda: neighbor_joining(GOOD, 3), "names is 3"),
        (lambda: upgma(GOOD, ["a"]), "1 names for 12"),
        (lambda: read_newick(None), "None is not text"),
        (lambda: read_newick("(a:1e999,b);"), "'1e999' is not a length: it is not finite"),
        (lambda: linkage_tree(np.zeros((3, 2))), r"shape \(3, 2\)"),
        (lambda: linkage_tree(np.full((3, 4), 99.0)), "a hierarchy of n items"),
        (lambda: align("x", GOOD), "source is not an array of numbers"),
        (lambda: align(1e200 * GOOD, GOOD), "beyond float64"),
        (lambda: cluster_centres(GOOD, np.full(N, 10**9)), "label 1000000000 of item 0"),
        (lambda: density(GOOD, "x"), "embedding is not an array of numbers"),
        (lambda: as_dissimilarities(GOOD, names=3), "names is 3"),
        (lambda: as_dissimilarities(GOOD, missing=[1]), r"missing is \[1\]"),
        (lambda: as_dissimilarities(GOOD, maximum="x"), "maximum is 'x'"),
        (lambda: as_dissimilarities(GOOD, distance=3), "a formula of s"),
        (lambda: as_dissimilarities(GOOD, output="x"), "is one matrix"),
        (lambda: as_dissimilarities(GOOD, distance=lambda s: None).check(), "made object of numbers"),
        (lambda: write_int16(GOOD, "/tmp/nowhere", maximum=1e-9), "above the maximum"),
    ],
)
def test_options_that_do_not_fit_are_named(call: Callable[[], Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        call()


PLANE = _POINTS[:, :2]
FAR = np.where(np.arange(2 * N).reshape(N, 2) == 0, 1e200, PLANE)


@pytest.mark.parametrize(
    ("given", "options", "says"),
    [
        (np.arange(5.0), {}, "1D array"),
        (3.0, {}, "X is not an array of points"),
        (np.zeros((2, 2, 2)), {}, "dim 3"),
        (np.zeros((0, 2)), {}, r"0 sample"),
        (np.zeros((5, 0)), {}, r"0 feature"),
        ([["a", "b"], ["c", "d"]], {}, "X is not an array of points"),
        ([[1, 2], [3]], {}, "X is not an array of points"),
        (PLANE + 0j, {}, "Complex"),
        (1e300 * PLANE, {}, "too large for sigma 1: its energy is beyond float64"),
        (FAR, {}, r"coordinate 0 has the value 1e\+200"),
        (np.where(FAR == 1e200, 1e100, FAR), {"min_temperature": 1}, "the temperature would fall from"),
        (PLANE, {"sigma": 1e-300}, "sigma is 1e-300, and its square"),
        (PLANE, {"sigma": 1e300}, r"sigma is 1e\+300"),
        (PLANE, {"min_temperature": 1e-300}, "raise min_temperature"),
        (PLANE, {"temperature_ratio": 1e300}, "the temperature would fall from"),
        (PLANE, {"sponge": "always", "sponge_factor": 1e200}, "sponge_factor"),
    ],
)
def test_points_that_cannot_be_clustered_are_refused(given: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        DAVS(**options).fit(given)


@pytest.mark.parametrize(
    ("init", "says"),
    [
        ("abc", "init is not an array of numbers"),
        ([[1, 2], [3]], "init is not an array of numbers"),
        (np.ones((2, 3)), "2 coordinates"),
        (np.full((2, 2), np.nan), "finite"),
        (np.full((1, 2), 1e200), "init: coordinate 0 has the value 1e[+]200"),
    ],
)
def test_centres_that_do_not_fit_are_refused(init: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        DAVS(sigma=0.5, min_temperature=1).fit(PLANE, init=init)


def test_new_points_are_checked_as_the_old_ones() -> None:
    found = DAVS(sigma=3.0, min_temperature=2, cooling=(0.5, 0.8), cooling_below=(0.5, 0.8)).fit(PLANE)
    assert (found.predict(PLANE) == found.labels_).all()
    with pytest.raises(ConfigError, match="too large for sigma 3"):
        found.predict(FAR)
    with pytest.raises(ConfigError, match="X is not an array of points"):
        found.predict(PLANE[0])
