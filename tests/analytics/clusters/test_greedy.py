"""Near duplicates that are near: greedy clusters of matrices and of kept pairs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tartan
from tartan.analytics import as_dissimilarities, cluster
from tartan.analytics.clusters import greedy
from tartan.analytics.clusters.find import cover_kept
from tartan.analytics.matrix.kept import KeptPairs
from tartan.analytics.monitor import Monitor
from tartan.apps.vectors import Vectors
from tartan.errors import ConfigError

QUIET = Monitor(0)


def pairs_of(D: np.ndarray, bound: float) -> KeptPairs:
    """All pairs of a matrix up to a bound."""
    i, j = np.nonzero(np.triu(bound >= D, 1))
    names = tuple(map(str, range(len(D))))
    return KeptPairs(len(D), i, j, D[i, j], D[i, j], names, "made", np.empty(0, np.int64))


def cover_plainly(D: np.ndarray, bound: float, priority: np.ndarray | None) -> tuple[list[int], list[float]]:
    """The definition, item by item: CD-HIT's loop with -g 1, over representatives so far."""
    n = len(D)
    numbers = [sum(D[i, j] <= bound for j in range(n) if j != i) for i in range(n)] if priority is None else priority
    order = sorted(range(n), key=lambda item: (-numbers[item], item))
    chosen, distances, representatives = [-1] * n, [0.0] * n, list[int]()
    for item in order:
        near = [(D[item, other], at, other) for at, other in enumerate(representatives) if D[item, other] <= bound]
        if near:
            distances[item], _, chosen[item] = min(near)
        else:
            chosen[item] = item
            representatives.append(item)
    return chosen, distances


def random_graph(seed: int) -> tuple[np.ndarray, float]:
    """Distances of few values, so that many are equal; some graphs are dense, some empty."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 40))
    D = rng.integers(0, 8, (n, n)) / 4.0
    D = np.triu(D, 1)
    return D + D.T, float(rng.choice([0.0, 0.25, 0.5, 1.0, 2.0]))


@pytest.mark.parametrize("seed", range(60))
def test_it_is_the_loop_over_representatives(seed: int) -> None:
    D, bound = random_graph(seed)
    rng = np.random.default_rng(seed + 1000)
    priority = None if seed % 3 == 0 else rng.integers(0, 4, len(D)).astype(float)
    chosen, distances = cover_plainly(D, bound, priority)
    matrix = as_dissimilarities(D)
    for found in (
        greedy.cover_pairs(pairs_of(D, bound), priority, QUIET),
        greedy.cover_matrix(matrix, bound, priority, QUIET),
        greedy.cover_matrix(matrix, bound, priority, QUIET, most_bytes=0),
    ):
        assert found.chosen.tolist() == chosen
        assert found.distances.tolist() == distances


@pytest.mark.parametrize("seed", range(20))
def test_members_are_near_and_representatives_are_not(seed: int) -> None:
    D, bound = random_graph(seed)
    found = cluster(D, method="greedy", threshold=bound)
    assert found.representatives is not None
    assert found.distances is not None
    own = found.representatives[found.labels]
    assert found.distances.tolist() == D[np.arange(len(D)), own].tolist()
    assert (found.distances <= bound).all()
    apart = D[np.ix_(found.representatives, found.representatives)]
    assert (apart[~np.eye(len(apart), dtype=bool)] > bound).all()
    assert found.labels[found.representatives].tolist() == list(range(found.n_clusters))


def half_circle() -> np.ndarray:
    angles = np.linspace(0, np.pi, 60)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


@pytest.mark.parametrize("keeps", ["all", "threshold", "top-k"])
def test_a_half_circle_is_no_single_group(tmp_path: Path, keeps: str) -> None:
    rows, bound = half_circle(), 0.02
    rules = {"all": None, "threshold": tartan.under(bound), "top-k": tartan.top(30, largest=False)}
    run = tartan.allpairs(Vectors(), rows, reduce=rules[keeps], out=tmp_path / "r.tartan")
    if keeps == "threshold":
        assert set(run.cluster()) == {0}
    exact = 1 - rows.astype(float) @ rows.T.astype(float)
    found = cluster(run, method="greedy", threshold=bound)
    assert found.representatives is not None
    assert found.distances is not None
    own = found.representatives[found.labels]
    np.testing.assert_allclose(found.distances, exact[np.arange(60), own], atol=1e-6)
    assert (found.distances <= np.float32(bound)).all()
    apart = exact[np.ix_(found.representatives, found.representatives)] + np.eye(found.n_clusters)
    assert apart.min() > bound
    assert 8 <= found.n_clusters <= 16
    assert not any("may be near each other" in note for note in found.notes)


def test_an_application_cut_is_the_bound(tmp_path: Path) -> None:
    from tartan.apps.sets import Sets

    texts = tmp_path / "t"
    texts.mkdir()
    words = [f"w{number}" for number in range(60)]
    for name, drop in (("a", 0), ("b", 2), ("c", 4), ("d", 30)):
        (texts / f"{name}.txt").write_text(" ".join(words[drop:]))
    run = tartan.allpairs(Sets(shingle="5w"), sorted(texts.iterdir()), reduce=tartan.over(0.8), out=tmp_path / "s")
    found = cluster(run, method="greedy")
    assert found.labels.tolist() == [0, 0, 0, 1]
    assert found.cut == 0.8
    assert cluster(run, method="greedy", threshold=0.2).labels.tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize(
    ("rule", "ways", "message"),
    [
        ("threshold", {"threshold": 0.5}, "keeps pairs up to the distance 0.02, and greedy up to 0.5 would not see"),
        ("threshold", {"cut": 0.5}, "keeps pairs up to the score 0.02, and greedy with a cut of 0.5 would not see"),
        ("top-k", {}, "keeps the nearest 3 of each item, however far they are: greedy needs to know"),
        ("all", {}, "greedy needs to know what is near: give a threshold"),
        ("all", {"n_clusters": 3}, "greedy makes as many clusters as the bound needs"),
        (
            "all",
            {"threshold": 0.02, "priority": [1, 2]},
            r"priority has shape \(2,\); give a number for each of the 60",
        ),
        ("all", {"threshold": 0.02, "priority": ["x"] * 60}, "priority: could not convert string to float"),
    ],
)
def test_what_it_needs_is_named(tmp_path: Path, rule: str, ways: dict[str, object], message: str) -> None:
    rules = {"all": None, "threshold": tartan.under(0.02), "top-k": tartan.top(3, largest=False)}
    run = tartan.allpairs(Vectors(), half_circle(), reduce=rules[rule], out=tmp_path / "r.tartan")
    with pytest.raises(ConfigError, match=message):
        cluster(run, method="greedy", **ways)  # type: ignore[arg-type]


def test_priority_is_for_greedy_alone() -> None:
    with pytest.raises(ConfigError, match="priority is for the method greedy; single takes none"):
        cluster(np.zeros((3, 3)), method="single", threshold=1, priority=[1, 2, 3])


def test_lists_that_are_too_short_are_noted(tmp_path: Path) -> None:
    run = tartan.allpairs(Vectors(), half_circle(), reduce=tartan.top(3, largest=False), out=tmp_path / "r.tartan")
    found = cluster(run, method="greedy", threshold=0.02)
    assert any(note.startswith("60 items have 3 or more pairs within the bound") for note in found.notes)


def test_failed_items_are_in_no_cluster() -> None:
    D = np.array([[0.0, 9, 1], [9, 0, 9], [1, 9, 0]])
    pairs = pairs_of(D, 2.0)
    gone = KeptPairs(3, pairs.i, pairs.j, pairs.scores, pairs.distances, pairs.names, "made", np.array([1]))
    found = cover_kept(gone, 2.0, "", None, QUIET)
    assert found.labels.tolist() == [0, -1, 0]
    assert found.representatives is not None
    assert found.distances is not None
    assert found.representatives.tolist() == [0]
    assert np.isnan(found.distances).tolist() == [False, True, False]


def test_a_run_without_its_failed_items(tmp_path: Path) -> None:
    rows = half_circle()[:12].copy()
    rows[0] = np.nan
    run = tartan.allpairs(Vectors(), rows, out=tmp_path / "r.tartan")
    priority = np.arange(12.0)
    found = cluster(run, method="greedy", threshold=0.02, priority=priority, failed="drop")
    assert found.representatives is not None
    assert found.distances is not None
    assert found.labels[0] == -1
    assert np.isnan(found.distances[0])
    assert found.representatives.max() == 11
    assert (found.distances[found.representatives] == 0).all()


def test_missing_pairs_are_not_near() -> None:
    D = np.array([[0.0, np.nan, 0.1], [np.nan, 0, 0.1], [0.1, 0.1, 0]])
    found = cluster(D, method="greedy", threshold=0.2, missing="nan", priority=[3, 2, 1])
    assert found.labels.tolist() == [0, 1, 0]
    assert found.notes == ("1 missing pair counts as farther",)


def test_communities_of_sentence_transformers_by_most_neighbours() -> None:
    """Its ``community_detection`` (util.py) with min_community_size=1, written anew: larger communities come first, and
    members that were taken are left out of later ones. On groups that do not overlap both agree."""
    rng = np.random.default_rng(3)
    centres = np.linalg.qr(rng.standard_normal((16, 16)))[0][:7]
    labels = rng.permutation(np.repeat(np.arange(7), [1, 2, 3, 5, 8, 9, 12]))
    rows = centres[labels] + 0.02 * rng.standard_normal((40, 16))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    near = rows @ rows.T >= 0.8
    communities = sorted((np.flatnonzero(row).tolist() for row in near), key=len, reverse=True)
    taken, theirs = set[int](), set[frozenset[int]]()
    for members in communities:
        rest = [member for member in members if member not in taken]
        if rest:
            theirs.add(frozenset(rest))
            taken.update(rest)
    D = np.maximum(0, 1 - rows @ rows.T)
    np.fill_diagonal(D, 0)
    found = cluster((D + D.T) / 2, method="greedy", threshold=0.2)
    assert {frozenset(np.flatnonzero(found.labels == k).tolist()) for k in range(found.n_clusters)} == theirs
